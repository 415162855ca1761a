"""telemetry.csv is read as far as it is whole, and odd rows are left out."""

from __future__ import annotations

from pathlib import Path

from mgpubench.results.clock_reasons import names_of_reasons
from mgpubench.results.csv_format import append_records
from mgpubench.results.telemetry import (
    TELEMETRY_COLUMNS,
    TelemetryFile,
    TelemetryRecord,
    by_device,
    read_telemetry,
)


def make_file(path: Path, *records: TelemetryRecord) -> Path:
    path.write_text(",".join(TELEMETRY_COLUMNS) + "\n")
    append_records(path, TELEMETRY_COLUMNS, records)
    return path


def record(clock_s: float, device: str = "GPU-0", **figures: object) -> TelemetryRecord:
    return TelemetryRecord(sampled_at="now", clock_s=clock_s, device=device, **figures)  # type: ignore[arg-type]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = make_file(
        tmp_path / "telemetry.csv",
        record(1.5, utilization=0.98, temperature_c=61, clock_reasons="heat;power-brake"),
        record(1.5, "GPU-1", error="lost (NVML error 15)"),
        record(2.5, energy_j=12.25),
    )
    first, second, third = read_telemetry(path)
    assert (first.clock_s, first.device, first.utilization) == (1.5, "GPU-0", 0.98)
    assert (first.temperature_c, first.power_w) == (61, None)
    assert first.clock_reasons == "heat;power-brake"
    assert second.is_lost
    assert not first.is_lost
    assert third.energy_j == 12.25
    assert by_device([first, second, third]) == {"GPU-0": [first, third], "GPU-1": [second]}


def test_rows_that_are_no_samples_are_left_out(tmp_path: Path) -> None:
    path = make_file(tmp_path / "telemetry.csv", record(1.0), record(2.0))
    text = path.read_text()
    path.write_text(f"{text}a,b\n{text.splitlines()[1].replace('1.0', '1,0')}\n{text}")
    assert [sample.clock_s for sample in read_telemetry(path)] == [1.0, 2.0, 1.0, 2.0]


def test_new_rows_are_read_once_and_unfinished_ones_later(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.csv"
    file = TelemetryFile(path)
    assert list(file.new_samples()) == []
    make_file(path, record(1.0))
    file.skip()
    append_records(path, TELEMETRY_COLUMNS, [record(2.0)])
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    assert list(file.new_samples()) == []
    path.write_bytes(whole)
    assert [sample.clock_s for sample in file.new_samples()] == [2.0]
    assert list(file.new_samples()) == []


def test_reasons_by_their_bits() -> None:
    assert names_of_reasons(0) == []
    assert names_of_reasons(0x1 | 0x8 | 0x20) == ["idle", "hardware-slowdown", "heat"]
    assert names_of_reasons(0x1000) == ["0x1000"]
