"""From an image file to a uint8 tensor, with the meaning of the tutorial's Pillow pipeline.

Files are decoded and resized as uint8 tensors, which is quicker than Pillow and at most one level
of 255 away from it. Whatever torchvision does not decode just as Pillow's `convert("RGB")` would
(CMYK, 16 bit, animations, other formats) goes to Pillow. EXIF orientation is ignored, as in the
tutorial.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import torch
from PIL import Image
from torch import Tensor
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms.v2 import functional

from mgpubench.format import plain

# Torchvision 0.29 announces that TorchCodec will take its decoders over. The user can do nothing.
warnings.filterwarnings("ignore", "The image decoding and encoding", DeprecationWarning)

# We speak of huge images ourselves: in a worker nobody would hear Pillow.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)

JPEG_SIGNATURE = [0xFF, 0xD8]

MAX_JPEG_PIXELS_PER_BYTE = 512
"""Huffman coding spends at least a bit on a block of 8 x 8, so that small files have no need of a
look at their header, which takes 3 % of the time."""

RESIZE_RATIO = 256 / 224
"""Shorter side before the crop to the side of the crop: the tutorial's 256 and 224."""


class UnreadableImage(RuntimeError):
    """A file that is no image, or cannot be decoded; the message names it."""


def decode_rgb(path: str) -> Tensor:
    """An image file as uint8 RGB of shape (3, height, width).

    Raises:
        UnreadableImage: if it cannot be read.
    """
    try:
        encoded = _read(path)
        is_jpeg = encoded[:2].tolist() == JPEG_SIGNATURE
        if not is_jpeg or len(encoded) * MAX_JPEG_PIXELS_PER_BYTE > _pixel_limit():
            _check_header(path)
        image: Tensor = decode_image(encoded, ImageReadMode.UNCHANGED)
    except (OSError, RuntimeError):
        return _decode_with_pillow(path)
    if image.dtype != torch.uint8 or image.dim() != 3:
        return _decode_with_pillow(path)  # 16 bit; several frames
    channels = len(image)
    if channels == 3:
        return image
    if channels == 1 and is_jpeg:
        return image.expand(3, -1, -1)
    # One channel of a PNG may be a palette's numbers; four are CMYK, or RGB with an alpha to drop.
    return _decode_with_pillow(path)


def _read(path: str) -> Tensor:
    """All bytes of a file; a zero for one that is empty, since no tensor is made of nothing.

    torchvision's read_file maps it, and a file that is cut short meanwhile would kill the process.
    """
    with open(path, "rb") as file:
        content = bytearray(file.read())
    return torch.frombuffer(content or bytearray(1), dtype=torch.uint8)


def is_huge(image: Tensor) -> bool:
    """True above Pillow's limit of 89 million pixels; above twice that, it is not decoded at all.

    `image` is of shape (3, height, width).
    """
    return image[0].numel() > _pixel_limit()


def check_shape(path: str, image: Tensor, image_size: int) -> None:
    """Refuse an image that resizing would blow up beyond the limit: one that is long and thin.

    Raises:
        UnreadableImage: naming both sizes.
    """
    height, width = image.shape[1:]
    shorter = round(image_size * RESIZE_RATIO)
    longer = round(shorter * max(height, width) / min(height, width))
    if shorter * longer > 2 * _pixel_limit():
        raise UnreadableImage(
            f"cannot read image {plain(path)}: its {width} x {height} pixels would be resized to "
            f"{shorter} x {longer}"
        )


def _pixel_limit() -> int:
    limit = Image.MAX_IMAGE_PIXELS
    assert limit is not None  # nobody here takes it away
    return limit


def _check_header(path: str) -> None:
    """Let Pillow look at the size before anything is decoded.

    Raises:
        UnreadableImage: if it is no image, or a decompression bomb.
    """
    with _named(path), Image.open(path):
        pass


def resize_and_crop(image: Tensor, image_size: int) -> Tensor:
    """Shorter side to image_size x 256 / 224, then the centre: (3, image_size, image_size).

    In memory it lies as decoders leave it, height by width by channel.
    """
    resized = functional.resize(image, [round(image_size * RESIZE_RATIO)], antialias=True)
    cropped: Tensor = functional.center_crop(resized, [image_size])
    return cropped


def _decode_with_pillow(path: str) -> Tensor:
    with _named(path), Image.open(path) as image:
        pixels: Tensor = functional.pil_to_tensor(image.convert("RGB"))
        return pixels


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Turn whatever Pillow raises into an error that names the file."""
    try:
        yield
    # Pillow's decoders raise OSError, ValueError, SyntaxError and more, by format.
    except Exception as error:
        reason = "it is not an image" if "cannot identify" in str(error) else str(error)
        raise UnreadableImage(f"cannot read image {plain(path)}: {plain(reason)}") from error
