"""What machines tell each other survives the way, and nothing else is made from bytes."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mgpubench.config.run_config import RunConfig
from mgpubench.errors import RequestRefused
from mgpubench.launch.loss_lines import LossLine
from mgpubench.launch.nodes.messages import Done, End, LossLines, decode, encode, is_read_once
from mgpubench.results.rank_record import RankRecord
from mgpubench.session.workers import RunOrder, TrainOrder
from tests.unit.launch.test_cause import raised


def test_messages_come_back_as_they_were(
    cpu_config: Callable[..., RunConfig], rank_record: Callable[..., RankRecord]
) -> None:
    messages = (
        End(node=1, reason="why", exit_code=2),
        RunOrder(config=cpu_config(mode="ddp", num_devices=2, devices_per_node=(1, 1))),
        Done(results=(rank_record([0.1, 0.2]),)),
        LossLines(lines=(LossLine(10, 4, 2.5),), is_last=True),
        TrainOrder(),
        {"path": Path("/a/b"), "number": 1.5, "none": None},
    )
    for message in messages:
        assert decode(encode(message)) == message


def test_an_error_comes_back_with_its_hint() -> None:
    exits = (raised(1, "x", refusal=RequestRefused("no", "a hint", "details")),)
    (back,) = decode(encode(Done(exits=exits))).exits
    assert isinstance(back.failure.refusal, RequestRefused)
    assert (back.failure.refusal.message, back.failure.refusal.hint) == ("no", "a hint")


class Runs:
    """What an attacker on the network would send."""

    def __reduce__(self) -> Any:
        return os.system, ("true",)


class Opens:
    def __reduce__(self) -> Any:
        return open, ("/dev/null",)


class CallsOurs:
    def __reduce__(self) -> Any:
        return encode, ("x",)


@pytest.mark.parametrize("attack", [Runs(), Opens(), CallsOurs(), Runs])
def test_bytes_that_would_call_something_are_refused(attack: object) -> None:
    with pytest.raises(pickle.UnpicklingError, match="is not a type of mgpubench"):
        decode(pickle.dumps(attack))


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("mgpubench.machine.ask", "subprocess.Popen"),  # a type that a module of ours has imported
        ("pathlib", "io.FileIO"),
        ("mgpubench.launch.forkserver", "ForkServer"),  # ours, but no value
    ],
)
def test_what_a_module_of_ours_has_imported_is_not_ours(module: str, name: str) -> None:
    """Since protocol 4 a name may have dots."""
    texts = (text.encode() for text in (module, name))
    names = b"".join(b"\x8c" + bytes([len(text)]) + text for text in texts)
    with pytest.raises(pickle.UnpicklingError, match="is not a type of mgpubench"):
        decode(b"\x80\x04" + names + b"\x93.")


def test_only_what_is_for_node_0_alone_is_read_once() -> None:
    assert is_read_once("done/3/1")
    assert is_read_once("loss/1/0")
    assert not is_read_once("cmd/3")
