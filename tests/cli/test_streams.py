"""Comments never end a measurement, and results that cannot be written are an error."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest

from mgpubench.cli.streams import CommentStream, ResultStream
from mgpubench.errors import BenchError


@pytest.fixture
def closed_pipe() -> Iterator[int]:
    """The writable end of a pipe without a reader."""
    readable, writable = os.pipe()
    os.close(readable)
    yield writable
    os.close(writable)


def test_comments_to_a_terminal_that_is_gone_are_dropped(closed_pipe: int) -> None:
    with open(closed_pipe, "wb", closefd=False) as raw:
        stream = CommentStream(raw, encoding="utf-8", line_buffering=True)
        assert stream.write("one\n") == 4
        assert stream.write("two") == 3
        stream.flush()
        stream.detach()


def test_results_without_a_reader_are_no_error(closed_pipe: int) -> None:
    """`compare | head -1`: the reader has seen enough, which is no error."""
    with open(closed_pipe, "wb", closefd=False) as raw:
        stream = ResultStream(raw, encoding="utf-8")
        stream.write("figures")
        stream.flush()
        stream.write("more")
        stream.flush()
        stream.detach()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_results_that_do_not_fit_are_an_error() -> None:
    with open("/dev/full", "wb") as raw:
        stream = ResultStream(raw, encoding="utf-8", line_buffering=True)
        with pytest.raises(BenchError, match=os.strerror(errno.ENOSPC)):
            stream.write("figures\n")
        stream.flush()
        stream.detach()
