"""Digests as they stand in result files: hex digits that no program takes for a number."""

from __future__ import annotations

import hashlib

NEVER_IN_NUMBERS = frozenset("abcdf")
"""Hex digits that no number has. `e` is an exponent: pandas and spreadsheets read 5e123456 as
infinity, and two machines as one."""


def hex_digits(digest: bytes, count: int) -> str:
    """The first hex digits of a digest, or of the digest of it if those look like a number."""
    while NEVER_IN_NUMBERS.isdisjoint(text := digest.hex()[:count]):
        digest = hashlib.sha256(digest).digest()
    return text
