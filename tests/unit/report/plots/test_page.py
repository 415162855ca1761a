"""The pictures as files and as elements of a page. What they say is tested, not pixels."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mgpubench.config.types import PLOT_FORMATS, PLOT_KINDS
from mgpubench.report.plots import page
from mgpubench.report.plots.measured import MAX_PANELS
from mgpubench.report.plots.style import INK, RIGHT, looks
from tests.unit.report.plots.made import EIGHT, SESSION, TWO, measured, session


def svg(kind: str, records: list, folders: dict[str, Path] | None = None) -> str:
    found = page.svg_of(kind, measured(records, folders))
    assert found is not None
    return found


def words(text: str) -> set[str]:
    """All texts in a picture."""
    return {"".join(each.itertext()).strip() for each in ElementTree.fromstring(text).iter()}


@pytest.fixture
def with_steps(tmp_path: Path) -> dict[str, Path]:
    """The folder of the session, with steps of its first two runs."""
    lines = ["run_id,rank,step,phase,step_time_s,data_wait_s,samples"]
    for run, times in (("001", (0.1, 0.2, 0.3)), ("002", (0.4, 0.5, 0.6))):
        lines += [f"{SESSION}-{run},0,{n},measured,{s},0.0,8" for n, s in enumerate(times, 1)]
    (tmp_path / "steps.csv").write_text("\n".join(lines) + "\n")
    return {SESSION: tmp_path}


def test_the_names_of_the_kinds_are_those_of_the_option() -> None:
    assert tuple(page._KINDS) == PLOT_KINDS


def test_kinds_without_anything_to_draw_do_not_apply(with_steps: dict[str, Path]) -> None:
    one = session({("single", 1): 100.0})[:1]
    assert page.apply(measured(one)) == ()
    assert page.apply(measured(session(TWO))) == ("throughput", "ratios", "runs")
    assert page.apply(measured(session(TWO), with_steps)) == (
        *("throughput", "ratios", "steps", "runs"),
    )
    two = session(TWO) + session(TWO, "20261201T000000Z-000002", torch_version="2.14.1")
    assert page.apply(measured(two)) == ("throughput", "ratios", "runs", "sessions")
    failed = [*session(TWO, status="failed")]
    assert page.apply(measured(failed)) == ("runs",)
    assert page.svg_of("sessions", measured(one)) is None


def test_throughput_has_a_line_for_each_mode_and_the_ideal_one() -> None:
    found = words(svg("throughput", session(EIGHT)))
    assert {"single", "dp", "ddp", "single times devices", "devices", "samples/s"} <= found
    assert "resnet50, synthetic data, 224 px, tf32, batch 64 per device, NVIDIA X" in found


def test_cpu_rows_are_smoke_tests_and_have_no_ideal_line() -> None:
    records = session(TWO, device_type="cpu", device_names="CPU Y")
    found = words(svg("throughput", records))
    assert "single times devices" not in found
    assert any(text.startswith("CPU smoke test, no forecast for GPUs: ") for text in found)


def test_ratios_are_written_with_their_verdicts() -> None:
    found = words(svg("ratios", session(EIGHT)))
    assert {"dp on 2 devices", "dp on 8 devices", "ddp on 8 devices"} <= found
    assert any(re.fullmatch(r"7\.\d{3}, faster", text) for text in found)
    assert any("divided by that of single; band: within 2 %" in text for text in found)


def test_an_interval_is_drawn_from_its_low_end_to_its_high_end() -> None:
    """The axis ends 8 % of the interval's length, and of what lies between it and 1, outside."""
    data = measured(session(TWO))
    (row,) = [row for row in data.rows if row.mode == "dp"]
    assert row.versus_baseline is not None
    assert row.versus_baseline.interval is not None
    low, high = row.versus_baseline.interval
    left, right = min(1, low), max(1, high)
    room = 0.08 * (right - left)
    wide = page.WIDTH - page.LEFT - RIGHT

    def place(ratio: float) -> float:
        share = (ratio - left + room) / (right - left + 2 * room)
        return 72 * (page.LEFT + share * wide)  # 72 points to the inch

    (look,) = looks([("dp", "")])
    lines = re.findall(
        r'd="M ([\d.]+) [\d.]+ \nL ([\d.]+) [\d.]+ \n" [^>]*' + look.colour,
        svg_text := svg("ratios", session(TWO)),
    )
    assert svg_text.count(look.colour) > 1
    ends = [tuple(map(float, line)) for line in lines]
    assert pytest.approx((place(low), place(high)), abs=0.01) in ends


def test_step_times_have_their_medians(with_steps: dict[str, Path]) -> None:
    found = words(svg("steps", session(TWO), with_steps))
    assert {"single on 1 device, 200.0 ms", "dp on 2 devices, 500.0 ms"} <= found


def test_a_long_tail_has_a_logarithmic_axis(with_steps: dict[str, Path], tmp_path: Path) -> None:
    assert "10" not in words(svg("steps", session(TWO), with_steps))
    with (tmp_path / "steps.csv").open("a") as file:
        file.write(f"{SESSION}-001,0,4,measured,10.0,0.0,8\n")
    assert "10000" in words(svg("steps", session(TWO), with_steps))


def test_findings_failures_and_borders_of_sessions_are_marked() -> None:
    first, second = session(TWO), session(TWO, "20261201T000000Z-000002")
    object.__setattr__(first[3], "findings", "busy-machine;drift")
    object.__setattr__(first[4], "status", "failed")
    found = words(svg("runs", first + second))
    marks = "ring: a finding (1 busy-machine, 2 drift); cross: failed or interrupted"
    assert marks in found
    assert "1,2" in found


def test_temperatures_are_in_the_order_of_the_runs() -> None:
    records = session(TWO)
    assert "temperature" not in page.apply(measured(records))
    for run, degrees in zip(records[2:5], (61, 64, 70), strict=True):
        object.__setattr__(run, "gpu_temperature_max_c", degrees)
    text = svg("temperature", records)
    assert "hottest GPU, \N{DEGREE SIGN}C" in words(text)
    description = ElementTree.fromstring(text).find("{*}desc")
    assert description is not None
    # Places 3 and 5 are of single, place 4 is of dp.
    assert description.text == (
        "single on 1 device: 2 runs from 61 to 70 \N{DEGREE SIGN}C, the last one at 70 "
        "\N{DEGREE SIGN}C; dp on 2 devices: 1 run from 64 to 64 \N{DEGREE SIGN}C, the last one at "
        "64 \N{DEGREE SIGN}C"
    )


def test_versions_are_written_where_they_change() -> None:
    ids = [f"2026120{day}T093000Z-00000{day}" for day in (1, 2, 3)]
    records = [
        *session(TWO, ids[0], torch_version="2.13.0"),
        *session(TWO, ids[1], torch_version="2.14.1"),
        *session(TWO, ids[2], torch_version="2.14.1"),
    ]
    text = svg("sessions", records)
    assert {"torch 2.13.0 to 2.14.1", "12-01", "12-03", "09:30"} <= words(text)
    assert "before session 2: torch 2.13.0 to 2.14.1" in text
    assert "before session 3" not in text
    # The work is named without the version that changes.
    assert "resnet50, synthetic data, 224 px, tf32, batch 64 per device, NVIDIA X" in words(text)


@pytest.mark.parametrize("kind", ["throughput", "ratios", "runs"])
def test_names_from_result_files_are_only_text(kind: str) -> None:
    name = "$\\frac{1}{0}$ <script>alert(1)</script> & \u202e\n" + "w" * 90
    records = session(TWO, model=name)
    for record in records:
        if record.mode == "dp":
            object.__setattr__(record, "options", f"a={name}")
    text = svg(kind, records)
    assert "<script" not in text
    assert "\u202e" not in text
    assert any("$\\frac{1}{0}$ <script>alert(1)</script> & ??" in each for each in words(text))


def test_an_element_for_a_page_says_in_words_what_it_shows() -> None:
    text = svg("ratios", session(EIGHT))
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    title, description = root.find(f"{space}title"), root.find(f"{space}desc")
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == "ratios-title ratios-desc"
    assert title is not None
    assert title.get("id") == "ratios-title"
    assert description is not None
    assert re.search(r"ddp on 8 devices against single: 7\.\d+, faster", description.text or "")
    assert root.get("width") is None  # the page says how wide it is


def test_pictures_on_one_page_have_no_id_in_common() -> None:
    data = measured(session(EIGHT))
    ids = [
        each.get("id")
        for kind in ("throughput", "ratios", "runs")
        for each in ElementTree.fromstring(page.svg_of(kind, data) or "").iter()
        if each.get("id")
    ]
    assert len(ids) == len(set(ids)) > 10
    text = page.svg_of("runs", data) or ""
    used = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', text)
    assert {name for pair in used for name in pair if name} <= set(ids)


def test_an_element_has_the_colour_of_its_page_and_no_background() -> None:
    text = svg("ratios", session(EIGHT))
    assert "currentColor" in text
    assert "#010203" not in text
    assert "#ffffff" not in text


@pytest.mark.parametrize("file_format", PLOT_FORMATS)
def test_the_same_results_make_the_same_file(file_format: str) -> None:
    data = measured(session(EIGHT))
    first, second = (page.draw(data, ["throughput", "runs"], file_format) for _ in range(2))
    assert first == second
    begins = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[file_format]
    assert first.startswith(begins)


def test_no_window_library_is_loaded() -> None:
    page.draw(measured(session(TWO)), ["ratios"], "png")
    assert "matplotlib.pyplot" not in sys.modules


def test_so_many_groups_are_drawn_and_the_rest_is_counted() -> None:
    records = [
        run
        for number in range(MAX_PANELS + 2)
        for run in session(TWO, f"s{number}", model=f"model{number}")
    ]
    assert "2 more groups of equal work not drawn." in words(svg("ratios", records))


def test_steps_that_cannot_be_read_are_counted(with_steps: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "steps.csv").write_bytes(b"\0\1 nothing")
    folders = {**with_steps, "other": tmp_path / "other"}
    assert "1 steps.csv cannot be read." in words(svg("steps", session(TWO), folders))


def test_a_long_name_is_cut_and_its_number_of_devices_is_not() -> None:
    records = session({**TWO, ("dp", 4): 210.0}, options="a=" + "w" * 90)
    texts = words(svg("runs", records)) | words(svg("ratios", records))
    for count in (2, 4):
        assert any(
            text.startswith("dp a=ww") and text.endswith(f"w... on {count} devices")
            for text in texts
        )
        assert f"on {count} devices" in texts  # on a line of its own beside the ratios


def test_no_label_ends_outside_of_the_page() -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    records = session(TWO, options="b=" + "W" * 90)
    with page._drawn(measured(records), ["throughput", "runs"]) as figure:
        renderer = FigureCanvasAgg(figure).get_renderer()
        ends = [text.get_window_extent(renderer).x1 for axes in figure.axes for text in axes.texts]
        assert len(ends) > 6
        assert max(ends) <= figure.bbox.x1


def test_a_row_of_one_device_count_is_named_beside_its_point() -> None:
    """A line from its point to the right of the picture would look like data."""
    with page._drawn(measured(session(EIGHT)), ["throughput"]) as figure:
        (axes,) = figure.axes
        places = {text.get_text(): text for text in axes.texts}
        assert places["single"].xy[0] == 1
        assert places["ddp"].get_position()[0] > 1  # a share of the width: right of the axes
        lines = [text for text in axes.texts if getattr(text, "arrow_patch", None)]
        assert {line.xy[0] for line in lines} == {8}


def test_text_has_the_colour_of_text_so_that_it_is_read_on_any_page() -> None:
    data = measured(session(EIGHT))
    with page._drawn(data, page.apply(data)) as figure:
        assert {text.get_color() for axes in figure.axes for text in axes.texts} == {INK}
