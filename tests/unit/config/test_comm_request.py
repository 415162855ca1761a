"""What `comm` may be asked for."""

from __future__ import annotations

from typing import Any

import pytest

from mgpubench.config.comm_request import CommOptions, CommRequest, parse_size
from mgpubench.config.request import Request
from mgpubench.config.run_config import DdpOptions
from mgpubench.errors import RequestRefused


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("4096B", 4096),
        ("4K", 4096),
        ("4k", 4096),
        ("4KiB", 4096),
        ("4 KiB", 4096),
        ("16M", 16 * 2**20),
        ("1GB", 2**30),
        ("2TiB", 2 * 2**40),
    ],
)
def test_sizes_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "K", "4.5M", "-4", "4X", "1_0", "4KiBs", "9" * 16])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size such as 4096, 4KiB or 16M"):
        parse_size(text)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"smallest": 3}, "--smallest is 3 B, and must be from 4 B to 1 TiB"),
        ({"largest": 2**41}, "--largest is 2 TiB, and must be from 4 B to 1 TiB"),
        ({"factor": 1}, "--factor is 1, and must be from 2 to 2147483647"),
        ({"calls": 0}, "--calls is 0, and must be from 1 to 100000"),
        ({"warmup_calls": -1}, "--warmup-calls is -1, and must be from 0 to 100000"),
        ({"largest": 1024}, "--largest 1 KiB is below --smallest 4 KiB"),
        ({"smallest": 2048, "largest": 1024}, "--largest 1 KiB is below --smallest 2 KiB"),
    ],
)
def test_impossible_options_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestRefused) as refusal:
        CommOptions(**values)
    assert refusal.value.message == message


@pytest.mark.parametrize(
    ("work", "own", "message"),
    [
        ({"gpus": (1,)}, {}, "--gpus 1: on one device there is nobody to exchange data with"),
        ({"gpus": (4, 1)}, {}, "--gpus 1: on one device there is nobody to exchange data with"),
        ({"model": "mlp"}, {"factor": 2}, "--model and --factor exclude each other"),
        ({"model": "mlp"}, {"smallest": 4}, "--model and --smallest exclude each other"),
        (
            {"ddp": DdpOptions(bucket_cap_mb=5)},
            {},
            "--bucket-cap-mb has no meaning without --model",
        ),
    ],
)
def test_contradictions_are_refused(
    work: dict[str, Any], own: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestRefused) as refusal:
        CommRequest(work=Request(**work), options=CommOptions(**own))
    assert refusal.value.message == message
