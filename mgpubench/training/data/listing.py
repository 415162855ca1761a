"""Listing an ImageFolder: one folder per class, with images anywhere below it.

The listing is made once, before any process is started, so that a bad folder is refused at once and
all ranks see the same samples.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mgpubench.config.digest import hex_digits
from mgpubench.errors import RequestRefused
from mgpubench.format import in_utf8, shown_path

IMAGE_EXTENSIONS = (
    ".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp",
)  # fmt: skip
"""The extensions that torchvision's ImageFolder accepts."""

SPLIT_NAMES = frozenset({"train", "training", "val", "valid", "validation", "test", "testing"})
"""Names of folders that usually hold a data set each, and are not classes."""

SYSTEM_FOLDERS = frozenset(
    {
        *("__MACOSX", "@eaDir", "#recycle", "@Recycle", "lost+found", "$RECYCLE.BIN"),
        *("System Volume Information", ".ipynb_checkpoints", "__pycache__"),
    }
)
"""What systems and programs leave in folders of images: no classes, and no images in them."""

SIZES_IN_DIGEST = 200
"""At most so many files have their sizes included in the digest."""

LAYOUT = "FOLDER/<class>/<image>.jpg, for example FOLDER/cat/1.jpg and FOLDER/dog/2.jpg"


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageListing:
    """The samples of an ImageFolder, in a fixed order."""

    root: str
    name: str
    """The name of the folder itself, not of a link to it."""
    classes: tuple[str, ...]
    samples: tuple[tuple[str, int], ...]
    """Path and class number of each image."""
    digest: str
    """Digest of names, classes and some sizes, wherever the folder is: see `_digest`."""
    warnings: tuple[str, ...] = ()

    def save_samples(self, path: Path) -> None:
        """Write the samples for the workers to read."""
        save_samples(self.samples, path)


def save_samples(samples: Sequence[tuple[str, int]], path: Path) -> None:
    """Write samples for the workers to read."""
    path.write_text(json.dumps(list(samples)))


def load_samples(path: Path) -> list[tuple[str, int]]:
    """The samples that `ImageListing.save_samples` wrote."""
    return [(image, label) for image, label in json.loads(path.read_text())]


def list_images(root: Path, option: str = "--data") -> ImageListing:
    """List the images of a folder, with classes sorted by name as torchvision numbers them.

    Hidden files and folders (`.cache`, `._1.jpg`), and what systems leave there (`@eaDir`,
    `__MACOSX`), are neither images nor classes. A class without
    images keeps its number. A folder that links lead to again is listed once, so loops end.
    `option` is the one that names the folder.

    Raises:
        RequestRefused: if `root` is not a folder, or has no class folder or no image.
    """
    if problem := _problem_with(root):
        raise RequestRefused(f"{option} {root} {problem}", f"It must be an ImageFolder: {LAYOUT}.")
    left_out: set[str] = set()
    classes = sorted(entry.name for entry in _visible(root, left_out) if _is_folder(entry))
    if not classes:
        raise RequestRefused(
            f"{option} {root} has no class folders",
            f"An ImageFolder has one folder for each class: {LAYOUT}.",
        )
    warnings = list(_doubtful_classes(root, classes))
    samples = _list_classes(root, classes, warnings, left_out)
    if left_out:
        warnings.append(
            f"left out of {option} {shown_path(root)}, since systems and programs make such "
            f"folders: {', '.join(sorted(left_out))}"
        )
    if not samples:
        raise RequestRefused(
            f"{option} {root} has no images in its class folders",
            f"Images are files that end in {' '.join(IMAGE_EXTENSIONS)}.",
        )
    return ImageListing(
        digest=_digest(root, samples),
        root=str(root),
        name=in_utf8(root.resolve().name),
        classes=tuple(classes),
        samples=tuple(samples),
        warnings=tuple(warnings),
    )


def check_outside(out: Path, root: Path, option: str = "--data") -> None:
    """Refuse a folder for results that lies among the images, where it would become a class.

    Raises:
        RequestRefused: naming both folders.
    """
    place, images = Path(os.path.realpath(out)), Path(os.path.realpath(root))
    if not place.is_relative_to(images):
        return
    top, *_ = (*place.relative_to(images).parts, "")
    if not is_left_out(top):
        raise RequestRefused(
            f"--out {out} is in {option} {root}: the results would be listed as a class of images",
            "Give a folder elsewhere with --out.",
        )


def _doubtful_classes(root: Path, classes: Sequence[str]) -> Iterator[str]:
    if SPLIT_NAMES.issuperset(classes):
        yield (
            f"the classes of --data {root} are {', '.join(classes)}; if these are parts of a data "
            f"set, use one of them, such as {shown_path(root / classes[0])}"
        )


def _list_classes(
    root: Path, classes: Sequence[str], warnings: list[str], left_out: set[str]
) -> list[tuple[str, int]]:
    """Path and class number of all images."""
    samples: list[tuple[str, int]] = []
    for label, name in enumerate(classes):
        images, repeated = _images_below(root / name, left_out)
        samples += [(image, label) for image in images]
        warnings += [
            f"folder {shown_path(path)} is already listed, and is left out" for path in repeated
        ]
        if not images:
            warnings.append(
                f"class folder {shown_path(root / name)} has no images; it keeps its number"
            )
    return samples


def _digest(root: Path, samples: Sequence[tuple[str, int]]) -> str:
    """16 hex digits that differ if images or classes have other names or sizes.

    Only the sizes of some files count, evenly spread over the list: asking for a million of them on
    a network disk takes minutes. So equal digests suggest equal images, and do not prove them.
    """
    digest = hashlib.sha256()
    for image, label in samples:
        digest.update(os.fsencode(os.path.relpath(image, root)) + f"\0{label}\0".encode())
    every = math.ceil(len(samples) / SIZES_IN_DIGEST)
    digest.update(str([_size_bytes(image) for image, _ in samples[::every]]).encode())
    return hex_digits(digest.digest(), 16)


def _size_bytes(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except OSError:  # a dangling link
        return None


def _problem_with(root: Path) -> str:
    """Why it is not a folder; empty if it is one."""
    try:
        if root.is_dir():
            return ""
        return "is not a folder" if root.exists() else "does not exist"
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def check_enough_images(num_images: int, global_batch: int, root: str) -> None:
    """Refuse a folder that cannot fill one step, since the incomplete last batch is dropped.

    Raises:
        RequestRefused: naming the images found, the images needed and the folder.
    """
    if num_images < global_batch:
        raise RequestRefused(
            f"--data {root} has {num_images} images, and one step takes {global_batch}",
            "Use a smaller batch, fewer devices or more images.",
        )


def _visible(folder: Path, left_out: set[str]) -> list[os.DirEntry[str]]:
    """What is in a folder, but for hidden files and the folders of systems, which are noted."""
    try:
        with os.scandir(folder) as entries:
            found = list(entries)
    except OSError as error:
        raise RequestRefused(
            f"folder {folder} cannot be read: {error.strerror}", "Check its permissions."
        ) from error
    left_out.update(entry.name for entry in found if entry.name in SYSTEM_FOLDERS)
    return [entry for entry in found if not is_left_out(entry.name)]


def is_left_out(name: str) -> bool:
    """True for the name of a hidden file or folder, and for what systems leave there."""
    return name.startswith(".") or name in SYSTEM_FOLDERS


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _may_be_image(entry: os.DirEntry[str]) -> bool:
    """False for a pipe or a device, on which a loader would wait forever.

    A dangling link stays in the list: it is a missing image, which must be named.
    """
    try:
        return entry.is_file() or not os.path.exists(entry.path)
    except OSError:  # a link to itself
        return True


def _images_below(folder: Path, left_out: set[str]) -> tuple[list[str], list[str]]:
    """The images in and below a folder, and the folders that were reached a second time."""
    seen: set[str] = set()
    found: list[str] = []
    repeated: list[str] = []
    pending = [folder]
    while pending:
        current = pending.pop()
        real = os.path.realpath(current)
        if real in seen:
            repeated.append(str(current))
            continue
        seen.add(real)
        for entry in _visible(current, left_out):
            if _is_folder(entry):
                pending.append(Path(entry.path))
            elif entry.name.lower().endswith(IMAGE_EXTENSIONS) and _may_be_image(entry):
                found.append(entry.path)
    return sorted(found), sorted(repeated)
