"""Pixels: every kind of image becomes the same as in the tutorial's Pillow pipeline."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision import transforms

from mgpubench.results.rank_record import Remark
from mgpubench.training.data.decode import UnreadableImage, jpeg_pixels
from mgpubench.training.data.folder import FolderDataset


def picture(mode: str, width: int = 300, height: int = 200) -> Image.Image:
    """Smooth colours with some edges, as photographs have them."""
    gradient = Image.linear_gradient("L").resize((width, height))
    bands = (gradient, gradient.rotate(180), Image.radial_gradient("L").resize((width, height)))
    image = Image.merge("RGB", bands)
    image.paste((255, 10, 10), (width // 3, height // 3, width // 2, height // 2))
    return image.convert(mode)


def tutorial(path: Path, image_size: int) -> Tensor:
    """Resize, CenterCrop and ToTensor of the tutorial, on the scale of 0 to 255."""
    pipeline = transforms.Compose(
        [
            transforms.Resize(round(image_size * 256 / 224)),
            transforms.CenterCrop(image_size),
            transforms.ToTensor(),
        ]
    )
    with Image.open(path) as image:
        return pipeline(image.convert("RGB")) * 255


def ours(path: Path, image_size: int) -> Tensor:
    image, _, remarks = FolderDataset([(str(path), 0)], image_size)[0, 0]
    assert remarks == ()
    assert image.dtype == torch.uint8
    assert image.shape == (3, image_size, image_size)
    return image.float()


@pytest.mark.parametrize("image_size", [32, 112, 224])
@pytest.mark.parametrize(
    ("mode", "name"),
    [
        ("RGB", "a.jpg"),
        ("L", "grey.jpg"),
        ("CMYK", "cmyk.jpg"),
        ("RGB", "a.png"),
        ("L", "grey.png"),
        ("LA", "grey-alpha.png"),
        ("P", "palette.png"),
        ("RGBA", "alpha.png"),
        ("1", "bits.png"),
        ("RGB", "a.bmp"),
        ("RGB", "a.tiff"),
        ("RGB", "a.ppm"),
        ("RGB", "a.webp"),
    ],
)
def test_pixels_are_at_most_one_level_from_the_tutorials(
    tmp_path: Path, mode: str, name: str, image_size: int
) -> None:
    path = tmp_path / name
    picture(mode).save(path)
    difference = (ours(path, image_size) - tutorial(path, image_size)).abs()
    assert float(difference.max()) <= 1.001
    assert float(difference.mean()) <= 0.1


def test_an_image_of_16_bit_becomes_rgb_as_pillow_does_it(tmp_path: Path) -> None:
    path = tmp_path / "deep.png"
    picture("L").convert("I;16").save(path)
    assert torch.equal(ours(path, 64), tutorial(path, 64).round())


def test_an_extension_may_be_wrong(tmp_path: Path) -> None:
    path = tmp_path / "png.jpg"
    picture("RGB").save(path, format="PNG")
    assert float((ours(path, 64) - tutorial(path, 64)).abs().max()) <= 1.001


def test_exif_orientation_is_ignored_as_in_the_tutorial(tmp_path: Path) -> None:
    path = tmp_path / "turned.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    picture("RGB").save(path, exif=exif)
    assert float((ours(path, 64) - tutorial(path, 64)).abs().max()) <= 1.001


@pytest.mark.parametrize("content", [b"", b"no image", b"\xff\xd8\xff\xe0 cut"])
def test_an_unreadable_image_is_named(tmp_path: Path, content: bytes) -> None:
    """C58: zero bytes, or bytes of something else."""
    path = tmp_path / "broken.jpg"
    path.write_bytes(content)
    with pytest.raises(RuntimeError, match=r"cannot read image .*broken\.jpg: "):
        FolderDataset([(str(path), 0)], 32)[0, 0]


def test_a_truncated_image_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cut.jpg"
    picture("RGB").save(path)
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(RuntimeError, match=r"cannot read image .*cut\.jpg: "):
        FolderDataset([(str(path), 0)], 32)[0, 0]


def test_photographs_keep_their_order_and_labels(photos: Callable[..., Path]) -> None:
    root = photos(cat=1, dog=1)
    dataset = FolderDataset(
        [(str(root / "cat" / "0.jpg"), 0), (str(root / "dog" / "0.jpg"), 1)], 32
    )
    assert len(dataset) == 2
    assert [dataset[0, index][1] for index in range(2)] == [0, 1]


BOMB = 13_400
"""Pixels a side: a PNG of 22 kB with 179,560,000 pixels, more than twice Pillow's limit."""


def test_a_decompression_bomb_is_refused_with_its_size_before_it_is_decoded(tmp_path: Path) -> None:
    """C72."""
    path = tmp_path / "big.png"
    Image.new("1", (BOMB, BOMB)).save(path)
    with pytest.raises(RuntimeError, match=r"cannot read image .*big\.png: .*179560000 pixels"):
        FolderDataset([(str(path), 0)], 32)[0, 0]


def test_the_size_of_a_jpeg_that_may_be_a_bomb_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "big.jpg"
    picture("RGB").save(path)
    width, height = picture("RGB").size
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", width * height // 2 - 1)
    with pytest.raises(RuntimeError, match=rf"big\.jpg: .*{width * height} pixels"):
        FolderDataset([(str(path), 0)], 32)[0, 0]


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_huge_image_is_used_and_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C72: between once and twice the limit Pillow warns."""
    path = tmp_path / "large.jpg"
    picture("RGB").save(path)
    width, height = picture("RGB").size
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", width * height - 1)
    image, _, remarks = FolderDataset([(str(path), 0)], 32)[0, 0]
    assert image.shape == (3, 32, 32)
    assert remarks == (Remark("huge", str(path)),)


def test_bad_images_are_replaced_by_the_next_good_one(tmp_path: Path) -> None:
    samples = [(str(tmp_path / f"{number}.jpg"), number) for number in range(4)]
    for path, number in samples:
        if number in (0, 2):
            Image.new("RGB", (40, 40), (number * 50, 0, 0)).save(path)
        else:
            Path(path).write_bytes(b"no image")
    dataset = FolderDataset(samples, 32, skip_bad=True)
    images, labels, remarks = zip(*(dataset[0, index] for index in range(4)), strict=True)
    assert labels == (0, 2, 2, 0)  # after the last image comes the first
    assert torch.equal(images[1], images[2])
    assert remarks == ((), (Remark("bad", samples[1][0]),), (), (Remark("bad", samples[3][0]),))


def test_a_folder_of_bad_images_only_ends_the_run(tmp_path: Path) -> None:
    samples = [(str(tmp_path / "1.jpg"), 0), (str(tmp_path / "2.jpg"), 0)]
    with pytest.raises(RuntimeError, match="none of the 2 images of the folder can be read"):
        FolderDataset(samples, 32, skip_bad=True)[0, 0]


def test_a_long_and_thin_image_is_refused_before_it_is_resized(tmp_path: Path) -> None:
    """C72: 201 bytes, which resizing would make 65 thousand million pixels."""
    path = tmp_path / "thin.png"
    Image.new("1", (1_000_000, 1)).save(path)
    with pytest.raises(
        UnreadableImage, match=r"thin\.png: its 1000000 x 1 pixels would be resized"
    ):
        FolderDataset([(str(path), 0)], 224)[0, 0]


def test_our_own_error_does_not_count_as_a_bad_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "good.jpg"
    picture("RGB").save(path)

    def out_of_memory(*arguments: object) -> None:
        raise RuntimeError("cannot allocate memory")

    monkeypatch.setattr("mgpubench.training.data.decode.resize_and_crop", out_of_memory)
    with pytest.raises(RuntimeError, match="cannot allocate memory"):
        FolderDataset([(str(path), 0)], 32, skip_bad=True)[0, 0]


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_a_png_with_a_flipped_bit_is_named_and_kills_no_process(tmp_path: Path, mode: str) -> None:
    """torchvision's own decoder crashes (SIGSEGV) at its wrong checksum."""
    path = tmp_path / "damaged.png"
    picture(mode).save(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(UnreadableImage, match=r"cannot read image .*damaged\.png: "):
        FolderDataset([(str(path), 0)], 32)[0, 0]


@pytest.mark.parametrize("name", ["part.gif", "part.jpg"])
def test_a_gif_that_does_not_fill_its_canvas_is_as_pillow_has_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    picture("P", 60, 40).save(path, format="GIF")
    content = bytearray(path.read_bytes())
    content[6:10] = (100).to_bytes(2, "little") + (80).to_bytes(2, "little")  # the canvas
    path.write_bytes(content)
    assert float((ours(path, 64) - tutorial(path, 64)).abs().max()) <= 1.001


def test_a_small_jpeg_that_claims_to_be_huge_is_refused(tmp_path: Path) -> None:
    """C72: its decoder would fill the missing part with 13 GB of grey."""
    path = tmp_path / "claims.jpg"
    picture("RGB").save(path)
    content = bytearray(path.read_bytes())
    place = content.index(b"\xff\xc0") + 5
    content[place : place + 4] = (65_500).to_bytes(2) * 2
    path.write_bytes(content)
    with pytest.raises(UnreadableImage, match=r"claims\.jpg: .*4290250000 pixels"):
        FolderDataset([(str(path), 0)], 32)[0, 0]


@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"exif": b"Exif\0\0" + bytes(5000)}]
)
def test_the_size_of_a_jpeg_is_in_its_header(tmp_path: Path, options: dict[str, object]) -> None:
    path = tmp_path / "a.jpg"
    picture("RGB", 300, 200).save(path, **options)
    content = path.read_bytes()
    assert jpeg_pixels(content) == 300 * 200
    assert jpeg_pixels(content[:2] + b"\xff\xff" + content[2:]) == 300 * 200  # fill bytes


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xd8",
        b"\xff\xd8\xff\xd0\0\x04ab\xff\xc0" + bytes(20),  # a marker that stands alone
        b"\xff\xd8\xff\xe0\0\x01\xff\xc0" + bytes(20),  # shorter than its own length
        b"\xff\xd8\xff\xe0",
        b"\xff\xd8no marker",
        b"\xff\xd8" + b"\xff\xe0\0\x04ab" * 9,
    ],
)
def test_a_jpeg_without_a_header_has_no_known_size(content: bytes) -> None:
    assert jpeg_pixels(content) is None


FTYP = b"\0\0\0\x18ftyp"
SIXTEEN_BITS_TWICE = b"II*\0\x08\0\0\0" + b"".join(
    [
        b"\x07\0",
        b"\0\x01\x03\0\x01\0\0\0\x02\0\0\0",  # width 2
        b"\x01\x01\x03\0\x01\0\0\0\x02\0\0\0",  # height 2
        b"\x02\x01\x03\0\x02\0\0\0\x10\0\x10\0",  # 16 and 16 bits
        b"\x06\x01\x03\0\x01\0\0\0\x01\0\0\0",
        b"\x11\x01\x04\0\x01\0\0\0\x62\0\0\0",
        b"\x15\x01\x03\0\x01\0\0\0\x02\0\0\0",  # two samples
        b"\x17\x01\x04\0\x01\0\0\0\x10\0\0\0",
        b"\0\0\0\0",
        bytes(16),
    ]
)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (FTYP + b"heic\0\0\0\0mif1heic", "in a format that Pillow cannot read here (HEIC)"),
        (FTYP + b"mif1\0\0\0\0", "in a format that Pillow cannot read here (HEIC)"),
        (SIXTEEN_BITS_TWICE, "in a format that Pillow cannot read here (TIFF)"),
        (b"<svg xmlns='...'/>", "in a format that Pillow cannot read here (SVG)"),
        (b"<!DOCTYPE html><p>404", "in a format that Pillow cannot read here (web page)"),
        (b"%PDF-1.7 ...", "in a format that Pillow cannot read here (PDF)"),
        (b"II*", "not an image in a format that Pillow can read here"),
        (b"something else", "not an image in a format that Pillow can read here"),
        (b"", "not an image"),
    ],
)
def test_what_a_file_is_is_said_as_far_as_it_can_be_told(
    tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(content)
    with pytest.raises(UnreadableImage) as caught:
        ours(path, 32)
    assert str(caught.value) == f"cannot read image {path}: it is {words}"


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_an_image_with_a_warning_is_read_even_if_warnings_are_errors(
    tmp_path: Path, suffix: str
) -> None:
    """Pillow warns about a palette with transparency, and about odd EXIF data."""
    path = tmp_path / f"a.{suffix}"
    if suffix == "png":
        picture("P").save(path, transparency=bytes([0, 128, 255]))
    else:
        picture("CMYK").save(path, exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ours(path, 32).shape == (3, 32, 32)
