"""What `comm` prints and draws."""

from __future__ import annotations

import importlib.util

import pytest

from mgpubench.report.comm import print_collectives
from mgpubench.report.plots.comm import draw_collectives
from mgpubench.results.comm import CommRecord
from tests.unit.analysis.test_collectives import lines, record

HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None


def session(rounds: int) -> list[CommRecord]:
    latencies_s = [1e-3 + 1e-5 * number for number in range(rounds)]
    barriers = [
        record(number + 100, 5e-5, operation="barrier", size_bytes=None) for number in range(rounds)
    ]
    return [*lines(latencies_s, 1e6), *barriers]


def printed(capsys: pytest.CaptureFixture[str], records: list[CommRecord]) -> str:
    print_collectives(records)
    return capsys.readouterr().out


def test_the_tables_have_times_bandwidths_and_intervals(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = printed(capsys, session(5))
    rows = [line.split() for line in text.splitlines()]
    (first,) = (row for row in rows if row[:3] == ["all-reduce", "4", "1000"])
    assert first[3:6] == ["B", "5", "2020"]
    low, high = first[6].split("..")
    assert float(low) < 2020 < float(high)
    assert first[7:9] == ["0.0004951", "0.0007426"]
    (barrier,) = (row for row in rows if row[:2] == ["barrier", "4"])
    assert barrier[2:5] == ["-", "5", "50.00"]
    assert barrier[-3:] == ["-", "-", "-"]
    (fit,) = (row for row in rows if row[:3] == ["all-reduce", "4", "1020"])
    assert fit[4] == "0.001000"
    assert "no intervals" not in text


def test_few_rounds_have_no_intervals_and_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, session(1))
    assert "CI" not in text
    assert "no intervals: they need 5 rounds" in text
    assert "every result was checked" in text
    assert "no forecast for GPUs" in text


def test_a_step_of_ddp_is_the_sum_over_all_buckets(capsys: pytest.CaptureFixture[str]) -> None:
    buckets = [
        record(1, 2e-3, size_bytes=1024, buckets=3, model="mlp", backend="gloo"),
        record(1, 4e-3, size_bytes=2048, buckets=1, model="mlp", backend="gloo"),
    ]
    text = printed(capsys, buckets)
    assert "gloo, gradient buckets of mlp" in text.splitlines()[0].replace(", , ", ", ")
    assert "a step of ddp on 4 devices all-reduces the gradients of mlp, 5 KiB: 10 ms" in text


@pytest.mark.skipif(not HAS_MATPLOTLIB, reason="needs matplotlib (extra plot)")
@pytest.mark.parametrize("rounds", [1, 5])
def test_a_plot_names_every_operation_with_data(rounds: int) -> None:
    text = draw_collectives(session(rounds), "svg").decode()
    assert ">all-reduce x4<" in text
    assert ">time of a call (us)<" in text
    assert "barrier" not in text
    assert "mathdefault" not in text
