"""From an image file to a uint8 tensor, with the same result as the tutorial's Pillow pipeline.

JPEGs are decoded and all images are resized by torchvision, as uint8 tensors. That is faster than
Pillow, and differs from it by at most 1 of 255 levels on photographs. Pillow decodes JPEGs in CMYK
and everything else, since torchvision decodes some files differently (GIF) and crashes on a damaged
PNG. EXIF orientation is ignored, as in the tutorial.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import torch
from PIL import Image
from torch import Tensor
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms.v2 import functional

from mgpubench.format import plain, shown_path
from mgpubench.training.data.image_formats import BYTES_TO_LOOK_AT, format_of

JPEG_SIGNATURE = b"\xff\xd8"

FRAME_HEADERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xDB)})
"""Markers of the JPEG segments that hold the size, and markers without a length or before the image
itself (ITU-T T.81, table B.1)."""

RESIZE_RATIO = 256 / 224
"""Ratio of the shorter side before the crop to the side of the crop, as in the tutorial."""


class UnreadableImage(RuntimeError):
    """A file is not an image or cannot be decoded. The message names it."""


def decode_rgb(path: str) -> Tensor:
    """An image file as uint8 RGB of shape (3, height, width).

    Raises:
        UnreadableImage: if it cannot be read.
    """
    try:
        image = _decode_if_jpeg(path)
    except UnreadableImage:
        raise
    except (OSError, RuntimeError):
        return _decode_with_pillow(path)
    if image is None or len(image) not in (1, 3):
        return _decode_with_pillow(path)
    return image if len(image) == 3 else image.expand(3, -1, -1)


def _decode_if_jpeg(path: str) -> Tensor | None:
    """A JPEG as uint8 of shape (channels, height, width); None if the file is no JPEG."""
    # torchvision's read_file maps the file: if it were truncated meanwhile, the process would be
    # killed.
    with open(path, "rb") as file:
        content = bytearray(file.read(len(JPEG_SIGNATURE)))
        if content != JPEG_SIGNATURE:
            return None
        content += file.read()
    num_pixels = jpeg_pixels(content)
    if num_pixels is None or num_pixels > _pixel_limit():
        _check_header(path)
    encoded = torch.frombuffer(content, dtype=torch.uint8)
    with _without_warnings():
        image: Tensor = decode_jpeg(encoded, ImageReadMode.UNCHANGED)
    return image


def jpeg_pixels(content: bytes | bytearray) -> int | None:
    """Width x height from the header of a JPEG file; None if it is not found.

    Asking Pillow would take 3 % of the time of an image.
    """
    position = len(JPEG_SIGNATURE)
    while len(content) >= position + 9 and content[position] == 0xFF:
        marker = content[position + 1]
        if marker == 0xFF:  # fill bytes may come before a marker
            position += 1
            continue
        if marker in FRAME_HEADERS:
            height = int.from_bytes(content[position + 5 : position + 7])
            width = int.from_bytes(content[position + 7 : position + 9])
            return height * width or None
        length = int.from_bytes(content[position + 2 : position + 4])
        if marker in WITHOUT_LENGTH or length < 2:
            return None
        position += 2 + length
    return None


def is_huge(image: Tensor) -> bool:
    """True above Pillow's limit of 89 million pixels. Above twice that an image is not decoded.

    `image` is of shape (3, height, width).
    """
    return image[0].numel() > _pixel_limit()


def check_shape(path: str, image: Tensor, image_size: int) -> None:
    """Refuse an image that is so long and thin that resizing would exceed the limit.

    Raises:
        UnreadableImage: naming both sizes.
    """
    height, width = image.shape[1:]
    shorter = round(image_size * RESIZE_RATIO)
    longer = round(shorter * max(height, width) / min(height, width))
    if shorter * longer > 2 * _pixel_limit():
        raise UnreadableImage(
            f"cannot read image {shown_path(path)}: its {width} x {height} pixels would be resized "
            f"to {shorter} x {longer}"
        )


def _pixel_limit() -> int:
    limit = Image.MAX_IMAGE_PIXELS
    assert limit is not None  # nothing here removes it
    return limit


def _check_header(path: str) -> None:
    """Let Pillow check the size before anything is decoded.

    Raises:
        UnreadableImage: if it is not an image, or is a decompression bomb.
    """
    with _named(path), Image.open(path):
        pass


def resize_and_crop(image: Tensor, image_size: int) -> Tensor:
    """Shorter side to image_size x 256 / 224, then the centre: (3, image_size, image_size).

    In memory it stays as decoders leave it: height, width, channel.
    """
    resized = functional.resize(image, [round(image_size * RESIZE_RATIO)], antialias=True)
    cropped: Tensor = functional.center_crop(resized, [image_size])
    return cropped


def _decode_with_pillow(path: str) -> Tensor:
    with _named(path), Image.open(path) as image:
        pixels: Tensor = functional.pil_to_tensor(image.convert("RGB"))
        return pixels


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """A warning about an image is not seen in a worker, and is never an error.

    Torchvision 0.29 warns that its decoders will move to TorchCodec. We report huge images
    ourselves.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Turn any error of Pillow into one that names the file."""
    try:
        with _without_warnings():
            yield
    # Pillow's decoders raise OSError, ValueError, SyntaxError and more, depending on the format.
    except Exception as error:
        reason = _what_it_is(path) if "cannot identify" in str(error) else str(error)
        raise UnreadableImage(f"cannot read image {shown_path(path)}: {plain(reason)}") from error


def _what_it_is(path: str) -> str:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        head = file.read(BYTES_TO_LOOK_AT)
        if name := format_of(head):
            return f"it is in a format that Pillow cannot read here ({name})"
        if head:
            return "it is not an image in a format that Pillow can read here"
    return "it is not an image"
