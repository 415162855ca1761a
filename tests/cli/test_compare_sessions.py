"""`mgpubench compare` over several sessions: chosen by itself, before and after, and at a gate."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mgpubench.cli import cli
from mgpubench.session.train_resume import newest_training
from tests.conftest import Here, make_run_record
from tests.runs_csv import write_session

TINY = (
    *("run", "--device", "cpu", "--model", "tiny-cnn", "--image-size", 32, "-b", 4),
    *("--warmup-steps", 1, "--steps", 4, "--rounds", 1),
)
Run = Callable[..., Here]
NOISE = (0.999, 1.001, 1.0, 1.002, 0.998, 1.0)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def compare(*arguments: object, code: int = 0) -> Result:
    result = invoke("compare", *arguments)
    assert result.exit_code == code, result.output
    return result


def rows(*arguments: object) -> list[Any]:
    """The rows of the JSON of compare."""
    found: list[Any] = json.loads(compare(*arguments, "--format", "json").stdout)
    return found


def error_of(*arguments: object) -> str:
    """The error of a compare that is refused: in one line, perhaps with a hint."""
    result = compare(*arguments, code=2)
    assert result.stdout == ""
    error, *hint = result.stderr.splitlines()
    assert [line.partition(" ")[0] for line in hint] in ([], ["hint:"])
    assert error.startswith("error: ")
    return error.removeprefix("error: ")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that a test writes goes into its own folder."""
    monkeypatch.chdir(tmp_path)


def session(name: str, levels: Mapping[str, float], rounds: int = 6, **changes: Any) -> Path:
    """A session under results in which each mode has a throughput, with little noise."""
    records = [
        make_run_record(mode, level * NOISE[(number + shift) % 6], round=number + 1, **changes)
        for shift, (mode, level) in enumerate(levels.items())
        for number in range(rounds)
    ]
    return write_session(Path("results"), name, records)


MONDAY, TUESDAY, WEDNESDAY = (f"2026112{day}T120000Z-aaaaaa" for day in (3, 4, 5))


# Without a path.


def test_runs_of_one_mode_each_are_answered_together(run_here: Run, tmp_path: Path) -> None:
    """What people do first: `run --mode dp`, `run --mode ddp`, `compare`."""
    for mode in ("dp", "ddp"):
        made = run_here(*TINY, "--mode", mode, "--gpus", 2, cwd=tmp_path)
        assert made.exit_code == 0, made.err
    result = compare()
    older, newer = sorted(path.name for path in Path("results").iterdir())
    if older[:16] != newer[:16]:  # of the same second any may be the newest
        assert result.stderr == (
            f"comparing results/{newer}, the newest session, with dp of results/{older}; there is "
            "no other\n"
        )
    lines = result.stdout.splitlines()
    assert len([line for line in lines if line.startswith("tiny-cnn, ")]) == 1
    ddp = next(line for line in lines if line.startswith("ddp ")).split()
    assert re.fullmatch(r"\d+\.\d{3}", ddp[-2])
    assert ddp[-1] == "-"
    reason = next(line for line in lines if line.startswith("no verdict for ddp on 2 devices: "))
    assert "no round ran both in one call, and the same machine may differ by several" in reason
    # The command that would give one is a command for the same work.
    command = shlex.split(reason.partition("to get one: ")[2])
    assert command[:4] == ["mgpubench", "run", "--mode", "dp,ddp"]
    plan = invoke(*command[1:], "--dry-run")
    assert plan.exit_code == 0, plan.stderr
    assert plan.stdout.startswith(
        "12 runs of tiny-cnn, 32 px, synthetic, weak scaling: 1 warm-up and 4 measured steps"
    )
    assert {tuple(line.split()[2:5]) for line in plan.stdout.splitlines()[4:]} == {
        ("dp", "2", "4"),
        ("ddp", "2", "4"),
    }


def test_a_session_with_all_modes_is_answered_alone() -> None:
    """The verdict is that session's own, though others could be pooled with it."""
    session(MONDAY, {"dp": 150.0})
    session(TUESDAY, {"ddp": 170.0})
    alone = {"single": 100.0, "dp": 150.0, "ddp": 190.0}
    session(WEDNESDAY, alone)
    result = compare()
    assert result.stderr == (
        f"comparing results/{WEDNESDAY}, the newest session; 2 more left out (all of them: "
        "mgpubench compare results)\n"
    )
    assert "ddp against dp on 2 devices: 1.267x (95 % CI " in result.stdout
    assert result.stdout == compare(f"results/{WEDNESDAY}").stdout
    versus = rows()[2]["versus_dp"]
    assert (versus["pairs"], versus["verdict"], versus["sessions"]) == (6, "faster", 1)


def test_what_a_session_lacks_takes_no_verdict_from_what_it_has() -> None:
    """Single is of another session; dp and ddp are a pair."""
    session(MONDAY, {"single": 100.0, "dp": 120.0})
    session(TUESDAY, {"dp": 150.0, "ddp": 190.0})
    result = compare()
    assert result.stderr == (
        f"comparing results/{TUESDAY}, the newest session, with single of results/{MONDAY}; there "
        "is no other\n"
    )
    single, dp, ddp = rows()
    assert [row["runs"] for row in (single, dp, ddp)] == [6, 6, 6]
    assert (dp["versus_baseline"]["ratio"], dp["versus_baseline"]["verdict"]) == (
        pytest.approx(1.5),
        None,
    )
    assert (ddp["versus_dp"]["verdict"], ddp["versus_dp"]["pairs"]) == ("faster", 6)
    assert "no verdict for dp on 2 devices, ddp on 2 devices: " in result.stdout


def test_sessions_of_other_work_are_left_out() -> None:
    session(MONDAY, {"dp": 150.0}, batch_per_device=32)
    session(TUESDAY, {"ddp": 190.0})
    result = compare()
    assert result.stderr.startswith(
        f"comparing results/{TUESDAY}, the newest session; 1 more left out"
    )
    assert "nothing to compare with: there is no run of single or dp here" in result.stdout


# Baselines.


def test_rows_of_one_mode_with_different_options_meet() -> None:
    records = [
        make_run_record("ddp", level * noise, round=number, options=options)
        for options, level in (("", 100.0), ("bucket_cap_mb=50", 105.0))
        for number, noise in enumerate(NOISE, start=1)
    ]
    folder = write_session(Path("results"), MONDAY, records)
    plain, options = rows(folder, "--baseline", "ddp")
    assert plain["versus_baseline"] is None
    assert options["versus_baseline"]["ratio"] == pytest.approx(1.05)
    plain, options = rows(folder, "--baseline", "ddp/bucket_cap_mb=50")
    assert plain["versus_baseline"]["ratio"] == pytest.approx(1 / 1.05)
    assert plain["versus_baseline"]["baseline"] == "ddp/bucket_cap_mb=50"
    assert options["versus_baseline"] is None


def test_a_baseline_that_is_not_there_is_named_and_no_error() -> None:
    folder = session(MONDAY, {"single": 100.0, "ddp": 190.0})
    result = compare(folder, "--baseline", "my-variant")
    assert "nothing to compare with: there is no run of my-variant here" in result.stdout
    result = compare(folder, "--baseline", "", code=2)
    assert "--baseline" in result.stderr


# A gate.


@pytest.fixture
def slower() -> Path:
    """Ddp is 10 % slower than dp, surely."""
    return session(MONDAY, {"dp": 100.0, "ddp": 90.0})


def gate(*arguments: object, code: int) -> list[str]:
    return compare(*arguments, code=code).stderr.splitlines()


def test_a_gate_is_tripped_by_what_is_surely_slower(slower: Path) -> None:
    for strict in ((), ("--strict",)):
        gate_lines = gate(slower, "--fail-if-slower", "5%", *strict, code=1)
        interval, last = gate_lines
        assert re.fullmatch(
            r"gate 5 %: ddp on 2 devices against dp: tripped, the whole interval "
            r"0\.89\d\.\.0\.90\d is below 0\.95",
            interval,
        )
        assert last == "gate 5 %: tripped"


def test_a_gate_is_passed_by_what_is_surely_not_slower_than_allowed(slower: Path) -> None:
    for strict in ((), ("--strict",)):
        interval, last = gate(slower, "--fail-if-slower", "12", *strict, code=0)
        assert "passed, the whole interval 0." in interval
        assert interval.endswith(" is above 0.88")
        assert last == "gate 12 %: passed"


@pytest.mark.parametrize(("strict", "code"), [((), 0), (("--strict",), 3)])
def test_an_undecided_gate_fails_only_if_it_is_strict(
    slower: Path, strict: tuple[str, ...], code: int
) -> None:
    interval, last = gate(slower, "--fail-if-slower", "10%", *strict, code=code)
    assert re.search(r"undecided, the interval 0\.89\d\.\.0\.90\d contains 0\.9$", interval)
    assert last == "gate 10 %: undecided"


@pytest.mark.parametrize(("strict", "code"), [((), 0), (("--strict",), 3)])
def test_too_few_rounds_leave_a_gate_undecided(strict: tuple[str, ...], code: int) -> None:
    folder = session(MONDAY, {"dp": 100.0, "ddp": 50.0}, rounds=4)
    assert gate(folder, "--fail-if-slower", "5%", *strict, code=code) == [
        "gate 5 %: ddp on 2 devices against dp: undecided, there is no interval",
        "gate 5 %: undecided",
    ]


@pytest.mark.parametrize(("strict", "code"), [((), 0), (("--strict",), 3)])
def test_a_gate_with_nothing_to_check_is_undecided(strict: tuple[str, ...], code: int) -> None:
    folder = session(MONDAY, {"ddp": 50.0})
    assert gate(folder, "--fail-if-slower", "5%", *strict, code=code) == [
        "gate 5 %: ddp on 2 devices, with nothing to compare with: undecided, there is no interval",
        "gate 5 %: undecided",
    ]


def test_a_mode_that_always_failed_does_not_pass_a_gate() -> None:
    records = [
        *(make_run_record("single", 100 * n, round=i) for i, n in enumerate(NOISE, 1)),
        *(make_run_record("dp", 150 * n, round=i) for i, n in enumerate(NOISE[::-1], 1)),
        *(make_run_record("ddp", None, round=i, status="failed") for i in range(1, 7)),
    ]
    folder = write_session(Path("results"), MONDAY, records)
    gate_lines = gate(folder, "--fail-if-slower", "5%", "--strict", code=3)
    assert gate_lines[1:] == [
        "gate 5 %: ddp on 2 devices, of which no run succeeded: undecided, there is no interval",
        "gate 5 %: undecided",
    ]


def test_a_gate_leaves_stdout_as_it_is(slower: Path) -> None:
    tripped = compare(slower, "--fail-if-slower", "5%", "--format", "json", code=1)
    assert tripped.stdout == compare(slower, "--format", "json").stdout


def test_strict_alone_has_no_meaning(slower: Path) -> None:
    assert error_of(slower, "--strict") == "--strict has no meaning without --fail-if-slower"


@pytest.mark.parametrize("option", ["--fail-if-slower", "--margin"])
@pytest.mark.parametrize("value", ["0", "0%", "-5%", "100%", "nan", "inf", "5 percent", "", "%"])
def test_a_percentage_that_is_none_is_refused(slower: Path, option: str, value: str) -> None:
    result = compare(slower, option, value, code=2)
    assert result.stdout == ""
    assert option in result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("Error: ")]) == 1


def test_a_percentage_may_have_its_sign(slower: Path) -> None:
    for text in ("13%", "13", "13 %"):
        assert rows(slower, "--margin", text)[1]["versus_baseline"]["verdict"] == "equivalent"


# Before and after.


def sides(before: float = 100.0, after: float = 90.0, **changes: Any) -> tuple[list[Path], ...]:
    """Three sessions before a change of ddp, and three after it, with other levels of both."""
    levels = (1.0, 1.02, 0.99)
    return (
        [
            session(f"before-{i}", {"single": 100 * level, "ddp": before * level})
            for i, level in enumerate(levels)
        ],
        [
            session(f"after-{i}", {"single": 100 * level, "ddp": after * level}, **changes)
            for i, level in enumerate(levels)
        ],
    )


def test_each_side_takes_all_paths_that_follow_it() -> None:
    before, after = sides()
    result = compare("--before", *before, "--after", *after)
    assert result.stdout.startswith("after against before\n")
    repeated = [word for path in before for word in ("--before", path)]
    repeated += [word for path in after for word in ("--after", path)]
    assert compare(*repeated).stdout == result.stdout
    mixed = ("--after", *after[:1], "--before", *before, "--margin", "2", "--after", *after[1:])
    assert compare(*mixed).stdout == result.stdout


def test_three_sessions_a_side_give_a_verdict() -> None:
    before, after = sides()
    document = json.loads(
        compare("--before", *before, "--after", *after, "--format", "json").stdout
    )
    single, ddp = document["rows"]
    assert (single["mode"], single["throughput"]["ratio"]) == ("single", pytest.approx(1.0))
    assert single["throughput"]["verdict"] == "undecided"
    # The level of the machine is not in the ratio of speed-ups, so that it is much surer.
    for change in (ddp["throughput"], ddp["speedup"]):
        assert (change["ratio"], change["verdict"]) == (pytest.approx(0.9), "slower")
    widths = [
        high - low for low, high in (ddp[name]["interval"] for name in ("throughput", "speedup"))
    ]
    assert widths[0] > 10 * widths[1]
    assert ddp["throughput"]["sessions"] == [3, 3]
    assert document["differences"] == {}


def test_every_difference_is_named() -> None:
    before, after = sides(driver_version="580", environment="0123abcd")
    text = compare("--before", *before, "--after", *after).stdout
    assert "driver_version differs: - before, 580 after" in text
    assert "environment differs: - before, 0123abcd after" in text
    assert "the ratio to single is not moved by a faster machine, and is blind to" in text


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_sessions_give_figures_and_no_verdict(count: int) -> None:
    before, after = sides()
    text = compare("--before", *before[:count], "--after", *after[:count]).stdout
    assert re.search(rf"^ddp +2 +{count}, {count} ", text, re.MULTILINE)
    row = next(line for line in text.splitlines() if line.startswith("ddp ")).split()
    assert (row[6], row[7:]) == ("0.900", ["-", "-", "0.900", "-", "-"])
    sessions = "1 session" if count == 1 else "2 sessions"
    assert f"no verdict with {sessions} on a side: the machine itself changes between" in text


@pytest.mark.parametrize(
    ("allowed", "strict", "code", "result"),
    [("3%", (), 1, "tripped"), ("20%", (), 0, "passed"), ("10%", ("--strict",), 3, "undecided")],
)
def test_a_gate_holds_after_against_before(
    allowed: str, strict: tuple[str, ...], code: int, result: str
) -> None:
    before, after = sides()
    gate_lines = gate(
        *("--before", *before, "--after", *after, "--fail-if-slower", allowed, *strict), code=code
    )
    assert gate_lines[-1] == f"gate {allowed.replace('%', ' %')}: {result}"
    assert gate_lines[1].startswith(
        f"gate {allowed.replace('%', ' %')}: ddp on 2 devices after against before: "
    )


def test_a_baseline_that_always_failed_does_not_pass_a_gate() -> None:
    """The others are then compared with dp, which nobody asked for."""
    records = [
        *(make_run_record("single", None, round=i, status="failed") for i in range(1, 7)),
        *(make_run_record("dp", 150 * n, round=i) for i, n in enumerate(NOISE, 1)),
        *(make_run_record("ddp", 160 * n, round=i) for i, n in enumerate(NOISE[::-1], 1)),
    ]
    folder = write_session(Path("results"), MONDAY, records)
    gate_lines = gate(folder, "--fail-if-slower", "5%", "--strict", code=3)
    assert gate_lines[0] == (
        "gate 5 %: single on 1 device, of which no run succeeded: undecided, there is no interval"
    )


def test_a_gate_is_undecided_if_a_table_lacks_the_baseline() -> None:
    whole = session("whole", {"dp": 100.0, "ddp": 150.0})
    alone = session("alone", {"ddp": 100.0}, model="mlp")
    gate_lines = gate(
        alone, whole, "--baseline", "dp", "--fail-if-slower", "3%", "--strict", code=3
    )
    assert (
        "gate 3 %: ddp on 2 devices, with nothing to compare with: undecided, there is no interval"
        in gate_lines
    )


def test_a_gate_is_undecided_if_a_mode_no_longer_runs() -> None:
    before, after = sides()
    without = [session(f"{path.name}-2", {"single": 100.0}) for path in after]
    gate_lines = gate(
        *("--before", *before, "--after", *without, "--fail-if-slower", "20%", "--strict"), code=3
    )
    assert "gate 20 %: ddp on 2 devices, only before: undecided, there is no interval" in gate_lines


REFUSED: list[tuple[str, str]] = [
    ("--before {b}", "--before and --after need each other"),
    ("--after {a}", "--before and --after need each other"),
    ("{x} --before {b} --after {a}", "{x} is neither after --before nor after --after"),
    ("--before {b} --margin 2 {x} --after {a}", "{x} is neither after --before nor after --after"),
    ("--before {b} --after {a} --baseline dp", "--baseline does not go with --before and --after"),
    ("--before {b} --after {b}", "--before and --after share session before-0"),
    ("--before {b} --after {a} {b}", "--before and --after share session before-0"),
    ("--before {b} {x} --after {a}", "--before holds runs of different work: they differ in model"),
    ("--before {b} --after {a} --format csv", "--format csv does not go with --before and --after"),
    ("--before {b} --after nowhere", "nowhere: no such file or folder"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_sides_that_make_no_sense_are_refused(arguments: str, message: str) -> None:
    (before, *_), (after, *_) = sides()
    names = {"b": before, "a": after, "x": session("other", {"ddp": 1.0}, model="mlp")}
    assert error_of(*arguments.format(**names).split()) == message.format(**names)


@pytest.mark.parametrize("arguments", ["--before", "--before --after x", "--before x --after"])
def test_a_side_without_a_path_is_refused(arguments: str) -> None:
    """The variable of a script is unset. It must not compare something else instead."""
    sides()
    result = compare(*arguments.split(), code=2)
    assert result.stdout == ""
    assert "requires an argument" in result.stderr


def test_sides_without_a_mode_in_common_have_no_results() -> None:
    first = session("one", {"dp": 1.0})
    second = session("two", {"ddp": 1.0})
    result = compare("--before", first, "--after", second, code=1)
    assert result.stderr.startswith("error: --before and --after have no mode on as many devices")


def test_markdown_has_the_same_table() -> None:
    before, after = sides()
    result = compare("--before", *before, "--after", *after, "--format", "markdown")
    assert result.stdout.startswith("### after against before\n\n| mode | devices | sessions")


def test_sessions_from_the_future_are_named(tmp_path: Path) -> None:
    """A wrong clock would make one of them the newest until it has passed."""
    session("20991231T000000Z-aaaaaa", {"single": 100.0, "ddp": 100.0})
    session(MONDAY, {"single": 100.0, "ddp": 190.0})
    result = compare()
    warning, comparing, *_ = result.stderr.splitlines()
    assert warning.startswith(
        "warning: results/20991231T000000Z-aaaaaa is dated in the future: is the clock"
    )
    assert comparing.startswith(f"comparing results/{MONDAY}, the newest session")
    assert "1.900" in result.stdout
    for training in ("20991231T000000Z-aaaaaa", MONDAY):
        for name in ("session.json", "epochs.csv"):
            (Path("results") / training / name).touch()
    assert newest_training(Path("results")).name == MONDAY


def test_what_keeps_sessions_of_one_mode_each_apart_is_named_with_the_command(
    tmp_path: Path,
) -> None:
    """`run --mode single`, `run --mode dp`, `run --mode ddp`: single had all cores for itself."""
    images = {"data": "imagefolder:photos", "warmup_steps": 20, "machine": "m"}
    session(MONDAY, {"single": 100.0}, workers_per_device=4, **images)
    session(TUESDAY, {"dp": 150.0}, workers_per_device=2, **images)
    session(WEDNESDAY, {"ddp": 190.0}, workers_per_device=2, **images)
    result = compare()
    comparing, note = result.stderr.splitlines()
    assert comparing.startswith(f"comparing results/{WEDNESDAY}, the newest session, with dp of")
    assert note.startswith(
        f"note: results/{MONDAY} has single too, for other work: workers_per_device is 4 there and "
        "2 here; to get one table: mgpubench run --mode single,dp,ddp --gpus 2 "
    )
    assert "--workers-per-gpu 2" in note
    assert "ddp" in result.stdout


@pytest.mark.parametrize(
    "other", [{"model": "vgg11"}, {"device_names": "1x NVIDIA Z", "machine": "n"}]
)
def test_sessions_about_another_question_are_not_named(tmp_path: Path, other: Any) -> None:
    images = {"data": "imagefolder:photos", "machine": "m"}
    session(MONDAY, {"single": 100.0}, **{**images, **other})
    session(TUESDAY, {"ddp": 190.0}, **images)
    assert "note:" not in compare().stderr


@pytest.mark.parametrize("folder", ["results", None])
def test_a_part_of_the_gpus_is_said_to_be_another_machine(
    tmp_path: Path, folder: str | None
) -> None:
    """single under CUDA_VISIBLE_DEVICES=0 is not divided by ddp under 0,1."""
    session(MONDAY, {"single": 100.0}, machine="aaaaaaaa", device_names="1x NVIDIA X")
    session(TUESDAY, {"ddp": 190.0}, machine="bbbbbbbb", device_names="2x NVIDIA X")
    result = compare(*([folder] if folder else []))
    text = result.stdout if folder else result.stderr
    assert "leave CUDA_VISIBLE_DEVICES as it is, and choose with --gpus" in text
    session(WEDNESDAY, {"ddp": 190.0}, machine="aaaaaaaa", device_names="2x NVIDIA X")
    assert "CUDA_VISIBLE_DEVICES" not in compare(f"results/{MONDAY}", f"results/{WEDNESDAY}").stdout
