"""What people see: exact tables, honest sentences, nothing truncated and nothing injected."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from mgpubench.analysis.compare import compare
from mgpubench.analysis.row import parse_baseline
from mgpubench.report.tables import comparison_markdown, print_comparison
from tests.conftest import make_run_record as run

SINGLE = [100.0, 104.0, 97.0, 101.0, 99.0]
DP = [150.0, 157.0, 145.0, 152.0, 148.0]
DDP = [190.0, 198.5, 184.0, 192.0, 188.5]


def rounds(mode, throughputs, **changes):
    return [run(mode, t, round=i + 1, **changes) for i, t in enumerate(throughputs)]


def rows_of(records, baseline=None, margin=0.02):
    return compare(records, parse_baseline(baseline) if baseline else None, margin)


def printed(rows, width=80, **console):
    stream = io.StringIO()
    print_comparison(rows, Console(file=stream, width=width, **console))
    return stream.getvalue()


def lines_of(records, **options):
    return [line.rstrip() for line in printed(rows_of(records, **options)).splitlines()]


THREE_MODES = [*rounds("single", SINGLE), *rounds("dp", DP), *rounds("ddp", DDP)]
SMOKE = [
    run(
        mode,
        throughput,
        effective_mode=effective_mode,
        device_type="cpu",
        model="tiny-cnn",
        image_size=32,
        precision="fp32",
        batch_per_device=8,
        device_names="2x CPU Y",
    )
    for mode, effective_mode, throughput in [
        ("single", "single", 1000.0),
        ("dp", "cpu-replicas", 1200.0),
        ("ddp", "ddp", 1500.0),
    ]
]


def test_table_of_a_smoke_run_at_width_80():
    assert [line.rstrip() for line in printed(rows_of(SMOKE)).splitlines()] == SMOKE_TABLE


def test_markdown_of_a_comparison():
    assert comparison_markdown(rows_of(THREE_MODES)) == MARKDOWN


def test_the_same_table_is_printed_at_any_width():
    rows = rows_of(THREE_MODES)
    assert printed(rows, width=20) == printed(rows, width=80) == printed(rows, width=300)
    assert "..." not in printed(rows, width=20)
    assert "\N{HORIZONTAL ELLIPSIS}" not in printed(rows, width=20)


def test_the_header_says_which_figure_is_the_total_and_which_is_per_device():
    """C01."""
    title, first, second, *_ = lines_of(THREE_MODES)
    assert title == "resnet50, synthetic data, 224 px, tf32, batch 64 per device, NVIDIA X"
    assert first.split()[:1] == ["total"]
    assert second.split()[3:8] == ["samples/s", "the", "total", "per", "device"]
    assert " ".join(first.split()[1:5]) == "95 % CI of"
    assert "| total samples/s |" in comparison_markdown(rows_of(THREE_MODES))
    assert "| samples/s per device |" in comparison_markdown(rows_of(THREE_MODES))


@pytest.mark.parametrize(
    ("counts", "confidence"),
    [((2,), "95 %"), ((2, 4), "97.5 %"), ((2, 4, 8), "98.33 %"), ((2, 4, 8, 16), "98.75 %")],
)
def test_the_header_says_the_confidence_of_the_intervals_that_are_shown(counts, confidence):
    """They are those that the verdicts use."""
    records = [*rounds("single", SINGLE)]
    for count in counts:
        records += rounds("ddp", [count * 0.9 * x for x in DDP], num_devices=count)
    text = comparison_markdown(rows_of(records))
    assert f"| {confidence} CI of the ratio | verdict |" in text
    assert "| 95 % CI of the total |" in text  # this one is for its row alone


def test_two_sessions_have_no_interval_and_say_that_both_give_the_verdict():
    records = [
        record
        for name in ("s1", "s2")
        for mode, rates in (("dp", DP), ("ddp", DDP))
        for record in rounds(mode, rates, session_id=name)
    ]
    lines = lines_of(records)
    assert lines[5].endswith("  faster (in both)")
    assert "CI of" not in lines[1]
    text = lines_of(
        [
            *records[:10],
            *rounds("dp", DP, session_id="s2"),
            *rounds("ddp", DP[::-1], session_id="s2"),
        ]
    )
    assert text[5].endswith("  undecided")


def test_an_unpaired_ratio_has_no_verdict():
    lines = lines_of([*rounds("dp", DP), *rounds("ddp", DDP, session_id="s2")])
    assert lines[5].split()[-2:] == ["1.267", "-"]
    assert "CI of     ratio" not in lines[1]


def test_failed_attempts_are_shown_beside_the_runs_that_succeeded():
    records = [*rounds("single", SINGLE), *rounds("ddp", DDP, sitting=2)]
    records += [run("ddp", None, status="failed") for _ in range(2)]
    assert lines_of(records)[5].split()[:5] == ["ddp", "2", "5,", "2", "failed"]


def test_variants_are_rows_with_their_name_and_not_their_options():
    records = [
        *rounds("ddp", DP, variant="default", variant_number=1),
        *rounds("ddp", DDP, variant="cap50", variant_number=2, options="bucket_cap_mb=50"),
    ]
    lines = lines_of(records)
    assert lines[0].startswith(
        "resnet50, synthetic data, 224 px, tf32, variants cap50 | default, batch 64 per device"
    )
    assert " ".join(lines[1].split()[-6:]) == "ratio to 95 % CI of"
    assert lines[2].split()[-4:] == ["default", "the", "ratio", "verdict"]
    assert lines[4].startswith("ddp default ")
    assert lines[5].split()[:3] == ["ddp", "cap50", "2"]
    assert lines[5].endswith("  faster")


def test_a_baseline_of_a_mode_with_options_is_named_in_the_header():
    records = [*rounds("ddp", DP), *rounds("ddp", DDP, options="bucket_cap_mb=50")]
    lines = lines_of(records, baseline="ddp/bucket_cap_mb=50")
    assert "ddp/bucket_cap_mb=50" in lines[2]
    assert lines[5].split()[:2] == ["ddp", "bucket_cap_mb=50"]
    assert "baseline" in lines[5]


def test_a_passthrough_is_shown_without_verdict():
    records = [
        *rounds("dp", DP, num_devices=1, effective_mode="passthrough"),
        *rounds("ddp", DDP, num_devices=1),
    ]
    lines = lines_of(records)
    assert lines[4].split()[:3] == ["dp", "(passthrough)", "1"]
    assert lines[5].split()[-1] == "-"
    assert lines[-1].endswith("no verdict for passthrough or oversubscribed devices")


def test_a_failed_row_is_shown_with_hyphens_and_its_findings():
    lines = lines_of([run("single", 100.0), run("ddp", None, status="failed", findings="oom;x")])
    assert lines[5].split() == ["ddp", "2", "0,", "1", "failed", "-", "-", "-", "-", "-"]
    assert lines[-1] == "findings of ddp on 2 devices: oom, x"


def test_a_missing_baseline_is_a_hyphen():
    lines = lines_of([run("ddp", 100.0)], baseline="single")
    assert lines[2].split()[-2:] == ["single", "verdict"]
    assert lines[4].split()[-2:] == ["-", "-"]


def test_options_distinguish_rows():
    lines = lines_of([run("dp", 100.0), run("ddp", 120.0, options="bucket_cap_mb=1;static=true")])
    assert lines[5].startswith("ddp bucket_cap_mb=1 static=true ")
    assert lines[-1].startswith("ddp bucket_cap_mb=1 static=true against dp on 2 devices: 1.200x")


def test_titles_of_groups_name_what_differs():
    records = [run("dp", 100.0), run("dp", 90.0, torch_version="2.14.1", compiled=True)]
    titles = [line for line in lines_of(records) if line.startswith("resnet50")]
    common = "resnet50, synthetic data, 224 px, tf32, batch 64 per device, NVIDIA X"
    assert titles == [
        f"{common.replace('tf32', 'tf32, compiled')}, torch_version 2.14.1",
        f"{common}, torch_version -",
    ]


def test_tables_that_are_not_divided_by_each_other_name_the_fields_that_differ():
    records = [run("dp", 100.0), run("ddp", 90.0, precision="fp32", machine="0badc0de")]
    assert lines_of(records)[-1] == (
        "The 2 tables show different work, and are not divided by each other: "
        "machine (- / 0badc0de), precision (tf32 / fp32)"
    )
    assert "different work" not in "".join(lines_of(THREE_MODES))


def test_of_many_values_that_differ_four_are_shown():
    records = [run("dp", 100.0, steps=steps) for steps in range(1, 7)]
    assert lines_of(records)[-1].endswith("steps (1 / 2 / 3 / 4 / and 2 more)")


def test_strong_scaling_names_the_global_batch():
    records = [run("dp", 100.0, scaling="strong", global_batch=128)]
    assert "tf32, batch 128 global, NVIDIA X" in lines_of(records)[0]


def test_only_groups_on_a_cpu_are_called_smoke_tests():
    """C05."""
    note = "CPU rows are smoke tests of the tool, not a forecast for GPUs."
    assert lines_of(SMOKE)[-1] == note
    assert note not in lines_of(THREE_MODES)
    both = lines_of([*SMOKE, *THREE_MODES])
    assert both.count(note) == 1
    assert f"- {note}" in comparison_markdown(rows_of(SMOKE))


@pytest.mark.parametrize("name", ["[red]x[/red]", "[/]", "x:smiley:", "a|b"])
def test_text_from_a_file_is_shown_as_it_is(name):
    assert lines_of([run("dp", 100.0, model=name)])[0].startswith(f"{name}, synthetic data")


def test_escape_codes_from_a_file_do_not_reach_the_terminal():
    records = [run("dp\x1b[2J", 1.0, model="x\x1b[31m\r\n", options="\x07", findings="\x1bc")]
    text = printed(rows_of(records), force_terminal=True, no_color=True)
    assert "\x1b[2J" not in text
    assert "\x1b[31m" not in text
    assert "\x1bc" not in text
    assert "x?[31m??, synthetic data" in text


def test_markdown_from_a_file_is_escaped():
    text = comparison_markdown(rows_of([run("dp", 1.0, model="a|b<i>*c*", options="k=`|`")]))
    assert text.startswith("### a\\|b\\<i\\>\\*c\\*, synthetic data")
    assert "| dp k=\\`\\|\\` |" in text


def test_no_escape_code_is_written_where_there_is_no_terminal():
    assert "\x1b" not in printed(rows_of(THREE_MODES))


def test_no_colour_and_no_italics_are_written_to_a_terminal_without_colour():
    """C65."""
    text = printed(rows_of(THREE_MODES), force_terminal=True, no_color=True)
    assert "\x1b[1m" in text
    assert not any(code in text for code in ("\x1b[3", "\x1b[4", "\x1b[?"))


def test_numbers_are_shown_with_four_digits_and_never_as_nan():
    rows = rows_of([run("single", 12345.678), run("dp", 0.0123456)])
    text = printed([replace(row, findings=()) for row in rows])
    assert "12346" in text
    assert "0.01235" in text
    assert "nan" not in text


SMOKE_TABLE = """\
tiny-cnn, synthetic data, 32 px, fp32, batch 8 per device, CPU Y
                                      total   samples/s  speed-up to
mode               devices  runs  samples/s  per device       single  verdict
───────────────────────────────────────────────────────────────────────────────
single                   1     1       1000        1000     baseline  -
dp (cpu-replicas)        2     1       1200       600.0        1.200  undecided
ddp                      2     1       1500       750.0        1.500  undecided
ddp against dp on 2 devices: 1.250x (1 paired round of one session): undecided, at least 5 rounds \
are needed to tell (--rounds 6)
undecided against single: at least 5 rounds are needed to tell (--rounds 6)
CPU rows are smoke tests of the tool, not a forecast for GPUs.
""".splitlines()

MARKDOWN = """\
### resnet50, synthetic data, 224 px, tf32, batch 64 per device, NVIDIA X

| mode | devices | runs | total samples/s | 95 % CI of the total | samples/s per device | \
efficiency | speed-up to single | 97.5 % CI of the ratio | verdict |
| :-- | --: | --: | --: | --: | --: | --: | --: | --: | :-- |
| single | 1 | 5 | 100.2 | 97.02..103.4 | 100.2 | 100.0 % | baseline | - | - |
| dp | 2 | 5 | 150.3 | 144.9..156.0 | 75.17 | 75.0 % | 1.501 | 1.491..1.511 | faster |
| ddp | 2 | 5 | 190.5 | 184.1..197.2 | 95.27 | 95.1 % | 1.902 | 1.895..1.909 | faster |

- ddp against dp on 2 devices: 1.267x (95 % CI 1.262..1.273, 5 paired rounds of one session): faster
- the verdicts against single are all right at once in 95 % of tables, so each interval is wider; \
ddp against dp holds by itself
"""
