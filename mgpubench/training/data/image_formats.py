"""The format of a file that Pillow does not know, from its first bytes."""

from __future__ import annotations

import re

BYTES_TO_LOOK_AT = 64

SIGNATURES = (
    (rb"....ftyp(heic|heix|heim|heis|hevc|hevx|mif1|msf1)", "HEIC"),
    (rb"....ftyp(avif|avis)", "AVIF"),
    (rb"....ftypcrx", "CR3"),
    (rb"....ftyp(isom|iso2|mp4|M4V|qt)", "video"),
    (rb"\xff\x0a|\x00\x00\x00\x0cJXL ", "JPEG XL"),
    (rb"\x00\x00\x00\x0cjP  |\xff\x4f\xff\x51", "JPEG 2000"),
    (rb"II[*+]\0|MM\0[*+]", "TIFF"),
    (rb"\x89PNG\r\n", "PNG"),
    (rb"RIFF....WEBP", "WebP"),
    (rb"GIF8", "GIF"),
    (rb"BM", "BMP"),
    (rb"\x76\x2f\x31\x01", "OpenEXR"),
    (rb"P[1-7f]\s", "PNM"),
    (rb"8BPS", "PSD"),
    (rb"%PDF", "PDF"),
    (rb"%!PS", "PostScript"),
    (rb"SIMPLE  =", "FITS"),
    (rb"\x1f\x8b|PK\x03\x04", "archive"),
    (rb"(\xef\xbb\xbf)?\s*(<\?xml[^>]*>\s*)?<svg", "SVG"),
    (rb"(?i)\s*<(!doctype html|html)", "web page"),
    (rb"version https://git-lfs", "pointer of Git LFS"),
)
"""Patterns of the first bytes, with names for people."""


def format_of(head: bytes) -> str:
    """The name of the format that these first bytes belong to; empty if it is not known here."""
    return next(
        (name for pattern, name in SIGNATURES if re.match(pattern, head, re.DOTALL)),
        "",
    )
