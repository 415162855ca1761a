"""The table of compare for programs: JSON and CSV with the same figures."""

import csv
import io
import json

import pytest

from mgpubench.analysis.compare import compare
from mgpubench.analysis.groups import GROUP_KEY
from mgpubench.analysis.row import parse_baseline
from mgpubench.report.export import CSV_COLUMNS, to_csv, to_json
from tests.conftest import make_run_record as run


def failed(mode, **changes):
    return run(mode, None, status="failed", **changes)


def rounds(mode, throughputs, **changes):
    return [run(mode, t, round=i + 1, **changes) for i, t in enumerate(throughputs)]


def compared(records, baseline=None):
    return compare(records, parse_baseline(baseline) if baseline else None, 0.02)


THREE_MODES = [
    *rounds("single", [100.0, 104.0, 97.0, 101.0, 99.0]),
    *rounds("dp", [150.0, 157.0, 145.0, 152.0, 148.0]),
    *rounds("ddp", [190.0, 198.5, 184.0, 192.0, 188.5]),
]
ROWS = compared(THREE_MODES)


JSON_KEYS = (
    "group variant mode effective_mode num_devices options runs failed interrupted "
    "throughput_samples_per_s throughput_ci speedup speedup_ci scaling_efficiency findings "
    "versus_baseline versus_dp num_nodes node_efficiency samples_per_joule cost_per_million_samples"
)
VERSUS_KEYS = (
    "baseline ratio ratio_ci confidence method sessions disagree pairs paired verdict rounds_needed"
)


def test_json_has_the_keys_of_the_contract():
    document = json.loads(to_json(ROWS))
    assert [row["mode"] for row in document] == ["single", "dp", "ddp"]
    assert all(list(row) == JSON_KEYS.split() for row in document)
    assert document[0]["versus_baseline"] is None
    assert list(document[2]["versus_baseline"]) == VERSUS_KEYS.split()
    assert list(document[2]["versus_dp"]) == VERSUS_KEYS.split()
    assert list(document[2]["group"]) == list(GROUP_KEY)
    assert document[2]["versus_dp"]["verdict"] == "faster"


def test_unknown_is_null_in_json():
    [row] = json.loads(to_json(compared([failed("ddp", effective_mode="", image_size=None)])))
    assert (row["group"]["torch_version"], row["group"]["image_size"]) == (None, None)
    assert (row["effective_mode"], row["options"], row["findings"]) == (None, "", [])
    assert (row["throughput_samples_per_s"], row["speedup"], row["versus_dp"]) == (None, None, None)


def test_csv_has_the_same_figures_side_by_side():
    rows = compared([*THREE_MODES, failed("ddp", num_devices=8, findings="a;b")])
    table = list(csv.DictReader(io.StringIO(to_csv(rows))))
    ddp, crashed = table[2], table[3]
    assert ddp["group_model"] == "resnet50"
    assert float(ddp["throughput_ci_low"]) == rows[2].throughput_ci[0]
    assert float(ddp["speedup_ci_high"]) == rows[2].speedup_ci[1]
    assert (ddp["versus_baseline"], ddp["versus_pairs"], ddp["versus_paired"]) == (
        "single",
        "5",
        "true",
    )
    assert float(ddp["versus_ratio_ci_low"]) == rows[2].versus_baseline.interval[0]
    assert float(ddp["versus_dp_ratio"]) == rows[2].versus_dp.ratio
    assert ddp["versus_dp_verdict"] == "faster"
    assert (crashed["runs"], crashed["failed"], crashed["findings"]) == ("0", "1", "a;b")
    assert (crashed["throughput_samples_per_s"], crashed["versus_dp_pairs"]) == ("", "")


def test_csv_has_its_header_even_without_rows():
    assert to_csv([]).startswith("group_machine,group_device_models,")
    assert to_csv([]).rstrip("\n").split(",") == list(CSV_COLUMNS)


CSV_HEADER = (
    "variant mode effective_mode num_devices options runs failed interrupted "
    "throughput_samples_per_s throughput_ci_low throughput_ci_high "
    "speedup speedup_ci_low speedup_ci_high "
    "scaling_efficiency findings versus_baseline versus_ratio versus_ratio_ci_low "
    "versus_ratio_ci_high versus_confidence versus_method versus_sessions versus_disagree "
    "versus_pairs versus_paired versus_verdict versus_rounds_needed "
    "versus_dp_ratio versus_dp_ratio_ci_low versus_dp_ratio_ci_high versus_dp_confidence "
    "versus_dp_method versus_dp_sessions versus_dp_disagree versus_dp_pairs versus_dp_paired "
    "versus_dp_verdict versus_dp_rounds_needed num_nodes node_efficiency samples_per_joule "
    "cost_per_million_samples"
)


def test_csv_has_the_columns_of_the_contract():
    header = to_csv(ROWS).splitlines()[0].split(",")
    assert header == [*(f"group_{name}" for name in GROUP_KEY), *CSV_HEADER.split()]


def test_a_missing_baseline_is_null_in_json_and_empty_in_csv():
    rows = compared([run("ddp")], "single")
    [in_json] = json.loads(to_json(rows))
    assert in_json["versus_baseline"] == {
        "baseline": "single",
        "ratio": None,
        "ratio_ci": None,
        "confidence": None,
        "method": None,
        "sessions": 0,
        "disagree": False,
        "pairs": 0,
        "paired": None,
        "verdict": None,
        "rounds_needed": None,
    }
    [in_csv] = csv.DictReader(io.StringIO(to_csv(rows)))
    names = ("versus_baseline", "versus_ratio", "versus_ratio_ci_low", "versus_pairs")
    assert [in_csv[name] for name in names] == ["single", "", "", "0"]


def test_json_says_how_a_verdict_was_found():
    """Two rows against single at 97.5 %, and ddp against dp at 95 %."""
    ddp = json.loads(to_json(ROWS))[2]
    versus = ddp["versus_baseline"]
    assert (versus["confidence"], versus["method"], versus["sessions"]) == (0.975, "rounds", 1)
    assert (ddp["versus_dp"]["confidence"], ddp["versus_dp"]["paired"]) == (0.95, True)
    assert ddp["variant"] is None


def sessions(*names, **changes):
    return [
        record
        for number, name in enumerate(names)
        for mode, rates in (("dp", [100.0, 101, 99, 102, 98]), ("ddp", [120.0, 122, 119, 121, 118]))
        for record in rounds(
            mode, [rate * (1 + 0.01 * number) for rate in rates], session_id=name, **changes
        )
    ]


@pytest.mark.parametrize(
    ("records", "method", "count"),
    [
        (sessions("s1"), "rounds", 1),
        (sessions("s1", rounds_added=0), "sequence", 1),
        (sessions("s1", "s2"), "both", 2),
        (sessions("s1", "s2", "s3"), "sessions", 3),
        ([*sessions("s1")[:5], *sessions("s2")[5:]], "unpaired", 0),
    ],
)
def test_the_method_is_one_of_five(records, method, count):
    [dp, ddp] = json.loads(to_json(compared(records)))
    versus = ddp["versus_dp"]
    assert (versus["method"], versus["sessions"]) == (method, count)
    has_interval = method not in ("both", "unpaired")
    assert (versus["ratio_ci"] is not None) == (versus["confidence"] is not None) == has_interval
    assert (versus["verdict"] is None) == (method == "unpaired")
    assert versus["paired"] == (method != "unpaired")
    assert dp["versus_baseline"] is None


def test_csv_and_json_have_equal_fields():
    rows = compared([*THREE_MODES, *sessions("s1", "s2", steps=9), run("ddp", 9.0, num_devices=4)])
    for of_json, of_csv in zip(
        json.loads(to_json(rows)), csv.DictReader(io.StringIO(to_csv(rows))), strict=True
    ):
        for key in ("versus_baseline", "versus_dp"):
            prefix = "versus" if key == "versus_baseline" else key
            for name, value in (of_json[key] or {}).items():
                if name in ("baseline", "ratio_ci"):
                    continue
                cell = of_csv[f"{prefix}_{name}"]
                if isinstance(value, float):
                    assert float(cell) == value
                elif isinstance(value, bool):
                    assert cell == str(value).lower()
                else:
                    assert cell == ("" if value is None else str(value))
        assert of_csv["variant"] == (of_json["variant"] or "")
        assert list(of_json["group"]) == [
            name.removeprefix("group_") for name in of_csv if name.startswith("group_")
        ]


def test_a_variant_is_a_field_of_its_own():
    records = [
        record
        for number, name in enumerate(("default", "cap50"), start=1)
        for record in rounds("ddp", [100.0] * 5, variant=name, variant_number=number)
    ]
    rows = json.loads(to_json(compared(records)))
    assert [row["variant"] for row in rows] == ["default", "cap50"]
    assert rows[1]["versus_baseline"]["baseline"] == "default"
    assert rows[0]["group"]["variants"] == "cap50 | default"
