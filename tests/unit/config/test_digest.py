"""Digests in result files are text, for every program that reads them."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgpubench.config.digest import hex_digits
from mgpubench.config.machine_facts import Machine
from mgpubench.machine.environment import environment_digest

PACKAGE = Path(__file__).parents[3] / "mgpubench"


@pytest.mark.parametrize("number", ["5e123456", "7e654321", "12345678", "00000000", "e1234567"])
def test_what_looks_like_a_number_is_replaced(number: str) -> None:
    digest = bytes.fromhex(number) + b"rest"
    text = hex_digits(digest, 8)
    assert re.fullmatch("[0-9a-f]{8}", text)
    assert text != number
    assert text == hex_digits(digest, 8)


def test_other_digests_are_their_own_digits() -> None:
    assert hex_digits(bytes.fromhex("5e1234a6ff"), 8) == "5e1234a6"


@given(st.binary(min_size=32, max_size=32), st.sampled_from([8, 16]))
def test_pandas_reads_every_digest_as_text(digest: bytes, count: int) -> None:
    text = hex_digits(digest, count)
    read = pd.read_csv(io.StringIO(f"machine\n{text}\n"))
    assert read.machine.tolist() == [text]


def test_machines_and_environments_have_such_digests(machine: Callable[..., Machine]) -> None:
    """Of 2,000 plain digests some 70 would look like numbers."""
    texts = [machine(cpu_model=f"CPU {number}").fingerprint for number in range(2000)]
    texts += [environment_digest({"NCCL_ALGO": str(number)}) for number in range(2000)]
    assert len(set(texts)) == len(texts)
    assert not [text for text in texts if not re.search("[abcdf]", text)]


def test_no_other_digest_gets_into_a_file() -> None:
    """Each hexdigest that is left names a file, or checks one."""
    found = [
        f"{path.name}: {line.strip()}"
        for path in PACKAGE.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "hexdigest()" in line
    ]
    assert sorted(line.partition(":")[0] for line in found) == ["pretrained.py", "workers.py"]
