"""`mgpubench compare` on files as people have them: good, truncated, saved by a spreadsheet."""

import csv
import io
import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from mgpubench.cli import cli


def line(mode, devices, throughput, **changes):
    """One row of a hand-made runs.csv, as cells by column."""
    cells = {
        "schema_version": "1",
        "session_id": "s1",
        "round": "1",
        "status": "ok",
        "mode": mode,
        "effective_mode": mode,
        "device_type": "cuda",
        "num_devices": str(devices),
        "model": "resnet50",
        "precision": "fp32",
        "scaling": "weak",
        "batch_per_device": "64",
        "device_names": f"{devices}x NVIDIA X",
        "throughput_samples_per_s": str(throughput),
    }
    return cells | changes


def csv_text(*lines):
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(line("dp", 2, 1.0)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return buffer.getvalue()


FAILED = line("ddp", 2, "", status="failed")
DP_AND_DDP = csv_text(line("dp", 2, 100.0), line("ddp", 2, 162.0))


@pytest.fixture
def write(tmp_path):
    def write_file(content, session="s1"):
        path = tmp_path / "results" / session / "runs.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


def invoke(*arguments):
    return CliRunner().invoke(cli, ["compare", *map(str, arguments)])


def as_json(path, *arguments):
    result = invoke(path, "--format", "json", *arguments)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def refused(path, exit_code):
    """The one error message, where the path was refused as it should be."""
    result = invoke(path)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert "Traceback" not in result.stderr
    message = result.stderr.splitlines()[0]
    assert message.startswith("error: ")
    assert str(path) in message
    return message


def test_the_table_goes_to_stdout_and_says_what_is_total(write):
    """C01."""
    result = invoke(write(DP_AND_DDP))
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [text.rstrip() for text in result.stdout.splitlines()]
    assert lines[1].split()[0] == "total"
    assert lines[5].split() == ["ddp", "2", "1", "162.0", "81.00", "1.620", "undecided"]
    assert lines[-1] == (
        "ddp against dp on 2 devices: 1.620x (1 paired round of one session): undecided, at least "
        "5 rounds are needed to tell (--rounds 6)"
    )


def test_cpu_rows_are_never_divided_by_cuda_rows(write):
    """C05."""
    path = write(csv_text(line("single", 1, 900.0), line("ddp", 2, 9.0, device_type="cpu")))
    rows = {row["group"]["device_type"]: row for row in as_json(path)}
    assert rows["cpu"]["speedup"] is None
    assert rows["cpu"]["versus_baseline"]["ratio"] is None
    assert rows["cuda"]["speedup"] == 1.0
    assert "CPU rows are smoke tests of the tool" in invoke(path).stdout


def test_none_and_na_are_values_of_settings(write):
    """C26."""
    settings = ["none", "None", "NA", "", "fp32"]
    path = write(
        csv_text(
            *(line("dp", 2, 100.0, precision=text, device_names="N/A") for text in settings),
            *(line("ddp", 2, 150.0, precision=text, device_names="N/A") for text in settings),
        )
    )
    rows = as_json(path)
    assert sum(row["runs"] for row in rows) == 10
    assert {row["group"]["precision"] for row in rows} == {"none", "None", "NA", None, "fp32"}
    assert {row["group"]["device_models"] for row in rows} == {"N/A"}
    ratios = [row["versus_dp"]["ratio"] for row in rows if row["mode"] == "ddp"]
    assert ratios == [pytest.approx(1.5)] * 5


def test_a_repeated_header_is_skipped_with_a_warning_that_names_its_line(write):
    """C36."""
    path = write(csv_text(line("dp", 2, 100.0)) + csv_text(line("ddp", 2, 162.0)))
    result = invoke(path, "--format", "json")
    assert (result.exit_code, len(json.loads(result.stdout))) == (0, 2)
    assert result.stderr == f"warning: {path}: line 3: a repeated header; skipped\n"


def test_a_root_of_sessions_shows_all_of_them(write, tmp_path):
    """C36."""
    for number in range(8):
        write(csv_text(line("single", 1, 100.0, session_id=f"s{number}")), f"s{number}")
    [row] = as_json(tmp_path / "results")
    assert row["runs"] == 8


def test_semicolons_are_refused_by_name(write):
    """C38."""
    spoiled = DP_AND_DDP.replace(".", ",").replace(",", ";")
    assert "';'" in refused(write(spoiled), 2)


def test_an_unquoted_decimal_comma_is_refused_with_its_line(write):
    """C38."""
    assert "line 2: 15 fields where the header has 14" in refused(
        write(DP_AND_DDP.replace(".0", ",0")), 2
    )


def test_a_quoted_thousands_comma_is_refused_with_its_line(write):
    """C38."""
    path = write(csv_text(line("dp", 2, "1,234.5")))
    assert "line 2: throughput_samples_per_s is '1,234.5'" in refused(path, 2)


def test_one_run_a_side_gives_a_ratio_and_no_statement_of_confidence(write):
    """C50."""
    path = write(DP_AND_DDP)
    versus = as_json(path)[1]["versus_baseline"]
    assert (versus["ratio"], versus["ratio_ci"], versus["verdict"]) == (
        pytest.approx(1.62),
        None,
        "undecided",
    )
    text = invoke(path).stdout
    assert not any(word in text for word in ("95 %", "CI", "signif", "confiden", "nan", "inf"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "is empty"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is not a CSV file in UTF-8"),
        (csv_text(line("dp", 2, 1.0, schema_version="7")), "unknown schema_version 7"),
        ("mode,status\n", "has no column schema_version, num_devices, throughput_samples_per_s"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(write, content, reason):
    """C59."""
    assert reason in refused(write(content), 2)


def test_a_missing_path_and_a_folder_without_sessions_are_refused(tmp_path):
    """C59."""
    assert "no such file or folder" in refused(tmp_path / "nowhere", 2)
    assert "has no sessions" in refused(tmp_path, 2)


@pytest.mark.parametrize("content", [csv_text(), csv_text(FAILED)])
def test_a_file_without_a_run_that_succeeded_has_no_results(write, content):
    """C59."""
    assert "no results" in refused(write(content), 1)


@pytest.mark.parametrize("suffix", ["", ".0"])
def test_device_counts_are_ordered_and_divided_as_numbers(write, suffix):
    """C67."""
    throughputs = {16: 1300.0, 2: 190.0, 8: 700.0, 1: 100.0, 4: 370.0}
    lines = [
        line("single" if n == 1 else "ddp", f"{n}{suffix}", t, device_names="X")
        for n, t in throughputs.items()
    ]
    duplicate = line("ddp", f"2{suffix}", 190.0, device_names="X", round="2")
    rows = as_json(write(csv_text(*lines, duplicate)))
    assert [row["num_devices"] for row in rows] == [1, 2, 4, 8, 16]
    assert [row["runs"] for row in rows] == [1, 2, 1, 1, 1]
    efficiencies = [row["scaling_efficiency"] for row in rows]
    assert efficiencies == pytest.approx([1.0, 0.95, 0.925, 0.875, 0.8125])


@pytest.mark.parametrize(("output_format", "first"), [("json", "["), ("csv", "group_machine,")])
def test_machine_readable_formats_are_alone_on_stdout(write, tmp_path, output_format, first):
    write(DP_AND_DDP)
    write("", "s2")
    result = invoke(tmp_path / "results", "--format", output_format)
    assert result.exit_code == 0
    assert result.stdout.startswith(first)
    assert "warning" not in result.stdout
    assert result.stderr == f"warning: {tmp_path}/results/s2/runs.csv is empty\n"


def test_csv_has_one_header_and_one_line_for_each_row(write):
    result = invoke(write(DP_AND_DDP), "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [(row["mode"], row["versus_verdict"]) for row in rows] == [
        ("dp", ""),
        ("ddp", "undecided"),
    ]
    assert float(rows[1]["versus_ratio"]) == pytest.approx(1.62)


def test_markdown_goes_to_stdout(write):
    result = invoke(write(DP_AND_DDP), "--format", "markdown")
    assert result.stdout.startswith("### resnet50, fp32, batch 64 per device, NVIDIA X\n\n| mode |")


def test_baseline_is_the_mode_that_was_given(write):
    path = write(DP_AND_DDP)
    assert as_json(path, "--baseline", "ddp")[0]["versus_baseline"]["ratio"] == pytest.approx(
        100 / 162
    )
    assert as_json(path, "--baseline", "single")[0]["versus_baseline"]["ratio"] is None


def test_margin_is_a_percentage(write):
    rounds = [(mode, n) for n in range(1, 6) for mode in ("dp", "ddp")]
    lines = [line(m, 2, 100.0 if m == "dp" else 103.0, round=str(n)) for m, n in rounds]
    path = write(csv_text(*lines))
    assert as_json(path)[1]["versus_dp"]["verdict"] == "faster"
    assert as_json(path, "--margin", "5")[1]["versus_dp"]["verdict"] == "equivalent"


@pytest.mark.parametrize("margin", ["0", "-1", "100", "nan", "inf", "two"])
def test_a_margin_that_is_no_percentage_is_refused(write, margin):
    result = invoke(write(DP_AND_DDP), "--margin", margin)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--margin" in result.stderr


def test_without_a_path_the_newest_session_with_results_is_taken(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(csv_text(line("single", 1, 1.0)), "20261127T120000Z-aaaaaa")
    write(csv_text(line("single", 1, 2.0)), "20261128T120000Z-aaaaaa")
    write(csv_text(FAILED), "20261129T120000Z-aaaaaa")
    result = invoke("--format", "json")
    [row] = json.loads(result.stdout)
    assert row["throughput_samples_per_s"] == pytest.approx(2.0)
    assert result.stderr == (
        "comparing results/20261128T120000Z-aaaaaa, the newest session; 2 more left out (all of "
        "them: mgpubench compare results)\n"
    )


def test_without_a_path_and_without_results_the_hint_says_how_to_get_some(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke()
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "error: results: no such file or folder",
        "hint: Make results first with: mgpubench run",
    ]


def test_compare_works_with_a_broken_torch(write, tmp_path):
    """C70."""
    fake = tmp_path / "fake" / "torch"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text("raise ImportError('libcuda is broken')\n")
    rounds = [line(m, 2, 100.0 + n, round=str(n)) for n in range(1, 6) for m in ("dp", "ddp")]
    script = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); from mgpubench.cli import main; main()"
    )
    path = write(csv_text(*rounds))
    done = subprocess.run(
        [sys.executable, "-c", script, str(fake.parent), "compare", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "equivalent within 2 %" in done.stdout


def test_prices_give_the_cost_of_a_million_samples(write):
    """100 samples/s on 2 GPUs: 2.778 h x 2 x 0.36 = 2. 0.5 samples/J: 0.5556 kWh x 0.36 = 0.2."""
    path = write(
        DP_AND_DDP.replace("throughput_samples_per_s", "throughput_samples_per_s,samples,energy_j")
        .replace("100.0", "100.0,50,100")
        .replace("162.0", "162.0,50,")
    )
    result = invoke(path, "--price-per-hour", "0.36", "--price-per-kwh", "0.36", "--format", "json")
    dp, ddp = json.loads(result.stdout)
    assert dp["cost_per_million_samples"] == pytest.approx(2.2)
    assert dp["samples_per_joule"] == pytest.approx(0.5)
    assert ddp["cost_per_million_samples"] is None
    table = invoke(path, "--price-per-hour", "0.36").stdout
    assert "cost of 1M" in table
    assert "cost" not in invoke(path).stdout


@pytest.mark.parametrize("price", ["0", "-1", "nan", "inf", "cheap"])
def test_a_price_is_a_number_above_0(write, price):
    assert invoke(write(DP_AND_DDP), "--price-per-hour", price).exit_code == 2


def test_a_price_that_has_no_effect_is_mentioned(write):
    result = invoke(write(DP_AND_DDP), "--price-per-kwh", "0.3")
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: no cost is known: ")
    sides = invoke(
        "--before", write(DP_AND_DDP), "--after", write(DP_AND_DDP), "--price-per-kwh", 1
    )
    assert sides.exit_code == 2
    assert "--price-per-kwh does not go with --before and --after" in sides.stderr
