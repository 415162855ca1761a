"""What is read: every run that can be trusted, and a warning or a refusal for the rest."""

import csv
import io
import os
import struct
from pathlib import Path

import pytest

from mgpubench.errors import ResultsUnreadable
from mgpubench.results.read import (
    count_sessions,
    read_runs,
    read_sessions,
    sessions_newest_first,
)

HEADER = ["schema_version", "run_id", "status", "mode", "num_devices", "throughput_samples_per_s"]


def row(**changes):
    """One row of the smallest valid file, as cells by column."""
    cells = dict(zip(HEADER, ["1", "", "ok", "dp", "2", "100.5"], strict=True))
    return cells | changes


def csv_text(*rows, header=None):
    columns = header or list(dict.fromkeys(HEADER + [name for cells in rows for name in cells]))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


@pytest.fixture
def write(tmp_path):
    """Write a runs.csv into a session folder of the given name, and return its path."""

    def write_file(content, session="s1"):
        path = tmp_path / session / "runs.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


def test_columns_that_are_not_there_are_unknown(write):
    [record] = read_runs(write(csv_text(row()))).records
    assert record.throughput_samples_per_s == 100.5
    assert (record.window_s, record.channels_last, record.machine) == (None, None, "")


def test_a_row_of_an_older_version_has_neutral_values_in_the_columns_that_came_later(write):
    """As if it had been made in one sitting, without variants and by a fixed number of rounds."""
    [record] = read_runs(write(csv_text(row()))).records
    assert (record.variant, record.variant_number, record.sitting) == ("", None, None)
    assert (record.environment, record.method_version) == ("", None)
    assert (record.rounds_added, record.step_time_change) == (None, None)


def test_the_columns_that_came_later_are_read(write):
    cells = {"variant": "cap50", "variant_number": "2", "sitting": "3", "rounds_added": "0"}
    cells |= {"environment": "none", "method_version": "2", "step_time_change": "-0.0125"}
    [record] = read_runs(write(csv_text(row(**cells)))).records
    assert (record.variant, record.variant_number, record.sitting) == ("cap50", 2, 3)
    assert (record.environment, record.method_version) == ("none", 2)
    assert (record.rounds_added, record.step_time_change) == (0, -0.0125)


@pytest.mark.parametrize("missing", [name for name in HEADER if name != "run_id"])
def test_a_file_without_a_needed_column_is_refused_by_its_name(write, missing):
    header = [name for name in HEADER if name != missing]
    cells = row()
    del cells[missing]
    with pytest.raises(ResultsUnreadable, match=f"has no column {missing}"):
        read_runs(write(csv_text(cells, header=header)))


def test_unknown_columns_are_ignored(write):
    [record] = read_runs(write(csv_text(row(moon_phase="full")))).records
    assert record.mode == "dp"


def test_a_column_that_stands_twice_is_refused(write):
    text = csv_text(row()).replace("run_id", "mode")
    with pytest.raises(ResultsUnreadable, match="more than one column mode"):
        read_runs(write(text))


@pytest.mark.parametrize("text", ["None", "NA", "n/a", "nan", "", " x ", "-"])
def test_text_is_taken_literally(write, text):
    [record] = read_runs(write(csv_text(row(precision=text)))).records
    assert record.precision == text


@pytest.mark.parametrize(
    ("cell", "value"), [("8", 8), ("8.0", 8), ("8.", 8), (" 8 ", 8), ("8e0", 8), ("+8", 8)]
)
def test_a_whole_number_may_have_been_through_a_spreadsheet(write, cell, value):
    [record] = read_runs(write(csv_text(row(num_devices=cell)))).records
    assert (record.num_devices, type(record.num_devices)) == (value, int)


def test_a_number_too_large_for_a_float_keeps_its_digits(write):
    [record] = read_runs(write(csv_text(row(seed=str(2**62 + 1))))).records
    assert record.seed == 2**62 + 1


@pytest.mark.parametrize(("cell", "value"), [("true", True), ("FALSE", False), ("", None)])
def test_truth_values_may_have_been_through_a_spreadsheet(write, cell, value):
    [record] = read_runs(write(csv_text(row(compiled=cell)))).records
    assert record.compiled is value


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_devices": "two"}, "num_devices is 'two', which is not a number like 1234.5"),
        ({"num_devices": "8.5"}, "num_devices is '8.5', which is not a whole number"),
        ({"num_devices": "0"}, "num_devices is 0"),
        ({"num_devices": ""}, "num_devices is empty"),
        ({"num_devices": "1_0"}, "num_devices is '1_0'"),
        ({"num_devices": "\u0662"}, "num_devices is"),
        ({"mode": ""}, "mode is empty"),
        ({"status": "OK"}, "status is 'OK', which is not one of ok, failed, interrupted"),
        ({"compiled": "1"}, "compiled is '1', which is not true or false"),
        ({"throughput_samples_per_s": "1,234.5"}, "throughput_samples_per_s is '1,234.5'"),
        ({"throughput_samples_per_s": ""}, "status is ok, and throughput_samples_per_s is empty"),
        ({"throughput_samples_per_s": "0"}, "throughput_samples_per_s is 0.0"),
        ({"throughput_samples_per_s": "-3"}, "throughput_samples_per_s is -3.0"),
        ({"throughput_samples_per_s": "nan"}, "throughput_samples_per_s is 'nan'"),
        ({"throughput_samples_per_s": "inf"}, "throughput_samples_per_s is 'inf'"),
        ({"throughput_samples_per_s": "1e999"}, "throughput_samples_per_s is '1e999'"),
        ({"throughput_samples_per_s": "1e300"}, "throughput_samples_per_s is 1e+300"),
        ({"samples": "800", "window_s": "7.8"}, "samples / window_s is 800 / 7.8"),
        ({"samples": "800", "window_s": "0"}, "samples / window_s is 800 / 0.0"),
        ({"window_s": "-1"}, "window_s is -1.0, and cannot be negative"),
        ({"data_wait_s": "-0.5"}, "data_wait_s is -0.5, and cannot be negative"),
        (
            {"samples": "800", "global_batch": "16", "steps": "49"},
            "samples is 800, and global_batch x steps is 16 x 49",
        ),
        ({"machine": "a\0b"}, "holds bytes that are not text"),
    ],
)
def test_a_faulty_row_is_skipped_with_its_line_and_refused_where_it_is_the_only_one(
    write, changes, reason
):
    """C38: a quoted '1,234.5' is never a wrong number."""
    path = write(csv_text(row(), row(**changes)))
    reading = read_runs(path)
    assert len(reading.records) == 1
    assert len(reading.warnings) == 1
    assert reading.warnings[0].startswith(f"{path}: line 3: ")
    assert reason in reading.warnings[0]
    with pytest.raises(ResultsUnreadable, match=r"line 2: .*no row of the file can be used") as no:
        read_runs(write(csv_text(row(**changes))))
    assert reason in no.value.message


def test_throughput_may_differ_from_samples_over_window_by_rounding(write):
    text = csv_text(row(throughput_samples_per_s="100.9", samples="800", window_s="8"))
    assert len(read_runs(write(text)).records) == 1


def test_a_failed_row_needs_no_throughput(write):
    text = csv_text(row(status="failed", throughput_samples_per_s=""))
    [record] = read_runs(write(text)).records
    assert (record.status, record.throughput_samples_per_s) == ("failed", None)


def test_a_header_only_file_is_readable_and_empty(write):
    reading = read_runs(write(csv_text()))
    assert (reading.records, reading.warnings) == ([], [])


def test_a_repeated_header_is_skipped_with_its_line(write):
    """C36."""
    path = write(csv_text(row()) + csv_text(row(mode="ddp")))
    reading = read_runs(path)
    assert [record.mode for record in reading.records] == ["dp", "ddp"]
    assert reading.warnings == [f"{path}: line 3: a repeated header; skipped"]


def test_an_unquoted_decimal_comma_is_skipped_with_its_line(write):
    """C38."""
    path = write(csv_text(row(), row(throughput_samples_per_s="DECIMAL")).replace("DECIMAL", "9,5"))
    reading = read_runs(path)
    assert len(reading.records) == 1
    assert reading.warnings == [f"{path}: line 3: 7 fields where the header has 6; skipped"]


def test_a_file_with_decimal_commas_only_is_refused_with_the_first_line(write):
    """C38."""
    text = csv_text(row(throughput_samples_per_s="X"), row(throughput_samples_per_s="X"))
    with pytest.raises(ResultsUnreadable, match=r"runs\.csv: line 2: 7 fields"):
        read_runs(write(text.replace("X", "9,5")))


def test_a_file_separated_by_semicolons_is_refused_by_the_semicolon(write):
    """C38."""
    with pytest.raises(ResultsUnreadable, match="separated by ';'"):
        read_runs(write(csv_text(row()).replace(",", ";").replace(".", ",")))


def test_a_byte_order_mark_carriage_returns_and_blank_lines_are_accepted(write):
    text = "\ufeff" + csv_text(row()).replace("\n", "\r\n") + ",,,,,\r\n\r\n"
    reading = read_runs(write(text))
    assert (len(reading.records), reading.warnings) == (1, [])


def test_a_last_line_that_was_cut_short_is_skipped(write):
    path = write(csv_text(row(), row())[:-7])
    reading = read_runs(path)
    assert len(reading.records) == 1
    assert reading.warnings == [f"{path}: line 3: 5 fields where the header has 6; skipped"]


def test_a_last_line_that_was_cut_within_a_character_is_skipped(write):
    reading = read_runs(write(csv_text(row(), row(machine="Käfer")).encode()[:-6] + b"\xc3"))
    assert len(reading.records) == 1
    assert reading.warnings[0].endswith("line 3: holds bytes that are not text; skipped")


def test_a_lost_quotation_mark_never_joins_two_runs_into_one(write):
    header = ",".join([*HEADER, "error", "device_names"])
    lines = [
        header,
        '1,a,ok,dp,2,100,"cut',
        '1,b,ok,ddp,2,200,"x, y",2x A',
        "1,c,ok,ddp,2,300,,2x A",
    ]
    path = write("\n".join(lines) + "\n")
    reading = read_runs(path)
    assert [record.run_id for record in reading.records] == ["c"]
    assert reading.warnings[0].startswith(f"{path}: lines 2 to 3: not valid CSV")


def test_a_file_cut_or_damaged_at_any_byte_is_read_or_refused_and_never_crashes(write):
    content = csv_text(row(machine='a"b\nc'), row(mode="ddp", precision="ä")).encode()
    damaged = [content[:end] for end in range(len(content))]
    damaged += [
        content[:place] + bytes([byte]) + content[place + 1 :]
        for place in range(len(content))
        for byte in (0, 0x22, 0x2C, 0x0D, 0xFF)
    ]
    outcomes = set()
    for bad in damaged:
        try:
            outcomes.add(len(read_runs(write(bad)).records))
        except ResultsUnreadable:
            outcomes.add("refused")
    assert outcomes == {0, 1, 2, "refused"}


@pytest.mark.parametrize("version", ["2", "0", "99"])
def test_an_unknown_schema_version_is_refused_by_its_number(write, version):
    text = csv_text(row(schema_version=version, status="maybe"))
    with pytest.raises(ResultsUnreadable, match=f"unknown schema_version {version};") as caught:
        read_runs(write(text))
    assert "update this one" in caught.value.hint


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR", "not a CSV file in UTF-8"),
        ("schema_version,mode".encode("utf-16"), "not a CSV file in UTF-8"),
        (b"\0" * 4096, "not a CSV file in UTF-8"),
        (b"x" * 200_000, "not a CSV file in UTF-8"),
        (b"hello\n", "has no column schema_version, status, mode, num_devices, throughput"),
    ],
)
def test_what_is_no_result_file_is_refused_with_its_path(write, content, reason):
    """C59."""
    path = write(content)
    with pytest.raises(ResultsUnreadable, match=reason) as caught:
        read_runs(path)
    assert caught.value.exit_code == 2
    assert str(path) in caught.value.message


def test_a_missing_path_and_a_folder_without_sessions_are_refused(tmp_path):
    """C59."""
    with pytest.raises(ResultsUnreadable, match="nowhere: no such file or folder"):
        read_sessions([tmp_path / "nowhere"])
    with pytest.raises(ResultsUnreadable, match="has no sessions") as caught:
        read_sessions([tmp_path])
    assert str(tmp_path) in caught.value.message


def test_a_folder_named_runs_csv_is_no_session(tmp_path):
    (tmp_path / "s1" / "runs.csv").mkdir(parents=True)
    with pytest.raises(ResultsUnreadable, match="has no sessions"):
        read_sessions([tmp_path])


def test_a_file_a_session_and_a_root_are_read_and_overlaps_once(write, tmp_path):
    first = write(csv_text(row(mode="single", num_devices="1")), "s1")
    second = write(csv_text(row(mode="dp")), "s2")
    (tmp_path / "link").symlink_to(second.parent)
    reading = read_sessions([second, tmp_path, first.parent, tmp_path / "link", Path(first)])
    assert sorted(record.mode for record in reading.records) == ["dp", "single"]
    assert reading.warnings == []


def test_good_files_beside_unreadable_ones_are_used_with_a_warning_for_each(write, tmp_path):
    write(csv_text(row()), "s1")
    empty = write("", "s2")
    reading = read_sessions([tmp_path, tmp_path / "nowhere"])
    assert len(reading.records) == 1
    assert reading.warnings == [
        f"{tmp_path / 'nowhere'}: no such file or folder",
        f"{empty} is empty",
    ]


def test_if_nothing_is_readable_the_first_reason_and_the_count_are_shown(write, tmp_path):
    first = write("", "s1")
    write("", "s2")
    with pytest.raises(ResultsUnreadable) as caught:
        read_sessions([tmp_path])
    assert caught.value.message == f"{first} is empty (and 1 more that cannot be used)"


def test_a_copied_session_is_counted_once(write, tmp_path):
    text = csv_text(row(run_id="a"), row(run_id="b"))
    write(text, "s1")
    copy = write(text + "1,c,ok,dp,2,100\n", "s2")
    reading = read_sessions([tmp_path])
    assert [record.run_id for record in reading.records] == ["a", "b", "c"]
    assert reading.warnings == [
        f"{copy}: left out 2 of 3 runs, whose run_id was already read from another file"
    ]


def test_a_repeated_line_is_one_run(tmp_path: Path) -> None:
    line = row(run_id="a", session_id="s")
    path = tmp_path / "runs.csv"
    path.write_text(csv_text(line, line, line), encoding="utf-8")
    reading = read_sessions([path])
    assert len(reading.records) == 1
    assert reading.warnings == [
        f"{path}: left out 2 of 3 runs, which repeat or contradict another run of the same run_id"
    ]


def test_of_a_run_that_was_repeated_only_the_last_attempt_counts(tmp_path: Path) -> None:
    failed = row(run_id="a", session_id="s", status="failed", throughput_samples_per_s="")
    made = row(run_id="a", session_id="s")
    other = row(run_id="b", session_id="s", status="failed", throughput_samples_per_s="")
    path = tmp_path / "runs.csv"
    path.write_text(csv_text(failed, failed, made, other), encoding="utf-8")
    reading = read_sessions([path])
    assert [(r.run_id, r.status) for r in reading.records] == [("a", "ok"), ("b", "failed")]
    assert reading.warnings == []


def test_of_two_figures_for_one_run_none_is_used(tmp_path: Path) -> None:
    lines = [row(run_id="a", throughput_samples_per_s=rate) for rate in ("100.0", "200.0")]
    path = tmp_path / "runs.csv"
    path.write_text(csv_text(*lines, row(run_id="b")), encoding="utf-8")
    reading = read_sessions([path])
    assert [record.run_id for record in reading.records] == ["b"]
    assert "left out 2 of 3 runs, which repeat or contradict" in reading.warnings[0]


def test_rows_without_run_id_are_all_kept(write, tmp_path):
    write(csv_text(row(), row()), "s1")
    write(csv_text(row()), "s2")
    assert len(read_sessions([tmp_path]).records) == 3


def test_sessions_come_newest_first_and_those_with_names_of_their_own_last(write, tmp_path):
    first = write(csv_text(row()), "20261127T120000Z-ffffff").parent
    second = write(csv_text(row(), row()), "20261128T120000Z-000000").parent
    write("", "20261130T120000Z-000000")  # interrupted at its start
    copy = write(csv_text(row()), "zz-copy").parent
    found = list(sessions_newest_first(tmp_path))
    assert [folder for folder, _ in found] == [second, first, copy]
    assert [len(records) for _, records in found] == [2, 1, 1]
    assert count_sessions(tmp_path) == 3


def test_the_published_example_is_the_newest_session_if_there_is_no_other(write, tmp_path):
    example = write(csv_text(row()), "example").parent
    assert [folder for folder, _ in sessions_newest_first(tmp_path)] == [example]
    own = write(csv_text(row()), "20261127T120000Z-ffffff").parent
    assert [folder for folder, _ in sessions_newest_first(tmp_path)] == [own]


def test_without_a_session_there_is_no_newest_one(tmp_path):
    with pytest.raises(ResultsUnreadable, match="has no sessions"):
        next(sessions_newest_first(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(write):
    path = write(csv_text(row()))
    path.chmod(0)
    with pytest.raises(ResultsUnreadable, match="cannot be read: Permission denied"):
        read_runs(path)


FAILED = row(run_id="a", status="failed", throughput_samples_per_s="")


def test_a_figure_counts_with_failures_of_its_run_before_and_after_it(write, tmp_path):
    write(csv_text(FAILED, row(run_id="a"), FAILED | {"status": "interrupted"}))
    reading = read_sessions([tmp_path])
    assert [record.status for record in reading.records] == ["ok"]
    assert reading.warnings == []


def test_a_copy_made_before_a_run_was_repeated_hides_nothing(write, tmp_path):
    write(csv_text(FAILED), "backup")
    write(csv_text(FAILED, row(run_id="a")), "session")
    reading = read_sessions([tmp_path / "backup", tmp_path / "session"])
    assert [record.status for record in reading.records] == ["ok"]
    assert reading.warnings == []


def test_two_copies_that_were_resumed_separately_contradict_each_other(write, tmp_path):
    one = write(csv_text(FAILED, row(run_id="a")), "s1")
    other = write(csv_text(FAILED, row(run_id="a", throughput_samples_per_s="200.0")), "s2")
    reading = read_sessions([tmp_path])
    assert reading.records == []
    assert reading.warnings == [
        f"{path}: left out 1 of 2 runs, which repeat or contradict another run of the same run_id"
        for path in (one, other)
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mode": "dq"}, "mode is 'dq', which is not one of single, dp, ddp"),
        ({"effective_mode": "ddp"}, "mode is 'dp', and effective_mode 'ddp'"),
        (
            {"throughput_per_device_samples_per_s": "12.5"},
            "throughput_per_device_samples_per_s is 12.5, and throughput_samples_per_s / "
            "num_devices is 100.5 / 2",
        ),
        ({"position": "-1"}, "position is -1, and cannot be negative"),
        ({"recompiles": "-1"}, "recompiles is -1, and cannot be negative"),
        ({"window_s": "0"}, "samples / window_s is None / 0.0"),
        ({"peak_memory_bytes": "1.18E+10"}, "not whole numbers joined by ';'"),
    ],
)
def test_a_row_that_contradicts_itself_is_left_out(write, changes, words):
    reading = read_runs(write(csv_text(row(), row(**changes))))
    assert len(reading.records) == 1
    assert words in reading.warnings[0]


def test_an_unfinished_last_line_leaves_a_readable_file(write):
    """The disk was full when the first row was written."""
    reading = read_runs(write(csv_text(row())[:-10]))
    assert reading.records == []
    assert "line 2: " in reading.warnings[0]


def test_a_last_line_without_its_end_is_left_out(write):
    """Its last cell may be cut off; --resume makes its run again."""
    reading = read_runs(write(csv_text(row(), row(mode="ddp")).removesuffix("\n")))
    assert [record.mode for record in reading.records] == ["dp"]
    assert (
        "line 3: the last line has no line feed, so its last cell may be cut off"
        in reading.warnings[0]
    )
    assert len(read_runs(write(csv_text(row()).replace("\n", "\r\n"), "s2")).records) == 1


def test_the_published_example_is_shown_only_where_it_is_named(write, tmp_path):
    example = write(csv_text(row(run_id="e")), "example")
    assert [record.run_id for record in read_sessions([tmp_path]).records] == ["e"]
    write(csv_text(row(run_id="own")), "s1")
    assert [record.run_id for record in read_sessions([tmp_path]).records] == ["own"]
    both = read_sessions([tmp_path, example.parent])
    assert [record.run_id for record in both.records] == ["own", "e"]
