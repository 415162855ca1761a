"""What each operation sends and what it must yield, with the data moved by hand between ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mgpubench.collectives.buckets import sizes_of
from mgpubench.collectives.measure import fault_of
from mgpubench.collectives.operations import EXCHANGES, Exchange
from mgpubench.collectives.pattern import Pattern, make_pattern
from mgpubench.config.comm_request import OPERATIONS, Operation

RANKS = 3
ELEMENTS = 12 * RANKS
CPU = torch.device("cpu")


def pattern(rank: int, elements: int = ELEMENTS, ranks: int = RANKS) -> Pattern:
    return make_pattern(elements, rank, ranks, CPU)


def exchanges(operation: Operation, call: int) -> list[Exchange]:
    """One for each rank, filled for a call."""
    made = [EXCHANGES[operation](pattern(rank)) for rank in range(RANKS)]
    for each in made:
        each.refill(call)
    return made


def moved(operation: Operation, sent: list[Any]) -> list[Any]:
    """The results of all ranks, as the operation is defined."""
    whole = {"all-reduce", "reduce", "reduce-scatter"}
    total = torch.stack(sent).sum(0) if operation in whole else None
    pieces = [list(each.chunk(RANKS)) if each is not None else [] for each in sent]
    results: dict[Operation, Any] = {
        "broadcast": lambda rank: sent[0],
        "scatter": lambda rank: pieces[0][rank],
        "gather": lambda rank: torch.cat(sent) if rank == 0 else None,
        "reduce": lambda rank: total if rank == 0 else None,
        "all-reduce": lambda rank: total,
        "all-gather": lambda rank: torch.cat(sent),
        "reduce-scatter": lambda rank: total.chunk(RANKS)[rank],  # type: ignore[union-attr]
        "all-to-all": lambda rank: torch.cat([each[rank] for each in pieces]),
        "send-recv": lambda rank: sent[rank - 1],
    }
    return [results[operation](rank) for rank in range(RANKS)]


WITH_DATA = [operation for operation in OPERATIONS if operation != "barrier"]


@pytest.mark.parametrize("operation", WITH_DATA)
def test_the_right_result_has_no_fault_and_an_older_or_damaged_one_has(
    operation: Operation,
) -> None:
    call = 7
    made = exchanges(operation, call)
    sent = [None if each.sent is None else each.sent.clone() for each in made]
    for each, result in zip(made, moved(operation, sent), strict=True):
        assert (each.result is None) == (result is None)
        if result is None:
            assert fault_of(each, call) == ""
            continue
        each.result.copy_(result)
        assert fault_of(each, call) == ""
        assert fault_of(each, call + 1).endswith(f"wrong in call {call + 2})")
        each.result[3] += 1
        right = float(result[3])
        assert fault_of(each, call) == (
            f"{right + 1:g} instead of {right:g} in element 3 of {len(result)} "
            f"(1 wrong in call {call + 1})"
        )


@pytest.mark.parametrize("operation", WITH_DATA)
def test_a_call_that_moves_nothing_is_noticed(operation: Operation) -> None:
    made = exchanges(operation, 0)
    faults = [bool(fault_of(each, 0)) for each in made if each.result is not None]
    if operation == "broadcast":
        assert faults == [False, True, True]  # the root has its own numbers
    else:
        assert all(faults)


def test_a_refill_repairs_what_the_call_has_overwritten() -> None:
    each = exchanges("all-reduce", 0)[1]
    before = each.sent.clone()
    each.sent.mul_(3)
    each.refill(0)
    assert torch.equal(each.sent, before)


def test_a_barrier_has_no_data() -> None:
    each = exchanges("barrier", 0)[0]
    assert (each.sent, each.result, fault_of(each, 0)) == (None, None, "")


def test_sums_over_a_thousand_ranks_are_exact() -> None:
    ranks = 1024
    wanted = pattern(0, elements=61, ranks=ranks)
    total = torch.zeros(61, dtype=torch.float64)
    for rank in range(ranks):
        total += wanted.whole(rank, 100).double()
    assert torch.equal(wanted.sum(100).double(), total)


def test_pieces_ranks_and_calls_differ() -> None:
    one = pattern(0)
    variants: list[Tensor] = [
        one.piece(index, rank, call) for index in range(2) for rank in range(2) for call in range(2)
    ]
    for place, first in enumerate(variants):
        assert not any(torch.equal(first, other) for other in variants[place + 1 :])


def meta(*bytes_of: int) -> list[Tensor]:
    return [torch.empty(size // 4, device="meta") for size in bytes_of]


MIB = 2**20


def test_the_first_bucket_is_full_at_one_mebibyte_and_the_others_at_25() -> None:
    """From the end of the model: 0.5 + 0.6, then 20 + 10, then 1."""
    sizes = [1 * MIB, 10 * MIB, 20 * MIB, 600 * 1024, 512 * 1024]
    assert sizes_of(meta(*sizes)) == [1112 * 1024, 30 * MIB, 1 * MIB]


def test_a_cap_is_the_limit_of_all_buckets() -> None:
    sizes = [1 * MIB, 2 * MIB, 3 * MIB, 1 * MIB]
    assert sizes_of(meta(*sizes), cap_mb=4) == [4 * MIB, 3 * MIB]
