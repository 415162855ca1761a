"""Every finding at its threshold, with the measured value and advice that can be followed."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from mgpubench.analysis.findings import data, gpus, mixed, steadiness, timing, work
from mgpubench.analysis.findings.catalogue import KINDS, findings_of, has_table_note
from mgpubench.analysis.findings.kind import Finding, MeasuredRun, no_check
from mgpubench.analysis.findings.timing import clock_disagreement
from mgpubench.analysis.metrics import summarize
from mgpubench.config.run_config import RunConfig
from mgpubench.results.rank_record import Compiling, RankRecord, Remark
from mgpubench.results.schema import Figures

MakeConfig = Callable[..., RunConfig]
MakeRank = Callable[..., RankRecord]
CUDA: dict[str, Any] = {
    "mode": "ddp", "effective_mode": "ddp", "device_type": "cuda", "num_devices": 2,
    "device_indices": (0, 1), "backend": "nccl", "warmup_steps": 20,
}  # fmt: skip
STEADY = [0.1] * 100


@pytest.fixture
def findings(cpu_config: MakeConfig, rank_record: MakeRank) -> Callable[..., dict[str, str]]:
    """The findings of a DDP run on two GPUs, by code. It has none unless something is changed."""

    def find(
        measured_s: Sequence[float] = STEADY,
        rank: dict[str, Any] | None = None,
        others: float | None = None,
        **changes: Any,
    ) -> dict[str, str]:
        config = cpu_config(**{**CUDA, "steps": len(measured_s), **changes})
        warmup = (0.1,) * config.warmup_steps
        records = [rank_record(list(measured_s), warmup, rank=number) for number in range(2)]
        if rank is not None:
            # Rank 1 is the changed one, so it must be the one with the longer window to decide.
            values = {"window_s": records[1].window_s + 1e-9, **rank}
            records[1] = rank_record(list(measured_s), warmup, rank=1, **values)
        found = findings_of(MeasuredRun(config, records, summarize(config, records, others)))
        assert len({finding.code for finding in found}) == len(found)
        return {finding.code: finding.message for finding in found}

    return find


Find = Callable[..., dict[str, str]]


def test_a_clean_run_on_gpus_has_no_findings(findings: Find) -> None:
    assert findings() == {}


def test_every_cpu_run_is_a_smoke_test(findings: Find) -> None:
    assert findings(device_type="cpu") == {
        "cpu-smoke": "CPU rows are smoke tests of the tool, not a forecast for GPUs"
    }


def test_dp_on_one_device_is_named(findings: Find) -> None:
    found = findings(mode="dp", effective_mode="passthrough", num_devices=1, world_size=1)
    assert found == {
        "dp-passthrough": "dp on one device just calls the module; use --gpus 2 or more"
    }


def test_oversubscription_is_named(findings: Find) -> None:
    assert findings(effective_mode="oversubscribed") == {
        "oversubscribed": "several replicas shared a GPU: this tests the code, and measures nothing"
    }


def test_no_warm_up_is_named_in_every_mode(findings: Find) -> None:
    for mode in ("single", "dp", "ddp"):
        found = findings(mode=mode, effective_mode=mode, warmup_steps=0)
        assert list(found) == ["no-warmup"]
        assert "--warmup-steps 20" in found["no-warmup"]


@pytest.mark.parametrize(
    ("mode", "warmup_steps", "codes"),
    [
        ("ddp", 1, ["short-warmup"]),
        ("ddp", 11, ["short-warmup"]),
        ("ddp", 12, []),
        ("dp", 1, []),
        ("single", 1, []),
    ],
)
def test_ddp_on_gpus_needs_12_steps_of_warm_up(
    findings: Find, mode: str, warmup_steps: int, codes: list[str]
) -> None:
    found = findings(mode=mode, effective_mode=mode, warmup_steps=warmup_steps)
    assert list(found) == codes
    for message in found.values():
        assert message.startswith(f"{warmup_steps} warm-up steps;")
        assert message.endswith(
            "are alike only after 12; use --warmup-steps 20, or leave the option out"
        )


@pytest.mark.parametrize(("workers", "steps"), [(1, 20), (4, 20), (16, 64)])
def test_all_findings_about_warm_up_advise_the_same_in_every_mode(
    findings: Find, workers: int, steps: int
) -> None:
    """dp has one loader with the workers of both devices, and ddp two."""
    advice = set()
    for mode, processes in (("dp", 1), ("ddp", 2)):
        for warmup_steps in (0, 1):
            found = findings(
                mode=mode,
                effective_mode=mode,
                world_size=processes,
                data="photos",
                workers_per_device=workers,
                workers_per_rank=workers * 2 // processes,
                warmup_steps=warmup_steps,
            )
            assert {"no-warmup", "short-warmup", "short-lead-in"} & set(found)
            advice |= {re.findall(r"--warmup-steps (\d+)", text)[0] for text in found.values()}
    assert advice == {str(steps)}


def test_a_short_warm_up_on_a_cpu_has_no_finding(findings: Find) -> None:
    assert list(findings(device_type="cpu", warmup_steps=1)) == ["cpu-smoke"]


@pytest.mark.parametrize("sign", [1, -1])
def test_clocks_may_differ_by_1_percent(findings: Find, sign: int) -> None:
    within = {"host_span_s": 10.0, "clock_span_s": 10.0 + sign * 0.099}
    beyond = {"host_span_s": 10.0, "clock_span_s": 10.0 + sign * 0.101}
    assert findings(rank=within) == {}
    found = findings(rank=beyond)
    assert list(found) == ["clock-mismatch"]
    assert "differ by 1.0 % of the time (limit 1.0 %)" in found["clock-mismatch"]


def test_clocks_may_always_differ_by_a_millisecond(findings: Find) -> None:
    within = {"host_span_s": 0.007, "clock_span_s": 0.0061}
    assert findings(rank=within) == {}
    beyond = {"host_span_s": 0.007, "clock_span_s": 0.0059}
    assert list(findings(rank=beyond)) == ["clock-mismatch"]


def test_a_short_rank_does_not_hide_another(rank_record: MakeRank, cpu_config: MakeConfig) -> None:
    short = rank_record([1.0], host_span_s=0.010, clock_span_s=0.0095)
    long = rank_record([1.0], host_span_s=10.0, clock_span_s=10.2)
    found = findings_of(MeasuredRun(cpu_config(), [short, long], Figures()))
    assert "differ by 2.0 % of the time" in next(
        finding.message for finding in found if finding.code == "clock-mismatch"
    )


def test_the_clocks_of_every_rank_are_compared(findings: Find) -> None:
    # Rank 1 has the shorter window here, and does not decide.
    found = findings(rank={"window_s": 9.0, "host_span_s": 10.0, "clock_span_s": 12.5})
    assert list(found) == ["clock-mismatch"]
    assert "differ by 25.0 % of the time" in found["clock-mismatch"]


def test_disagreement_is_a_share_of_the_hosts_span(rank_record: MakeRank) -> None:
    assert clock_disagreement(rank_record([1.0], clock_span_s=3.0, host_span_s=4.0)) == 0.25


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), float("-inf")])
def test_a_loss_that_is_no_number_is_named_with_its_rank(findings: Find, loss: float) -> None:
    found = findings(rank={"final_loss": loss})
    assert list(found) == ["loss-not-finite"]
    assert f"the loss of rank 1 ended as {loss}:" in found["loss-not-finite"]


def test_data_wait_may_take_5_percent_of_the_window(findings: Find) -> None:
    def waiting(share: float) -> dict[str, Any]:
        # Binary fractions, so that the share is exact: a window of 64 s in 64 steps.
        return {
            "window_s": 64.0 + 2**-20,
            "data_waits_s": [9.0] * 20 + [share] * 64,
        }

    seconds = [1.0] * 64
    assert findings(seconds, rank=waiting(0.05)) == {}
    found = findings(seconds, rank=waiting(0.051), workers_per_device=3)
    assert list(found) == ["loader-bound"]
    message = found["loader-bound"]
    assert message.startswith("5.1 % of the window was spent waiting for data (limit 5.0 %)")
    assert "with 3 loader workers per device" in message
    assert "--workers-per-gpu" in message


@pytest.mark.parametrize(
    ("loader_step_s", "codes"),
    [(0.1, []), (0.89, []), (0.91, ["loader-bound"]), (1.5, ["loader-bound"])],
)
def test_a_host_that_waits_ahead_of_its_gpus_is_no_bound(
    findings: Find, loader_step_s: float, codes: list[str]
) -> None:
    """The loader alone must be no faster than the run, whose steps take a second."""
    waiting = {"data_waits_s": [0.6] * 84, "loader_step_s": loader_step_s}
    found = findings([1.0] * 64, rank=waiting, data="photos")
    assert list(found) == codes
    for message in found.values():
        assert message.startswith("60.0 % of the window was spent waiting for data")
        assert "the loader alone takes" in message
        assert "ms for a step of 1000 ms" in message


@pytest.mark.parametrize(("share", "codes"), [(None, []), (0.2, []), (0.201, ["busy-machine"])])
def test_other_processes_may_take_20_percent_of_the_cpu_time(
    findings: Find, share: float | None, codes: list[str]
) -> None:
    found = findings(others=share)
    assert list(found) == codes
    if codes:
        assert "other processes took 20.1 % of the CPU time (limit 20.0 %)" in found["busy-machine"]


def lost(share: float) -> list[float]:
    """Step times of which one stalls, for that share of the window of about 10 s."""
    steady = [0.1 * math.exp(0.001 * (-1) ** i) for i in range(98)] + [0.1]
    return [*steady, 0.1 + share * (sum(steady) + 0.1) / (1 - share)]


def test_stalled_steps_may_take_1_percent_of_the_window(findings: Find) -> None:
    assert findings(lost(0.0099)) == {}
    found = findings(lost(0.0101))
    assert list(found) == ["stalls"]
    assert found["stalls"].startswith("1.0 % of the window was lost in steps that took far longer")
    assert "(limit 1.0 %): steps.csv shows which" in found["stalls"]


def test_one_step_of_a_hundred_medians_is_a_stall_that_the_median_does_not_show(
    findings: Find,
) -> None:
    """It halves the throughput."""
    found = findings([0.1] * 99 + [10.0])
    assert list(found) == ["stalls"]
    assert found["stalls"].startswith("49.7 % of the window was lost")


def test_stalls_are_those_of_the_rank_whose_window_decides(
    rank_record: MakeRank, cpu_config: MakeConfig
) -> None:
    config = cpu_config(**{**CUDA, "steps": 100, "warmup_steps": 0})
    stalled = rank_record([0.1] * 99 + [10.0], rank=0)
    slower, faster = (rank_record([step_s] * 100, rank=1) for step_s in (0.2, 0.19))
    for ranks, codes in (([stalled, slower], []), ([stalled, faster], ["stalls"])):
        run = MeasuredRun(config, ranks, summarize(config, ranks))
        found = [finding.code for finding in findings_of(run) if finding.code == "stalls"]
        assert found == codes


def test_a_long_warm_up_step_is_no_stall(findings: Find) -> None:
    assert findings(STEADY, rank={"step_times_s": [30.0] + [0.1] * 119}) == {}


@pytest.mark.parametrize(
    ("step_s", "codes"), [(0.01, []), (0.00999, ["short-window"]), (0.004, ["short-window"])]
)
def test_a_window_on_gpus_takes_at_least_a_second(
    findings: Find, step_s: float, codes: list[str]
) -> None:
    found = findings([step_s] * 100)
    assert list(found) == codes
    if step_s == 0.004:
        assert "the window took 0.4 s" in found["short-window"]
        assert found["short-window"].endswith("use --steps 250")


def test_a_short_window_on_a_cpu_has_no_finding(findings: Find) -> None:
    assert list(findings([0.001] * 100, device_type="cpu")) == ["cpu-smoke"]


def test_several_findings_are_listed_in_order(findings: Find) -> None:
    found = findings(
        lost(0.5),
        device_type="cpu",
        warmup_steps=0,
        rank={
            "window_s": 30.0,
            "host_span_s": 8.0,
            "clock_span_s": 9.0,
            "final_loss": float("nan"),
            "data_waits_s": list(itertools.repeat(0.05, 100)),
        },
    )
    assert list(found) == [
        "cpu-smoke", "no-warmup", "clock-mismatch", "stalls", "loader-bound", "loss-not-finite",
    ]  # fmt: skip


def test_a_finding_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Finding("a", "b").code = "c"  # type: ignore[misc]


def test_images_that_were_skipped_are_counted_and_three_are_named(findings: Find) -> None:
    remarks = tuple(Remark("bad", f"{name}.jpg") for name in "eadbc")
    assert findings(rank={"remarks": remarks}) == {
        "bad-images": "5 images could not be read and had to be replaced by others: a.jpg, b.jpg, "
        "c.jpg and 2 more"
    }


def test_a_huge_image_is_named(findings: Find) -> None:
    assert findings(rank={"remarks": (Remark("huge", "a.png"),)}) == {
        "huge-images": "1 image of more than 89 million pixels, which take long to decode: a.png"
    }


def compiling(**changes: Any) -> dict[str, Any]:
    values = {"first_pass_s": 9.0, "graphs": 1, "recompiles": 0, "graph_breaks": 0}
    return {"compiling": Compiling(**{**values, **changes})}


def test_a_model_that_was_compiled_whole_and_once_has_no_findings(findings: Find) -> None:
    assert findings(rank=compiling()) == {}


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"graphs": 0}, "not-compiled", "compiled nothing"),
        ({"recompiles": 1}, "recompiled", "1 graph compiled again after the first pass"),
        ({"graph_breaks": 2}, "graph-breaks", "2 places where the model leaves"),
    ],
)
def test_problems_of_torch_compile_are_named(
    findings: Find, changes: dict[str, int], code: str, words: str
) -> None:
    found = findings(rank=compiling(**changes), compiled="graphs" in changes)
    assert list(found) == [code]
    assert words in found[code]


def test_every_kind_has_a_code_of_its_own_and_an_explanation() -> None:
    parts = (work, timing, gpus, steadiness, data, mixed)
    kinds = [kind for part in parts for kind in part.KINDS]
    assert list(KINDS) == [kind.code for kind in kinds]
    assert list(KINDS.values()) == kinds
    for kind in kinds:
        assert re.fullmatch("[a-z-]+", kind.code)
        assert kind.meaning.endswith((".", "?"))
        assert kind.remedy.endswith(".")


def test_kinds_about_several_runs_have_no_check_of_a_single_one() -> None:
    about_several = {*mixed.MIXED_IN_ROW, mixed.UNEQUAL_LOADERS, mixed.SUPERLINEAR}
    about_several |= {steadiness.NOT_STEADY}
    assert {code for code, kind in KINDS.items() if kind.check is no_check} == about_several


@pytest.mark.parametrize(
    ("code", "has_note"),
    [("cpu-smoke", True), ("not-steady", False), ("code-of-a-newer-version", False)],
)
def test_a_table_has_one_note_for_what_all_its_rows_have_alike(code: str, has_note: bool) -> None:
    assert has_table_note(code) is has_note


def test_the_memory_format_that_dp_loses_on_gpus_is_named(findings: Find) -> None:
    dp = {"mode": "dp", "effective_mode": "dp", "world_size": 1, "channels_last": True}
    assert list(findings(**dp)) == ["channels-last-lost"]
    assert findings(**{**dp, "num_devices": 1}) == {}
    assert findings(channels_last=True) == {}
    assert "channels-last-lost" not in findings(**{**dp, "device_type": "cpu"})
