"""Every sentence that a comparison can say."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mgpubench.analysis.compare import compare
from mgpubench.analysis.row import Row, parse_baseline
from mgpubench.report.sentences import NO_FOLDERS, sentences_about
from mgpubench.results.schema import RunRecord
from tests.conftest import make_run_record as run

SINGLE = [100.0, 104.0, 97.0, 101.0, 99.0]
DP = [150.0, 157.0, 145.0, 152.0, 148.0]
DDP = [190.0, 198.5, 184.0, 192.0, 188.5]


def rounds(mode: str, throughputs: Sequence[float], **changes: Any) -> list[RunRecord]:
    return [run(mode, t, round=i + 1, **changes) for i, t in enumerate(throughputs)]


THREE_MODES = [*rounds("single", SINGLE), *rounds("dp", DP), *rounds("ddp", DDP)]


def rows_of(
    records: Sequence[RunRecord], baseline: str | None = None, margin: float = 0.02
) -> list[Row]:
    return compare(records, parse_baseline(baseline) if baseline else None, margin)


def said(
    records: Sequence[RunRecord],
    baseline: str | None = None,
    margin: float = 0.02,
    folders: Mapping[str, Path] = NO_FOLDERS,
) -> list[str]:
    return sentences_about(rows_of(records, baseline, margin), folders)


def around(base: Sequence[float], ratio: float, noise: Sequence[float]) -> list[float]:
    return [rate * ratio * math.exp(step) for rate, step in zip(base, noise, strict=True)]


NOISE = [0.007, -0.009, 0.004, -0.006, 0.005]
WIDE = [2 * step for step in NOISE]
"""At a ratio of 1.006 in five rounds: undecided, and 54 rounds would settle it."""
CLOSE = [*rounds("dp", DP), *rounds("ddp", around(DP, 1.006, WIDE))]


# ddp against dp.


def test_ddp_against_dp_has_an_answer_with_its_evidence() -> None:
    assert said(THREE_MODES)[0] == (
        "ddp against dp on 2 devices: 1.267x (95 % CI 1.262..1.273, 5 paired rounds of one "
        "session): faster"
    )


def test_equivalence_is_stated_with_its_margin() -> None:
    records = [*rounds("dp", DP), *rounds("ddp", [x * 1.001 for x in DP])]
    assert said(records, margin=0.005) == [
        "ddp against dp on 2 devices: 1.001x (95 % CI 1.001..1.001, 5 paired rounds of one "
        "session): equivalent within 0.5 %"
    ]


def test_an_undecided_answer_has_the_command_that_settles_it() -> None:
    [versus] = [row.versus_dp for row in rows_of(CLOSE) if row.versus_dp]
    needed = versus.rounds_needed
    assert needed == 54
    assert said(CLOSE, folders={"s1": Path("results/s1")})[-1].endswith(
        f"5 paired rounds of one session): undecided, about {needed} rounds would settle it: "
        f"mgpubench run --resume results/s1 --until decided --max-rounds {needed}"
    )
    assert said(CLOSE)[-1].endswith(f"--resume SESSION --until decided --max-rounds {needed}")


def test_the_command_names_the_session_that_has_both_sides() -> None:
    """Another session, the first by name, has dp alone."""
    records = [*CLOSE, *rounds("dp", DP, session_id="s0")]
    folders = {name: Path("results") / name for name in ("s0", "s1")}
    assert "--resume results/s1 --until decided" in said(records, folders=folders)[0]


def test_a_hopeless_comparison_promises_no_number_of_rounds() -> None:
    records = [*rounds("dp", [1.0, 100.0, 1.0, 90.0, 1.0]), *rounds("ddp", [99.0, 1.0, 90.0, 1, 1])]
    assert said(records)[-1].endswith("undecided, and more rounds would hardly settle it")


def test_no_more_rounds_are_recommended_than_are_sensible() -> None:
    records = [*rounds("dp", DP), *rounds("ddp", around(DP, 1.006, [2 * x for x in WIDE]))]
    [versus] = [row.versus_dp for row in rows_of(records) if row.versus_dp]
    assert (versus.rounds_needed or 0) > 100
    text = said(records)[-1]
    assert text.endswith(
        f"too noisy to settle here: it would take about {versus.rounds_needed} rounds"
    )
    assert "--rounds" not in text


def test_few_rounds_make_no_statement_of_confidence() -> None:
    """C50."""
    sentences = said([run("dp", 100.0), run("ddp", 117.0)])
    assert sentences == [
        "ddp against dp on 2 devices: 1.170x (1 paired round of one session): undecided, at least "
        "5 rounds are needed to tell (--rounds 6)"
    ]


def test_rounds_that_were_added_are_mentioned() -> None:
    records = [*rounds("dp", DP, rounds_added=0), *rounds("ddp", DDP, rounds_added=0)]
    assert re.fullmatch(
        r"ddp against dp on 2 devices: 1\.267x \(95 % CI 1\.\d{3}\.\.1\.\d{3}, 5 paired rounds of "
        r"one session, rounds were added\): faster",
        said(records)[0],
    )


def sessions(*ratios: float, noise: Sequence[float] = NOISE) -> list[RunRecord]:
    return [
        record
        for number, ratio in enumerate(ratios, start=1)
        for record in [
            *rounds("dp", DP, session_id=f"s{number}"),
            *rounds("ddp", around(DP, ratio, noise), session_id=f"s{number}"),
        ]
    ]


def test_an_answer_of_two_sessions_names_both_ratios() -> None:
    assert said(sessions(1.30, 1.31))[0] == (
        "ddp against dp on 2 devices: 1.305x (10 paired rounds in 2 sessions, 1.300x and 1.310x): "
        "faster in both sessions"
    )
    assert said(sessions(1.0002, 1.0004, noise=[x / 10 for x in NOISE]))[0].endswith(
        "equivalent within 2 % in both sessions"
    )


def test_two_sessions_that_do_not_agree_say_what_would_help() -> None:
    assert said(sessions(1.30, 1.0))[0].endswith(
        "undecided, since the two sessions do not give the same verdict; with 3 sessions there is "
        "an interval over all of them"
    )


def test_an_answer_of_three_sessions_has_an_interval_over_them() -> None:
    assert re.fullmatch(
        r"ddp against dp on 2 devices: 1\.310x \(95 % CI 1\.\d{3}\.\.1\.\d{3}, 15 paired rounds in "
        r"3 sessions\): faster",
        said(sessions(1.30, 1.31, 1.32))[0],
    )
    assert said(sessions(1.30, 1.0, 0.9))[0].endswith(
        "undecided, more sessions would narrow the interval"
    )


@pytest.mark.parametrize(
    "changes", [{"effective_mode": "oversubscribed"}, {"effective_mode": "passthrough"}], ids=str
)
def test_what_does_not_measure_the_technique_has_no_verdict(changes: dict[str, Any]) -> None:
    records = [*rounds("dp", DP, **changes), *rounds("ddp", DDP)]
    assert said(records)[0].endswith("no verdict for passthrough or oversubscribed devices")


# Against the baseline.


def test_the_hardest_of_several_undecided_rows_has_the_hint() -> None:
    records = [
        *rounds("single", SINGLE),
        *rounds("dp", around(SINGLE, 1.006, WIDE)),
        *rounds("ddp", around(SINGLE, 1.006, [0.8 * x for x in WIDE[::-1]])),
    ]
    needed = [row.versus_baseline.rounds_needed for row in rows_of(records)[1:]]  # type: ignore[union-attr]
    assert None not in needed
    assert needed[0] > needed[1]
    hints = [text for text in said(records) if text.startswith("undecided against single: ")]
    assert len(hints) == 1
    assert f"about {needed[0]} rounds" in hints[0]


def test_with_another_margin_the_hint_names_a_number_of_rounds() -> None:
    """`run --until decided` knows the default margin only."""
    (text,) = said(CLOSE, margin=0.021)
    assert "--until" not in text
    assert re.search(r"about (\d+) rounds would settle it: mgpubench run .* --rounds \1$", text)


def test_only_the_default_baseline_is_what_until_decides() -> None:
    named = rows_of(THREE_MODES, "ddp")
    assert [row.versus_baseline.is_default for row in named if row.versus_baseline] == [False] * 2
    rows = rows_of(THREE_MODES, "single")
    assert all(row.versus_baseline.is_default for row in rows if row.versus_baseline)


def test_what_no_number_of_rounds_would_settle_is_harder_than_any_number() -> None:
    records = [
        *rounds("single", SINGLE),
        *rounds("dp", [1.0, 9000.0, 1.0, 9000.0, 90.0]),
        *rounds("ddp", around(SINGLE, 1.006, WIDE)),
    ]
    assert "undecided against single: and more rounds would hardly settle it" in said(records)


def test_a_hint_is_not_given_twice_for_one_comparison() -> None:
    """Against dp as the baseline the answer already says it."""
    assert len(said(CLOSE)) == 1


def test_all_rows_decided_have_no_hint() -> None:
    assert not [text for text in said(THREE_MODES) if text.startswith("undecided")]


def test_several_verdicts_that_hold_together_are_explained() -> None:
    assert said(THREE_MODES)[-1] == (
        "the verdicts against single are all right at once in 95 % of tables, so each interval is "
        "wider; ddp against dp holds by itself"
    )
    assert not [text for text in said(CLOSE) if "all right at once" in text]


def test_ddp_against_dp_is_mentioned_only_if_there_is_such_a_row() -> None:
    records = [
        *rounds("single", SINGLE),
        *(record for count in (2, 4) for record in rounds("ddp", DDP, num_devices=count)),
    ]
    assert said(records)[-1] == (
        "the verdicts against single are all right at once in 95 % of tables, so each interval is "
        "wider"
    )


# Unpaired.


def test_an_unpaired_variant_is_told_to_resume_since_its_row_has_no_command() -> None:
    records = [
        *rounds("ddp", DP, variant="a", variant_number=1),
        *rounds("ddp", DDP, variant="b", variant_number=2, sitting=2),
    ]
    (text,) = said(records)
    assert text.startswith("no verdict for ")
    assert text.endswith("; mgpubench run --resume repeats their rounds as a whole")


def test_an_unpaired_ratio_has_its_reason_and_the_command_that_gives_a_verdict() -> None:
    records = [*rounds("dp", DP), *rounds("ddp", DDP, session_id="s2")]
    assert said(records) == [
        "no verdict for ddp on 2 devices: no round ran both in one call, and the same machine "
        "may differ by several percent from hour to hour; to get one: mgpubench run --mode dp,ddp "
        "--gpus 2 --image-size 224 --precision tf32"
    ]


def test_all_unpaired_rows_are_named_once_with_one_command() -> None:
    records = [
        *rounds("single", SINGLE),
        *rounds("dp", DP, session_id="s2"),
        *rounds("ddp", DDP, session_id="s3"),
    ]
    [text] = said(records)
    assert text.startswith("no verdict for dp on 2 devices, ddp on 2 devices: no round")
    assert "mgpubench run --mode single,dp,ddp --gpus 2 " in text


def test_an_unpaired_row_that_does_not_measure_the_technique_needs_no_command() -> None:
    records = [
        *rounds("dp", DP, effective_mode="oversubscribed"),
        *rounds("ddp", DDP, effective_mode="oversubscribed", session_id="s2"),
    ]
    assert said(records) == []


# Sessions that disagree.


def test_sessions_that_disagree_are_named_with_both_figures() -> None:
    # The means of the ratios are exp(sum(NOISE) / 5) = 1.0002 apart from these.
    assert said(sessions(1.30, 1.40))[-1] == (
        "sessions disagree about ddp on 2 devices against dp: from 1.300x to 1.400x, by more than "
        "chance; compare them one by one"
    )
    assert len([text for text in said(sessions(1.30, 1.40)) if "disagree" in text]) == 1
    assert not [text for text in said(sessions(1.30, 1.31)) if "disagree" in text]


# Variants.


def variants(*settings: tuple[str, Sequence[float]], **changes: Any) -> list[RunRecord]:
    return [
        record
        for number, (name, rates) in enumerate(settings, start=1)
        for record in rounds("ddp", rates, variant=name, variant_number=number, **changes)
    ]


def test_a_variant_is_answered_against_the_first_one() -> None:
    assert said(variants(("default", DP), ("cap50", DDP))) == [
        "ddp cap50 against default on 2 devices: 1.267x (95 % CI 1.262..1.273, 5 paired rounds of "
        "one session): faster"
    ]


def test_an_undecided_variant_has_one_sentence() -> None:
    texts = said(variants(("default", DP), ("cap50", around(DP, 1.006, WIDE))))
    assert len(texts) == 1
    assert "undecided, about" in texts[0]


def test_equal_variants_end_with_the_noise_floor() -> None:
    """(t.975 + t.80) s / sqrt(5) is 3.7175 x 0.00699 / 2.236, or 1.2 %."""
    texts = said(variants(("aa-1", DP), ("aa-2", around(DP, 1.0, NOISE))))
    assert texts[-1] == (
        "noise floor of ddp on 2 devices: 5 rounds find a difference of 1.2 % in 80 of 100 cases, "
        "and a smaller one more rarely"
    )
    assert not [text for text in said(variants(("a", DP), ("b", DDP))) if "noise floor" in text]


def test_too_few_rounds_have_no_noise_floor() -> None:
    assert not [
        text for text in said(variants(("aa-1", DP[:4]), ("aa-2", DDP[:4]))) if "floor" in text
    ]


def test_option_rows_are_answered_each_against_dp() -> None:
    records = [run("dp", 100.0), run("ddp", 120.0, options="bucket_cap_mb=1;static=true")]
    assert said(records)[-1].startswith(
        "ddp bucket_cap_mb=1 static=true against dp on 2 devices: 1.200x"
    )


# fsdp against another mode.


def test_fsdp_is_answered_against_dp_or_ddp_if_that_is_the_baseline() -> None:
    """Against single the table says it."""
    records = [*THREE_MODES, *rounds("fsdp", [rate * 0.9 for rate in DDP])]
    answer = (
        "fsdp against ddp on 2 devices: 0.900x (97.5 % CI 0.900..0.900, 5 paired rounds of one "
        "session): slower"
    )
    assert [text for text in said(records, "ddp") if text.startswith("fsdp")] == [answer]
    assert not [text for text in said(records) if text.startswith("fsdp")]
    assert said([*rounds("ddp", DDP), *rounds("fsdp", DDP)]) == [
        "fsdp against ddp on 2 devices: 1.000x (95 % CI 1.000..1.000, 5 paired rounds of one "
        "session): equivalent within 2 %"
    ]


def test_fsdp_that_is_undecided_has_one_sentence() -> None:
    texts = said([*rounds("ddp", DP), *rounds("fsdp", around(DP, 1.006, WIDE))])
    assert len(texts) == 1
    assert texts[0].startswith("fsdp against ddp on 2 devices: 1.006x")
    assert "undecided, about" in texts[0]


# What is missing.


def test_an_empty_column_is_explained() -> None:
    assert said([run("ddp")]) == ["nothing to compare with: there is no run of single or dp here"]
    assert said([run("ddp")], baseline="cap50") == [
        "nothing to compare with: there is no run of cap50 here"
    ]
    assert not [text for text in said(THREE_MODES) if text.startswith("nothing to compare")]


def test_fsdp_alone_could_be_compared_with_three_modes() -> None:
    assert said([run("fsdp")]) == [
        "nothing to compare with: there is no run of single, dp or ddp here"
    ]


def test_rows_without_a_partner_on_as_many_devices_are_named() -> None:
    records = [run("single"), run("ddp"), run("ddp", num_devices=4)]
    assert "no ddp on as many devices to compare with: single on 1 device" in said(
        records, baseline="ddp"
    )


def test_totals_over_more_runs_than_the_ratio_have_a_note() -> None:
    note = "ratios are over the rounds that both rows have, totals over all runs of a row"
    pairs = [run(mode, 100.0, round=i + 1) for i in range(2) for mode in ("dp", "ddp")]
    assert note not in said(pairs)
    assert note in said([*pairs, run("ddp", 900.0, round=3)])
    assert note in said([*pairs, run("dp", 900.0, round=3)])


# Findings.


def test_findings_of_a_row_are_listed() -> None:
    records = [run("single", 100.0), run("ddp", None, status="failed", findings="oom;x")]
    assert "findings of ddp on 2 devices: oom, x" in said(records)


def test_findings_of_some_runs_only_are_counted() -> None:
    runs = [run("ddp", 100.0 + i, round=i + 1, findings="stalls" if i else "") for i in range(3)]
    assert said(runs)[-1] == "findings of ddp on 2 devices: stalls (2 of 3 runs)"


def test_findings_about_a_whole_row_are_not_counted() -> None:
    runs = [run("ddp", 100.0 + i, round=i + 1, step_time_change=0.03) for i in range(3)]
    assert said(runs)[-1] == "findings of ddp on 2 devices: not-steady"


@pytest.mark.parametrize(("busy", "has_warning"), [(2, False), (3, True)])
def test_a_row_of_which_most_runs_were_disturbed_has_a_warning(
    busy: int, has_warning: bool
) -> None:
    runs = [
        run("ddp", 100.0, round=i + 1, findings="busy-machine" if i < busy else "")
        for i in range(4)
    ]
    warning = (
        "ddp on 2 devices: most runs were disturbed by other processes: repeat them on a quiet "
        "machine before you believe a ratio"
    )
    assert (warning in said(runs)) is has_warning


def test_only_groups_on_a_cpu_are_called_smoke_tests() -> None:
    """C05. Also if all runs have failed."""
    note = "CPU rows are smoke tests of the tool, not a forecast for GPUs."
    assert said([run("dp", None, status="failed", device_type="cpu")])[-1] == note
    assert note not in said(THREE_MODES)


# All of them.


def test_escape_codes_from_a_file_are_in_no_sentence() -> None:
    evil = "\x1b[2J"
    records = [
        *variants((f"a{evil}", DP), (f"b{evil}", around(DP, 1.006, WIDE)), options=evil),
        *rounds("dp", DP, options=f"x={evil}", findings=evil),
        *rounds("ddp", DDP, options=f"x={evil}", session_id=f"s{evil}", model="resnet50"),
    ]
    by_group: dict[Any, list[Row]] = {}
    for row in rows_of(records):
        by_group.setdefault(row.group, []).append(row)
    texts = [text for rows in by_group.values() for text in sentences_about(rows)]
    assert len(texts) >= 3
    assert not [text for text in texts if "\x1b" in text]


def test_sentences_do_not_depend_on_the_order_of_the_runs() -> None:
    records = [*sessions(1.30, 1.40, 1.20), run("dp", None, status="failed")]
    expected = said(records)
    for seed in range(5):
        assert said(random.Random(seed).sample(records, len(records))) == expected
