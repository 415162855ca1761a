"""What `--before`, `--after` and `--fail-if-slower` say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from mgpubench.analysis.before_after import BeforeAfter, compare_sides
from mgpubench.analysis.gate import check_gate
from mgpubench.report.changes import (
    SPEEDUP_NOTE,
    changes_to_json,
    describe_changes,
    describe_gate,
)
from mgpubench.report.tables import section_markdown
from mgpubench.results.schema import RunRecord
from tests.conftest import make_run_record as run

SPEEDUPS = {"single": 1.0, "ddp": 1.8}
BEFORE, AFTER = {"b1": 100.0, "b2": 102.0, "b3": 99.0}, {"a1": 90.0, "a2": 91.5, "a3": 89.0}


def side(
    levels: Mapping[str, float], speedups: Mapping[str, float] = SPEEDUPS, **changes: Any
) -> list[RunRecord]:
    return [
        run(mode, level * speedup, session_id=name, round=1, **changes)
        for name, level in levels.items()
        for mode, speedup in speedups.items()
    ]


def compared(before: list[RunRecord], after: list[RunRecord]) -> BeforeAfter:
    return compare_sides(before, after, 0.02)


MARKDOWN = """\
### after against before

| mode | devices | sessions before, after | before samples/s | after samples/s | after / before \
| 97.5 % CI | verdict | the same of speed-up | 95 % CI | verdict |
| :-- | --: | --: | --: | --: | --: | --: | :-- | --: | --: | :-- |
| single | 1 | 3, 3 | 100.3 | 90.16 | 0.899 | 0.862..0.937 | slower | - | - | - |
| ddp | 2 | 3, 3 | 180.6 | 162.3 | 0.899 | 0.862..0.937 | slower | 1.000 | 1.000..1.000 \
| equivalent |

- the ratio to single is not moved by a faster machine, and is blind to what slows single alike
- torch\\_version differs: - before, 2.14.1 after"""


def test_the_table_of_two_sides() -> None:
    result = compared(side(BEFORE), side(AFTER, torch_version="2.14.1"))
    assert section_markdown(describe_changes(result)) == MARKDOWN


def test_without_single_there_is_one_ratio() -> None:
    section = describe_changes(compared(side(BEFORE, {"ddp": 1.8}), side(AFTER, {"ddp": 1.8})))
    headers = [column.header for column in section.columns]
    assert headers.count("verdict") == 1
    assert "95 % CI" in headers
    assert not [header for header in headers if "speed-up" in header]
    assert SPEEDUP_NOTE not in section.sentences


def test_a_configuration_of_one_side_is_named() -> None:
    """A mode that fails since the change is not simply left out."""
    result = compared(side(BEFORE), side(AFTER, {"single": 1.0, "dp": 1.2}))
    markdown = section_markdown(describe_changes(result))
    assert "only before the change, so not compared: ddp on 2 devices" in markdown
    assert "only after the change, so not compared: dp on 2 devices" in markdown
    document = json.loads(changes_to_json(result))
    assert [key["mode"] for key in document["only_before"]] == ["ddp"]
    assert [key["mode"] for key in document["only_after"]] == ["dp"]


def test_too_few_sessions_have_no_verdict_and_the_reason() -> None:
    one = dict([*BEFORE.items()][:1])
    section = describe_changes(compared(side(one, {"ddp": 1.8}), side(AFTER, {"ddp": 1.8})))
    cells = {column.header: column.cells for column in section.columns}
    assert cells["sessions\nbefore, after"] == ["1, 3"]
    assert cells["95 % CI"] == cells["verdict"] == ["-"]
    assert cells["after / before"] == ["0.902"]
    assert section.sentences == [
        "no verdict with 1 session on a side: the machine itself changes between sessions, so 3 on "
        "each side are needed"
    ]


def test_every_difference_is_named_and_unknown_is_a_hyphen() -> None:
    before = side(BEFORE, machine="0badcafe", steps=50, compiled=False)
    after = side(AFTER, method_version=2, compiled=True)
    assert describe_changes(compared(before, after)).sentences[1:] == [
        "machine differs: 0badcafe before, - after",
        "compiled differs: false before, true after",
        "steps differs: 50 before, - after",
        "method_version differs: - before, 2 after",
    ]


def test_sides_on_a_cpu_are_called_smoke_tests() -> None:
    section = describe_changes(
        compared(side(BEFORE, device_type="cpu"), side(AFTER, device_type="cpu"))
    )
    assert section.sentences[-1] == (
        "CPU rows are smoke tests of the tool, not a forecast for GPUs."
    )


def test_rows_are_named_by_what_really_ran_and_by_variant_or_options() -> None:
    def both(levels: Mapping[str, float]) -> list[RunRecord]:
        return [
            *side(levels, {"dp": 1.0}, effective_mode="oversubscribed"),
            *side(levels, {"ddp": 1.0}, options="a=1;b=2"),
        ]

    section = describe_changes(compared(both(BEFORE), both(AFTER)))
    assert section.columns[0].cells == ["dp (oversubscribed)", "ddp a=1 b=2"]
    verdicts = next(column.cells for column in section.columns if column.header == "verdict")
    assert verdicts == ["-", "slower"]


def test_escape_codes_from_a_file_do_not_reach_the_terminal() -> None:
    evil = "\x1b[2J"
    before = side(BEFORE, {"ddp": 1.0}, options=evil, torch_version=evil)
    section = describe_changes(compared(before, side(AFTER, {"ddp": 1.0}, options=evil)))
    texts = [*section.sentences, *(cell for column in section.columns for cell in column.cells)]
    assert not [text for text in texts if "\x1b" in text]


def test_json_has_rows_and_differences_with_null_for_unknown() -> None:
    before = side(BEFORE, steps=50)
    document = json.loads(changes_to_json(compared(before, side(AFTER, torch_version="2.14.1"))))
    assert list(document) == ["rows", "differences", "device_type", "only_before", "only_after"]
    single, ddp = document["rows"]
    assert (single["mode"], single["speedup"]) == ("single", None)
    assert list(ddp["throughput"]) == ["ratio", "interval", "confidence", "verdict", "sessions"]
    assert (ddp["throughput"]["verdict"], ddp["throughput"]["confidence"]) == ("slower", 0.975)
    assert ddp["throughput"]["sessions"] == [3, 3]
    assert ddp["speedup"]["ratio"] == pytest.approx(1.0)
    assert document["differences"] == {"steps": [50, None], "torch_version": [None, "2.14.1"]}


def test_json_of_too_few_sessions_has_no_interval() -> None:
    document = json.loads(changes_to_json(compared(side({"b1": 1.0}), side({"a1": 1.0}))))
    assert document["rows"][0]["throughput"] == {
        "ratio": 1.0, "interval": None, "confidence": None, "verdict": None, "sessions": [1, 1],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("interval", "sentence", "result"),
    [
        (
            (0.90, 0.94),
            "gate 5 %: ddp: tripped, the whole interval 0.900..0.940 is below 0.95",
            "gate 5 %: tripped",
        ),
        (
            (0.96, 1.02),
            "gate 5 %: ddp: passed, the whole interval 0.960..1.020 is above 0.95",
            "gate 5 %: passed",
        ),
        (
            (0.92, 1.02),
            "gate 5 %: ddp: undecided, the interval 0.920..1.020 contains 0.95",
            "gate 5 %: undecided",
        ),
        (None, "gate 5 %: ddp: undecided, there is no interval", "gate 5 %: undecided"),
    ],
)
def test_a_gate_says_what_it_saw_and_how_it_ends(
    interval: tuple[float, float] | None, sentence: str, result: str
) -> None:
    assert describe_gate(check_gate([("ddp", interval)], 0.05)) == [sentence, result]


def test_a_gate_shows_its_limit_with_the_digits_that_were_asked_for() -> None:
    sentences = describe_gate(check_gate([("ddp\x1b", (0.9, 0.98))], 0.025))
    assert sentences == [
        "gate 2.5 %: ddp?: undecided, the interval 0.900..0.980 contains 0.975",
        "gate 2.5 %: undecided",
    ]
