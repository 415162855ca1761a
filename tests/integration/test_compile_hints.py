"""A hint about torch.compile fits the cause that torch names."""

from __future__ import annotations

import re

import pytest

from mgpubench.training.compilation import hint_for


@pytest.mark.parametrize(
    ("message", "word", "no_word"),
    [
        (
            "/tmp/x/main.so: failed to map segment from shared object. The most common reason is "
            "that /tmp is mounted with noexec. Please remount it",
            "TMPDIR.*noexec",
            "compiler",
        ),
        ("[Errno 28] No space left on device: '/tmp/x'", "Make room in TMPDIR", "compiler"),
        ("[Errno 13] Permission denied: '/tmp/x/y.cpp'", "TMPDIR.*can be written", "compiler"),
        ("[Errno 30] Read-only file system: '/tmp/x'", "TMPDIR.*can be written", "compiler"),
        ("No working C++ compiler found in cpp.cxx: (None, 'nope')", r"g\+\+.*CXX", "TMPDIR"),
        ("fatal error: Python.h: No such file or directory", "python3-dev", "TMPDIR"),
        ("Cannot find a working triton installation.", "Triton", "TMPDIR"),
        ("Dynamic control flow is not supported", "leave --compile out", "compiler|TMPDIR"),
    ],
)
def test_the_hint_fits_the_cause(message: str, word: str, no_word: str) -> None:
    hint = hint_for(message)
    assert re.search(word, hint)
    assert not re.search(no_word, hint)
