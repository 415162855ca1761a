"""Listing a folder of images: what counts, what gets a warning, what is refused."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mgpubench.errors import RequestRefused
from mgpubench.training.data.listing import (
    SYSTEM_FOLDERS,
    ImageListing,
    check_enough_images,
    check_outside,
    list_images,
    load_samples,
)

Tree = Callable[..., Path]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Makes a folder with empty files; a name that ends in `/` is a folder without any."""

    def make(*names: str) -> Path:
        root = tmp_path / "root"
        root.mkdir()
        for name in names:
            path = root / name
            (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
            if not name.endswith("/"):
                path.touch()
        return root

    return make


def samples(root: Path) -> list[tuple[str, int]]:
    """The samples with paths below the root."""
    return [(os.path.relpath(path, root), label) for path, label in list_images(root).samples]


def refusal(root: Path) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        list_images(root)
    assert caught.value.exit_code == 2
    return caught.value


def test_classes_are_numbered_by_name_and_images_sorted(tree: Tree) -> None:
    root = tree("dog/2.jpg", "dog/10.jpg", "cat/b.png", "cat/a.JPEG")
    listing = list_images(root)
    assert listing.classes == ("cat", "dog")
    assert listing.root == str(root)
    assert listing.warnings == ()
    assert samples(root) == [
        ("cat/a.JPEG", 0),
        ("cat/b.png", 0),
        ("dog/10.jpg", 1),
        ("dog/2.jpg", 1),
    ]


def test_images_may_be_deeper_than_their_class(tree: Tree) -> None:
    assert samples(tree("cat/x/y/1.jpg", "cat/2.jpg")) == [("cat/2.jpg", 0), ("cat/x/y/1.jpg", 0)]


@pytest.mark.parametrize(
    "ending", ["jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp"]
)
def test_the_endings_are_those_of_torchvision(tree: Tree, ending: str) -> None:
    root = tree(
        f"cat/1.{ending}", f"cat/2.{ending.upper()}", f"cat/3.{ending}.txt", f"cat/{ending}"
    )
    assert [path for path, _ in samples(root)] == [f"cat/1.{ending}", f"cat/2.{ending.upper()}"]


def test_hidden_files_and_folders_are_neither_images_nor_classes(tree: Tree) -> None:
    """C58: macOS puts `._1.jpg` beside `1.jpg`."""
    root = tree("cat/1.jpg", "cat/._1.jpg", "cat/.cache/2.jpg", ".ipynb/3.jpg", ".DS_Store")
    listing = list_images(root)
    assert listing.classes == ("cat",)
    assert samples(root) == [("cat/1.jpg", 0)]
    assert listing.warnings == ()


@pytest.mark.parametrize("rest", ["dog/", "dog/readme.txt"])
def test_a_class_without_images_keeps_its_number_and_is_named(tree: Tree, rest: str) -> None:
    """C27."""
    root = tree("cat/1.jpg", rest, "eel/1.jpg")
    listing = list_images(root)
    assert listing.classes == ("cat", "dog", "eel")
    assert [label for _, label in listing.samples] == [0, 2]
    assert listing.warnings == (f"class folder {root / 'dog'} has no images; it keeps its number",)


def test_a_folder_without_any_image_names_the_endings(tree: Tree) -> None:
    root = tree("cat/", "dog/readme.txt")
    error = refusal(root)
    assert error.message == f"--data {root} has no images in its class folders"
    assert error.hint == (
        "Images are files that end in .jpg .jpeg .png .ppm .bmp .pgm .tif .tiff .webp."
    )


@pytest.mark.parametrize("names", [("a.jpg", "b.jpg"), ()])
def test_a_flat_folder_is_refused_with_an_example(tree: Tree, names: tuple[str, ...]) -> None:
    """C47."""
    root = tree(*names)
    error = refusal(root)
    assert error.message == f"--data {root} has no class folders"
    assert "FOLDER/<class>/<image>.jpg" in error.hint
    assert "FOLDER/cat/1.jpg" in error.hint


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere"
    assert refusal(missing).message == f"--data {missing} does not exist"


def test_a_file_is_refused(tree: Tree) -> None:
    file = tree("cat/1.jpg") / "cat" / "1.jpg"
    assert refusal(file).message == f"--data {file} is not a folder"


@pytest.mark.parametrize("names", [("train", "val"), ("test",), ("train", "test", "valid")])
def test_parts_of_a_data_set_as_classes_are_warned_of(tree: Tree, names: tuple[str, ...]) -> None:
    """C47: one level too high."""
    root = tree(*(f"{name}/cat/1.jpg" for name in names))
    (warning,) = list_images(root).warnings
    assert f"the classes of --data {root} are {', '.join(sorted(names))};" in warning
    assert str(root / min(names)) in warning


def test_one_class_that_is_called_test_is_no_problem(tree: Tree) -> None:
    assert list_images(tree("test/1.jpg", "cat/1.jpg")).warnings == ()


def test_a_loop_of_links_ends_and_is_named(tree: Tree) -> None:
    """C66."""
    root = tree("m/a.jpg")
    (root / "m" / "loop").symlink_to(root / "m")
    listing = list_images(root)
    assert samples(root) == [("m/a.jpg", 0)]
    assert listing.warnings == (f"folder {root / 'm' / 'loop'} is already listed, and is left out",)


def test_a_link_to_itself_is_no_folder(tree: Tree) -> None:
    root = tree("m/a.jpg")
    (root / "m" / "self").symlink_to("self")
    (root / "self").symlink_to("self")
    assert list_images(root).classes == ("m",)
    assert samples(root) == [("m/a.jpg", 0)]


def test_a_class_may_be_a_link_and_is_counted_once(tree: Tree, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "1.jpg").touch()
    root = tree("cat/1.jpg")
    (root / "dog").symlink_to(elsewhere)
    assert samples(root) == [("cat/1.jpg", 0), ("dog/1.jpg", 1)]
    assert list_images(root).warnings == ()


def test_a_link_to_itself_is_listed_like_a_dangling_one(tree: Tree) -> None:
    root = tree("m/a.jpg")
    (root / "m" / "self.jpg").symlink_to("self.jpg")
    assert [path for path, _ in samples(root)] == ["m/a.jpg", "m/self.jpg"]


def test_a_dangling_link_is_listed_like_the_bad_image_it_is(tree: Tree) -> None:
    root = tree("m/a.jpg")
    (root / "m" / "dangling.jpg").symlink_to("nowhere.jpg")
    assert [path for path, _ in samples(root)] == ["m/a.jpg", "m/dangling.jpg"]


def test_a_listing_survives_its_file(tree: Tree, tmp_path: Path) -> None:
    not_utf8 = os.fsdecode(b"zebra/\xff.jpg")
    listing = list_images(tree("k\u00e4fer/\u00e9.jpg", "zebra/1 2.jpg", not_utf8))
    listing.save_samples(tmp_path / "listing.json")
    loaded = load_samples(tmp_path / "listing.json")
    assert listing.classes == ("k\u00e4fer", "zebra")
    assert tuple(loaded) == listing.samples


@pytest.mark.parametrize("num_images", [16, 17])
def test_images_for_one_step_are_enough(num_images: int) -> None:
    check_enough_images(num_images, 16, "photos")


@pytest.mark.parametrize(("num_images", "global_batch"), [(3, 4), (3, 16), (15, 16)])
def test_too_few_images_are_refused(num_images: int, global_batch: int) -> None:
    """C06."""
    with pytest.raises(RequestRefused) as caught:
        check_enough_images(num_images, global_batch, "photos")
    assert caught.value.message == (
        f"--data photos has {num_images} images, and one step takes {global_batch}"
    )


def test_a_pipe_named_like_an_image_is_none(tmp_path: Path) -> None:
    """A loader would wait for it forever."""
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.jpg").write_bytes(b"")
    os.mkfifo(tmp_path / "cat" / "2.jpg")
    listing = list_images(tmp_path)
    assert [path for path, _ in listing.samples] == [str(tmp_path / "cat" / "1.jpg")]


def test_a_digest_depends_on_the_images_and_not_on_the_place_of_the_folder(
    tree: Tree, tmp_path: Path
) -> None:
    root = tree("cat/1.jpg", "dog/2.jpg")
    before = list_images(root)
    moved = root.rename(tmp_path / "moved")
    root.symlink_to(moved)
    behind_a_link = list_images(root)
    assert behind_a_link.digest == before.digest
    assert (before.name, behind_a_link.name) == ("root", "moved")
    (moved / "cat" / "1.jpg").rename(moved / "dog" / "1.jpg")
    assert list_images(moved).digest != before.digest


def test_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    assert "cannot be read: File name too long" in refusal(tmp_path / ("x" * 300)).message


def test_other_images_of_the_same_names_have_another_digest(tree: Tree) -> None:
    root = tree("cat/1.jpg", "cat/2.jpg")
    before = list_images(root).digest
    assert before == list_images(root).digest
    (root / "cat" / "2.jpg").write_bytes(b"another image")
    assert list_images(root).digest != before
    (root / "cat" / "gone.jpg").symlink_to("nowhere.jpg")
    assert len(list_images(root).digest) == 16


def test_a_link_to_a_pipe_is_no_image(tree: Tree, tmp_path: Path) -> None:
    root = tree("m/a.jpg")
    os.mkfifo(tmp_path / "pipe")
    (root / "m" / "pipe.jpg").symlink_to(tmp_path / "pipe")
    assert [path for path, _ in samples(root)] == ["m/a.jpg"]


def test_of_many_images_only_some_are_asked_for_their_size(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("mgpubench.training.data.listing._size_bytes", asked.append)
    list_images(tree(*(f"cat/{number}.jpg" for number in range(450))))
    assert len(asked) == 150  # every third, so that they are no more than 200


@pytest.mark.parametrize("name", sorted(SYSTEM_FOLDERS))
def test_what_systems_leave_is_no_class_and_is_named_once(tmp_path: Path, name: str) -> None:
    """A NAS keeps small pictures of all images in a folder beside them."""
    for folder in ("cat", "dog", name, f"cat/{name}", f"dog/brown/{name}"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "1.jpg").touch()
    listing = list_images(tmp_path)
    assert listing.classes == ("cat", "dog")
    found = [os.path.relpath(path, tmp_path) for path, _ in listing.samples]
    assert found == ["cat/1.jpg", "dog/1.jpg"]
    (warning,) = listing.warnings
    assert warning.endswith(f"such folders: {name}")
    plain = list_images_without(tmp_path, name)
    assert (plain.digest, plain.warnings) == (listing.digest, ())


def list_images_without(root: Path, name: str) -> ImageListing:
    for folder in sorted(root.rglob(name), reverse=True):
        shutil.rmtree(folder)
    return list_images(root)


@pytest.mark.parametrize("out", ["root", "root/results", "root/cat/results", "link/results"])
def test_results_among_the_images_are_refused(tree: Tree, tmp_path: Path, out: str) -> None:
    root = tree("cat/1.jpg")
    (tmp_path / "link").symlink_to(root)
    with pytest.raises(RequestRefused, match=f"^--out .*{out} is in --data .*root: "):
        check_outside(tmp_path / out, root)


@pytest.mark.parametrize("out", ["results", "root2", "root/.results", "root/lost+found/results"])
def test_results_beside_the_images_or_where_none_are_listed_are_fine(
    tree: Tree, tmp_path: Path, out: str
) -> None:
    root = tree("cat/1.jpg")
    check_outside(tmp_path / out, root)
    (tmp_path / out).mkdir(parents=True)
    assert list_images(root).classes == ("cat",)
