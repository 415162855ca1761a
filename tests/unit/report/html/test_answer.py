"""The top of the page says who is faster, by how much, and whether it is sure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mgpubench.analysis.compare import compare
from mgpubench.report.html.answer import Answer, answers_of, caveats_of, headline
from mgpubench.report.sections import describe
from mgpubench.report.sentences import NO_FOLDERS, sentences_about
from mgpubench.results.schema import RunRecord
from tests.conftest import make_run_record as run
from tests.unit.report.test_sentences import CLOSE, DDP, DP, NOISE, SINGLE, around, rounds


def answered(records: Sequence[RunRecord], margin: float = 0.02) -> list[Answer]:
    rows = compare(records, None, margin)
    return answers_of(rows, [section.title for section in describe(rows)], NO_FOLDERS)


FASTER = [*rounds("dp", DP), *rounds("ddp", DDP)]
SLOWER = [*rounds("dp", DDP), *rounds("ddp", DP)]
EQUAL = [*rounds("dp", DP), *rounds("ddp", around(DP, 1.001, [step / 10 for step in NOISE]))]


def test_the_sentence_is_that_of_compare() -> None:
    (answer,) = answered(FASTER)
    assert answer.sentence == sentences_about(compare(FASTER, None, 0.02))[0]
    assert answer.work == "resnet50, synthetic data, 224 px, tf32, batch 64 per device, NVIDIA X"
    assert answer.sentence.startswith("ddp against dp on 2 devices: 1.267x (95 % CI ")


@pytest.mark.parametrize(
    ("records", "verdict", "winner", "certainty"),
    [
        (
            FASTER,
            "faster",
            "ddp. It trains 26.7 % more samples per second than dp (1.267 times as many), on 2 "
            "devices.",
            "Yes, for this session (the machine may behave differently on another day): the whole "
            "95 % confidence interval of the ratio (1.262..1.273) is above 1.",
        ),
        (
            SLOWER,
            "slower",
            "dp. ddp trains 21.1 % fewer samples per second than dp (0.789 times as many), on 2 "
            "devices.",
            "Yes, for this session (the machine may behave differently on another day): the whole "
            "95 % confidence interval of the ratio (0.786..0.792) is below 1.",
        ),
        (
            EQUAL,
            "equivalent",
            "Neither. ddp and dp differ by less than 2 %, on 2 devices.",
            "Yes, for this session (the machine may behave differently on another day): the whole "
            "95 % confidence interval of the ratio (1.000..1.002) is within 2 % of 1.",
        ),
        (
            CLOSE,
            "undecided",
            "Not known yet. So far ddp trains 0.6 % more samples per second than dp (1.006 times "
            "as many), on 2 devices.",
            "No: the 95 % confidence interval of the ratio (0.989..1.025) contains 1.",
        ),
    ],
    ids=["faster", "slower", "equivalent", "undecided"],
)
def test_each_verdict_in_plain_words(
    records: list[RunRecord], verdict: str, winner: str, certainty: str
) -> None:
    (answer,) = answered(records)
    assert answer.verdict == verdict
    assert answer.winner == winner
    assert answer.certainty == certainty


def test_a_large_ratio_is_said_in_times() -> None:
    (answer,) = answered([*rounds("single", SINGLE), *rounds("ddp", [3 * r for r in SINGLE])])
    assert answer.winner == (
        "ddp. It trains 3.000 times as many samples per second as single, on 2 devices."
    )


def test_without_dp_the_baseline_is_the_other_side() -> None:
    (answer,) = answered([*rounds("single", SINGLE), *rounds("ddp", DDP)])
    assert answer.sentence.startswith("ddp against single on 2 devices: 1.902x")


def test_ddp_against_dp_has_its_answer_for_each_number_of_devices() -> None:
    more = [*rounds("dp", DP, num_devices=4), *rounds("ddp", DDP, num_devices=4)]
    sentences = [answer.sentence for answer in answered([*FASTER, *more])]
    assert [s.partition(":")[0] for s in sentences] == [
        "ddp against dp on 2 devices",
        "ddp against dp on 4 devices",
    ]


def test_too_few_rounds_are_named() -> None:
    (answer,) = answered([record for record in FASTER if (record.round or 0) < 4])
    assert answer.certainty == "No: 3 rounds cannot show it, and 5 are the least that can."


def test_two_sessions_are_sure_if_both_say_it() -> None:
    other = [replace(record, session_id="s2") for record in FASTER]
    (answer,) = answered([*FASTER, *other])
    assert answer.certainty == "Yes, for these two sessions: each of them alone gives this verdict."


def test_two_sessions_that_differ_are_not_sure() -> None:
    other = [replace(record, session_id="s2") for record in CLOSE]
    (answer,) = answered([*FASTER, *other])
    assert answer.certainty == "No: the two sessions do not give the same verdict."


def test_three_sessions_are_judged_over_them() -> None:
    records = [replace(r, session_id=name) for name in ("s1", "s2", "s3") for r in FASTER]
    varied = [
        replace(r, throughput_samples_per_s=(r.throughput_samples_per_s or 0) * 1.001)
        if (r.mode, r.session_id) == ("ddp", "s2")
        else r
        for r in records
    ]
    (answer,) = answered(varied)
    assert answer.certainty.startswith("Yes, over 3 sessions: the whole 95 % confidence interval")


def test_passthrough_is_not_judged() -> None:
    records = [
        *rounds("single", SINGLE),
        *rounds("dp", SINGLE, num_devices=1, effective_mode="passthrough"),
    ]
    (answer,) = answered(records)
    assert answer.verdict == "no verdict"
    assert answer.winner.startswith("Not judged. dp (passthrough) trains ")
    assert answer.certainty == "No: these devices do not measure the technique."


@pytest.mark.parametrize(
    "records",
    [
        rounds("ddp", DDP),
        [run("dp", 100.0, session_id="s1"), run("ddp", 200.0, session_id="s2")],
    ],
    ids=["alone", "unpaired"],
)
def test_what_cannot_be_compared_is_said_with_compares_own_words(records: list[RunRecord]) -> None:
    (answer,) = answered(records)
    assert answer.sentence in sentences_about(compare(records, None, 0.02))
    assert answer.verdict == "no verdict"
    assert answer.certainty.startswith("No. ")


def test_one_answer_needs_no_headline() -> None:
    assert headline(answered(FASTER)) == ""


def test_answers_on_several_numbers_of_devices_have_one_sentence() -> None:
    more = [replace(record, num_devices=devices) for devices in (4, 8) for record in FASTER]
    close = [replace(record, num_devices=16) for record in CLOSE]
    assert headline(answered([*FASTER, *more, *close])) == (
        "ddp against dp: faster on 2, 4 and 8 devices, undecided on 16 devices"
    )


def test_answers_about_several_kinds_of_work_are_counted() -> None:
    other = [replace(record, model="vgg16") for record in FASTER]
    third = [replace(record, model="vgg19") for record in SLOWER]
    assert headline(answered([*FASTER, *other, *third])) == (
        "ddp against dp: faster in 2 comparisons, slower in 1 comparison"
    )


def test_more_pairs_than_a_sentence_can_hold_are_counted() -> None:
    variants = [
        replace(record, variant=f"v{number}", variant_number=number)
        for number in range(1, 8)
        for record in rounds("ddp", DDP)
    ]
    assert headline(answered(variants)) == (
        "ddp v2 against v1: equivalent on 2 devices; ddp v3 against v1: equivalent on 2 devices; "
        "ddp v4 against v1: equivalent on 2 devices; ddp v5 against v1: equivalent on 2 devices; "
        "and 2 more"
    )


def test_caveats_are_those_without_which_an_answer_misleads() -> None:
    busy = [replace(record, findings="busy-machine", device_type="cpu") for record in FASTER]
    assert caveats_of(compare(busy, None, 0.02)) == [
        "dp on 2 devices: most runs were disturbed by other processes: repeat them on a quiet "
        "machine before you believe a ratio",
        "ddp on 2 devices: most runs were disturbed by other processes: repeat them on a quiet "
        "machine before you believe a ratio",
        "CPU rows are smoke tests of the tool, not a forecast for GPUs.",
    ]
    assert caveats_of(compare(FASTER, None, 0.02)) == []
