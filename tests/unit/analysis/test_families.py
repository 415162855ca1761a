"""What a row is divided by, and which verdicts hold together."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from scipy import stats as scipy_stats

from mgpubench.analysis.compare import compare
from mgpubench.analysis.row import Baseline, Row, Versus, parse_baseline
from mgpubench.results.schema import RunRecord
from tests.conftest import make_run_record as run

MARGIN = 0.02
COUNTS = (2, 4, 8, 16, 32, 64)


def rounds(mode: str, rate: float, number: int = 6, **changes: Any) -> list[RunRecord]:
    """Some rounds with noise that is not the same for any two rows."""
    rng = random.Random(f"{mode} {rate} {sorted(changes.items())}")
    return [
        run(mode, rate * math.exp(rng.gauss(0.0, 0.01)), round=index + 1, **changes)
        for index in range(number)
    ]


def rows_of(records: Sequence[RunRecord], baseline: str | None = None) -> list[Row]:
    return compare(records, parse_baseline(baseline) if baseline else None, MARGIN)


def ddp_rows(records: Sequence[RunRecord], baseline: str | None = None) -> list[Row]:
    return [row for row in rows_of(records, baseline) if row.mode == "ddp"]


def confidence(versus: Versus | None) -> float | None:
    assert versus is not None
    assert versus.comparison is not None
    return versus.comparison.confidence


# Families.


@pytest.mark.parametrize("rows", [1, 2, 3, 6])
def test_the_intervals_of_a_table_have_the_confidence_that_makes_its_verdicts_hold_together(
    rows: int,
) -> None:
    """Bonferroni: 95 %, 97.5 %, 98.33 % ... ; with one row 95 % as it stands."""
    single = rounds("single", 100.0)
    records = [*single, *(r for n in COUNTS[:rows] for r in rounds("ddp", 90.0 * n, num_devices=n))]
    for row in ddp_rows(records):
        versus = row.versus_baseline
        assert confidence(versus) == 1 - 0.05 / rows
        mine = {r.round: r for r in records if r.num_devices == row.num_devices and r.mode == "ddp"}
        logs = [
            math.log(mine[r.round].throughput_samples_per_s / r.throughput_samples_per_s)
            for r in single
        ]
        low, high = scipy_stats.ttest_1samp(logs, 0.0).confidence_interval(1 - 0.05 / rows)
        assert versus is not None
        assert versus.interval == pytest.approx((math.exp(low), math.exp(high)))


ALONE = [*rounds("single", 100.0), *rounds("ddp", 180.0)]


@pytest.mark.parametrize(
    "more",
    [
        [run("dp", None, status="failed")],
        rounds("dp", 150.0, number=4),  # too few rounds for an interval
        rounds("dp", 150.0, session_id="s2"),  # unpaired
        rounds("dp", 150.0, sitting=2),
        rounds("dp", 100.0, num_devices=1, effective_mode="passthrough"),
        rounds("dp", 150.0, effective_mode="oversubscribed"),
        rounds("dp", 150.0, steps=9),  # other work
    ],
    ids=[
        "failed",
        "few",
        "other session",
        "other sitting",
        "passthrough",
        "oversubscribed",
        "work",
    ],
)
def test_a_row_that_cannot_get_a_verdict_does_not_widen_the_intervals_of_the_others(
    more: list[RunRecord],
) -> None:
    [ddp] = ddp_rows([*ALONE, *more])
    [alone] = ddp_rows(ALONE)
    assert ddp.versus_baseline == alone.versus_baseline
    assert confidence(ddp.versus_baseline) == 0.95


def test_rows_of_three_sessions_can_decide_with_any_number_of_rounds() -> None:
    records = [
        record
        for name in ("s1", "s2", "s3")
        for mode, rate in (("single", 100.0), ("dp", 150.0), ("ddp", 180.0))
        for record in rounds(mode, rate, number=2, session_id=name)
    ]
    [ddp] = ddp_rows(records)
    assert confidence(ddp.versus_baseline) == 0.975


def test_ddp_against_dp_is_a_family_of_its_own() -> None:
    """Three rows against single at 98.33 %, one against dp at 95 %."""
    records = [*ALONE, *rounds("dp", 150.0), *rounds("ddp", 350.0, num_devices=4)]
    small, large = ddp_rows(records)
    assert confidence(small.versus_baseline) == 1 - 0.05 / 3
    assert confidence(small.versus_dp) == 0.95
    assert large.versus_dp is None
    both = [*records, *rounds("dp", 300.0, num_devices=4)]
    assert [confidence(row.versus_dp) for row in ddp_rows(both)] == [0.975, 0.975]
    assert confidence(ddp_rows(both)[0].versus_baseline) == 1 - 0.05 / 4


def test_rows_of_dp_are_not_in_the_family_of_ddp_against_dp() -> None:
    records = [*ALONE, *rounds("dp", 150.0), *rounds("dp", 155.0, options="cudnn_benchmark=true")]
    [ddp] = ddp_rows(records)
    assert confidence(ddp.versus_dp) == 0.95
    assert confidence(ddp.versus_baseline) == 1 - 0.05 / 3


def test_where_dp_is_the_baseline_there_is_one_comparison_with_one_interval() -> None:
    records = [*ALONE, *rounds("dp", 150.0)]
    [ddp] = ddp_rows(records, "dp")
    assert ddp.versus_baseline is ddp.versus_dp
    assert confidence(ddp.versus_dp) == 0.95
    [without_single] = ddp_rows(records[6:])
    assert without_single.versus_baseline is without_single.versus_dp


def test_a_table_of_two_devices_and_another_of_four_are_two_families() -> None:
    """Groups of other work are other tables."""
    others = [replace(record, steps=9) for record in ALONE]
    assert [confidence(row.versus_baseline) for row in ddp_rows([*ALONE, *others])] == [0.95, 0.95]


def test_a_verdict_of_one_row_can_become_undecided_in_a_larger_table() -> None:
    """Its t is 3.0, where one row needs 2.57 and each of five rows 4.03."""
    steps = [0.02 + 0.0149 * sign for sign in (1, -1, 1, -1, 1, -1)]
    pairs = [(run("single", round=n), math.exp(step)) for n, step in enumerate(steps, start=1)]
    close = [record for record, _ in pairs]
    close += [run("ddp", 100.0 * ratio, round=record.round) for record, ratio in pairs]
    more = [r for n in COUNTS[1:5] for r in rounds("ddp", 90.0 * n, num_devices=n)]
    alone, first = ddp_rows(close)[0].versus_baseline, ddp_rows([*close, *more])[0].versus_baseline
    assert alone is not None
    assert first is not None
    assert (alone.verdict, first.verdict) == ("faster", "undecided")
    assert alone.ratio == first.ratio


# Baselines.


@pytest.mark.parametrize(
    ("text", "baseline"),
    [
        ("single", Baseline(mode="single")),
        ("ddp", Baseline(mode="ddp")),
        ("ddp/", Baseline(mode="ddp", options="")),
        ("ddp/bucket_cap_mb=50", Baseline(mode="ddp", options="bucket_cap_mb=50")),
        (
            "ddp/bucket_cap_mb=50;env:A=b/c",
            Baseline(mode="ddp", options="bucket_cap_mb=50;env:A=b/c"),
        ),
        ("cap50", Baseline(variant="cap50")),
        ("fsdp", Baseline(mode="fsdp")),
        ("zero", Baseline(variant="zero")),
    ],
)
def test_a_baseline_is_a_mode_a_mode_with_options_or_a_variant(
    text: str, baseline: Baseline
) -> None:
    assert parse_baseline(text) == baseline
    assert baseline.name == text


OPTIONS = [
    *rounds("ddp", 180.0),
    *rounds("ddp", 190.0, options="bucket_cap_mb=50"),
    *rounds("ddp", 171.0, options="static_graph=true"),
]


def ratios(records: Sequence[RunRecord], baseline: str) -> dict[str, float | None]:
    return {
        row.options: row.versus_baseline and row.versus_baseline.ratio
        for row in ddp_rows(records, baseline)
    }


def test_two_option_rows_of_one_mode_meet() -> None:
    """The one without options is the baseline, and the others are divided by it."""
    found = ratios(OPTIONS, "ddp")
    assert found[""] is None
    assert found["bucket_cap_mb=50"] == pytest.approx(190 / 180, rel=0.02)
    assert found["static_graph=true"] == pytest.approx(171 / 180, rel=0.02)


def test_a_baseline_with_options_is_that_row() -> None:
    found = ratios(OPTIONS, "ddp/bucket_cap_mb=50")
    assert found["bucket_cap_mb=50"] is None
    assert found[""] == pytest.approx(180 / 190, rel=0.02)
    assert found["static_graph=true"] == pytest.approx(171 / 190, rel=0.02)
    row = ddp_rows(OPTIONS, "ddp/bucket_cap_mb=50")[0]
    assert row.versus_baseline is not None
    assert row.versus_baseline.baseline == "ddp/bucket_cap_mb=50"
    assert confidence(row.versus_baseline) == 0.975


def test_without_a_row_that_has_no_options_the_first_is_the_baseline() -> None:
    found = ratios(OPTIONS[6:], "ddp")
    assert found["bucket_cap_mb=50"] is None
    assert found["static_graph=true"] == pytest.approx(171 / 190, rel=0.02)


def test_option_rows_are_divided_by_the_mode_of_the_baseline() -> None:
    """Each ddp row by the only single, as long as there is one."""
    rows = ddp_rows([*rounds("single", 100.0), *OPTIONS])
    assert {row.versus_baseline.baseline for row in rows if row.versus_baseline} == {"single"}
    assert {confidence(row.versus_baseline) for row in rows} == {1 - 0.05 / 3}


def test_options_that_no_row_has_are_no_baseline() -> None:
    versus = [row.versus_baseline for row in ddp_rows(OPTIONS, "ddp/bucket_cap_mb=7")]
    assert [each and each.comparison for each in versus] == [None, None, None]


def test_the_same_options_are_preferred_in_another_mode() -> None:
    records = [
        *rounds("dp", 100.0),
        *rounds("dp", 200.0, options="cudnn_benchmark=true"),
        *rounds("ddp", 300.0, options="cudnn_benchmark=true"),
        *rounds("ddp", 300.0, options="static_graph=true"),
    ]
    found = ratios(records, "dp")
    assert found["cudnn_benchmark=true"] == pytest.approx(1.5, rel=0.02)
    assert found["static_graph=true"] == pytest.approx(3.0, rel=0.02)


# Variants.


def variant(name: str, number: int, rates: dict[str, float], **changes: Any) -> list[RunRecord]:
    return [
        record
        for mode, rate in rates.items()
        for record in rounds(mode, rate, variant=name, variant_number=number, **changes)
    ]


VARIANTS = [
    *variant("zero", 1, {"single": 100.0, "ddp": 180.0}),
    *variant("cap50", 2, {"single": 101.0, "ddp": 190.0}, options="bucket_cap_mb=50"),
    *variant("other", 3, {"single": 99.0, "ddp": 171.0}),
]


def by_variant(records: Sequence[RunRecord], baseline: str | None = None) -> dict[Any, Versus]:
    return {
        (row.variant, row.mode): row.versus_baseline
        for row in rows_of(records, baseline)
        if row.versus_baseline
    }


def test_variants_are_compared_with_the_first_one_in_each_mode() -> None:
    """The first on the command line, and not in the alphabet."""
    versus = by_variant(VARIANTS)
    assert {each.baseline for each in versus.values()} == {"zero"}
    assert set(versus) == {(v, m) for v in ("cap50", "other") for m in ("single", "ddp")}
    assert versus["cap50", "ddp"].ratio == pytest.approx(190 / 180, rel=0.02)
    assert versus["other", "single"].ratio == pytest.approx(99 / 100, rel=0.02)
    assert {confidence(each) for each in versus.values()} == {1 - 0.05 / 4}


def test_any_variant_can_be_the_baseline() -> None:
    versus = by_variant(VARIANTS, "cap50")
    assert set(versus) == {(v, m) for v in ("zero", "other") for m in ("single", "ddp")}
    assert versus["zero", "ddp"].ratio == pytest.approx(180 / 190, rel=0.02)


def test_a_mode_as_baseline_is_that_of_the_same_variant() -> None:
    versus = by_variant(VARIANTS, "single")
    assert set(versus) == {(v, "ddp") for v in ("zero", "cap50", "other")}
    assert versus["cap50", "ddp"].ratio == pytest.approx(190 / 101, rel=0.02)
    speedups = {row.variant: row.speedup for row in rows_of(VARIANTS) if row.mode == "ddp"}
    assert speedups["cap50"] == pytest.approx(190 / 101, rel=0.02)


def test_ddp_is_compared_with_dp_of_the_same_variant() -> None:
    records = [*VARIANTS, *variant("zero", 1, {"dp": 150.0}), *variant("cap50", 2, {"dp": 100.0})]
    found = {row.variant: row.versus_dp for row in rows_of(records) if row.mode == "ddp"}
    assert found["zero"] is not None
    assert found["cap50"] is not None
    assert found["zero"].ratio == pytest.approx(180 / 150, rel=0.02)
    assert found["cap50"].ratio == pytest.approx(190 / 100, rel=0.02)
    assert found["other"] is None


def test_a_first_variant_that_failed_is_no_baseline() -> None:
    failed = [replace(r, status="failed", throughput_samples_per_s=None) for r in VARIANTS[:12]]
    versus = by_variant([*failed, *VARIANTS[12:]])
    assert {each.baseline for each in versus.values()} == {"cap50"}


def test_equal_variants_are_compared_with_each_other() -> None:
    """An A/A test."""
    records = [*variant("aa-1", 1, {"ddp": 180.0}), *variant("aa-2", 2, {"ddp": 180.0})]
    [(key, versus)] = by_variant(records).items()
    assert key == ("aa-2", "ddp")
    assert confidence(versus) == 0.95
    assert versus.comparison is not None
    assert versus.comparison.noise_floor is not None
    assert versus.verdict not in ("faster", "slower")


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([run("dp"), run("ddp"), run("single")], "single"),
        ([run("dp"), run("ddp")], "dp"),
        ([run("ddp")], ""),
        ([run("single", None, status="failed"), run("dp"), run("ddp")], "dp"),
    ],
)
def test_the_default_baseline_is_single_or_else_dp(records: list[RunRecord], expected: str) -> None:
    [ddp] = ddp_rows(records)
    assert ddp.versus_baseline is not None
    assert ddp.versus_baseline.baseline == expected
