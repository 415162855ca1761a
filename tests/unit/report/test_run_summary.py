"""What `run` prints: the plan before, the comparison and the steps after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpubench.config.machine_facts import Machine
from mgpubench.config.plan import make_plan
from mgpubench.config.request import Request
from mgpubench.report.run_summary import STEPS_TITLE, print_runs, print_summary
from mgpubench.results.schema import RunRecord
from tests.conftest import make_run_record

GIB = 2**30
FOLDER = Path("results") / "s1"
RULE = "\u2500"


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich looks at the environment even if the output is no terminal."""
    for name in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def record(mode: str, devices: int, throughput: float | None, **changes: Any) -> RunRecord:
    return make_run_record(mode, throughput, num_devices=devices, **changes)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was printed, without the spaces at the ends of lines."""
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def steps_table(printed: list[str]) -> list[str]:
    """The second table."""
    return printed[printed.index(STEPS_TITLE) + 1 :]


def test_the_plan_is_a_table_in_the_order_of_the_runs(
    capsys: pytest.CaptureFixture[str], machine: Callable[..., Machine]
) -> None:
    request = Request(gpus=(8,), global_batch=16, rounds=1, steps=30, model="resnet18")
    plan = make_plan(request, machine(8))
    by_label = {run.label: run for run in plan.runs}
    runs = [by_label[label] for label in ("ddp x8", "single x1", "dp x8")]
    ordered = [replace(run, position=place) for place, run in enumerate(runs, start=1)]
    print_runs(ordered)
    assert lines(capsys) == [
        "3 runs of resnet18, 224 px, synthetic, strong scaling: 20 warm-up and 30 measured steps",
        "                             batch per  global",
        "run  round  mode    devices     device   batch  steps",
        RULE * 53,
        "  1      1  ddp           8          2      16     50",
        "  2      1  single        1         16      16     50",
        "  3      1  dp            8          2      16     50",
    ]


RECORDS = [
    record(
        *("dp", 2, 120.0),
        window_s=10.0,
        data_wait_s=0.5,
        step_time_median_s=0.1,
        step_time_p95_s=0.15,
        peak_memory_bytes=f"{3 * GIB};{1 * GIB}",
    ),
    record(
        *("dp", 2, 100.0),
        window_s=10.0,
        data_wait_s=1.0,
        step_time_median_s=0.12,
        step_time_p95_s=0.17,
        peak_memory_bytes=f"{2 * GIB};{2 * GIB}",
    ),
    record(*("dp", 2, 110.0), window_s=10.0, data_wait_s=0.2, step_time_median_s=0.11),
    record("dp", 2, None, status="failed", step_time_median_s=99.0, peak_memory_bytes=f"{9 * GIB}"),
    record("ddp", 2, None, status="failed"),
    record(
        *("single", 1, 60.0),
        window_s=8.0,
        data_wait_s=0.0,
        step_time_median_s=0.0123456,
        step_time_p95_s=1.5,
        step_time_p99_s=2.0,
    ),
]


def test_the_load_of_each_device_is_shown_if_it_is_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The highest peaks and the mean use over the runs; 800 samples are 400 for each device."""
    load = {
        "samples": 800,
        "peak_memory_bytes": f"{3 * GIB};{GIB}",
        "peak_reserved_bytes": f"{4 * GIB};{2 * GIB}",
    }
    runs = [
        record("dp", 2, 100.0, **load, gpu_utilization_per_device="0.900;0.500"),
        record("dp", 2, 100.0, **load, gpu_utilization_per_device="0.800;"),
        record("dp", 2, 100.0, **load),
    ]
    print_summary(runs, FOLDER)
    header, names, _, row = steps_table(lines(capsys))
    assert header.split()[-7:] == ["samples", "peak", "GiB", "reserved", "GiB", "GPU", "use"]
    assert names.split()[-8:] == ["per", "device"] * 4
    assert row.split()[-7:] == ["400", "3.00", "1.00", "4.00", "2.00", "85%", "50%"]


def test_steps_are_medians_and_peaks_maxima_over_the_runs_that_succeeded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_summary(RECORDS, FOLDER)
    assert steps_table(lines(capsys)) == [
        "                 step ms  step ms  step ms               peak GiB",
        "mode    devices   median      p95      p99  data wait  per device",
        RULE * 65,
        "single        1    12.35     1500     2000      0.0 %           -",
        "dp            2    110.0    160.0        -      5.0 %   3.00 2.00",
        "ddp           2        -        -        -          -           -",
    ]


def test_the_comparison_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(RECORDS, FOLDER)
    printed = lines(capsys)
    before = printed[: printed.index(STEPS_TITLE)]
    assert before[0].startswith("resnet50, synthetic data, 224 px, tf32")
    assert before[-1] == ""
    assert any("total" in line for line in before)


def test_nothing_is_nan_and_nothing_is_coloured(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(RECORDS, FOLDER)
    text = capsys.readouterr().out
    assert "nan" not in text
    assert "\x1b" not in text


def test_a_plan_with_variants_has_a_column_for_them(
    capsys: pytest.CaptureFixture[str], machine: Callable[..., Machine]
) -> None:
    parts = tuple(
        Request(gpus=(2,), modes=("ddp",), variant=name, variant_number=number)
        for number, name in enumerate(("default", "cap50"), start=1)
    )
    plan = make_plan(Request(rounds=1, variants=parts, seed=0), machine(2))
    print_runs(plan.runs)
    printed = lines(capsys)
    assert "run  round  variant  mode" in printed[2]
    assert sorted(line.split()[2] for line in printed[4:]) == ["cap50", "default"]


def test_variants_are_rows_of_the_steps_too(capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        record(
            *("ddp", 2, 100.0),
            variant=name,
            variant_number=number,
            step_time_median_s=0.1 * number,
        )
        for number, name in enumerate(("default", "cap50"), start=1)
    ]
    print_summary(records, FOLDER)
    table = steps_table(lines(capsys))
    assert [row.split()[:4] for row in table[3:]] == [
        ["ddp", "default", "2", "100.0"],
        ["ddp", "cap50", "2", "200.0"],
    ]


def test_the_hint_names_the_folder_of_the_session(capsys: pytest.CaptureFixture[str]) -> None:
    """So that its command can be copied."""
    noise = [0.99, 1.013, 1.0, 0.995, 1.008]
    records = [
        record(mode, 2, 100.0 * step, round=number)
        for mode, steps in (("dp", noise), ("ddp", noise[::-1]))
        for number, step in enumerate(steps, start=1)
    ]
    print_summary(records, Path("results") / "my session")
    text = capsys.readouterr().out
    assert "mgpubench run --resume 'results/my session' --until decided" in text
