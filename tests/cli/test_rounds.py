"""`mgpubench run`: rounds that are added, and rounds that are made again."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mgpubench.cli import cli
from mgpubench.cli.options import parse_duration
from mgpubench.config.run_config import RunConfig
from mgpubench.errors import RunFailed
from mgpubench.results.rank_record import RankRecord
from mgpubench.results.read import read_runs
from mgpubench.results.schema import RunRecord
from mgpubench.session.workers import launch_run
from tests.conftest import Here

TINY = (
    *("run", "--device", "cpu", "--model", "tiny-cnn", "--image-size", 32, "-b", 4),
    *("--warmup-steps", 1, "--steps", 4, "--rounds", 1, "--out", "out"),
)
BOTH = (*TINY, "--mode", "single,ddp", "--gpus", 2)
Run = Callable[..., Here]
Row = dict[str, str]


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that a test writes goes into its own folder."""
    monkeypatch.chdir(tmp_path)


def only_session() -> Path:
    (folder,) = Path("out").iterdir()
    return folder


def records(folder: Path) -> list[RunRecord]:
    """All rows of a session, those of earlier sittings too."""
    return read_runs(folder / "runs.csv").records


def steps_of(folder: Path) -> Counter[str]:
    """How many steps each run has in steps.csv."""
    with (folder / "steps.csv").open(newline="") as file:
        return Counter(row["run_id"] for row in csv.DictReader(file))


def notes(command: Here) -> list[str]:
    """Without those about other work on this machine."""
    lines = [line for line in command.err.splitlines() if line.startswith("note: ")]
    return [line for line in lines if not line.startswith("note: the load average")]


def compared(folder: Path) -> list[Row]:
    result = invoke("compare", folder, "--format", "json")
    assert result.exit_code == 0, result.stderr
    rows: list[Row] = json.loads(result.stdout)
    return rows


# What is refused.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--until", "never"), "--until is never, and must be decided or a percentage such as 2%"),
        (("--until", "2"), "--until is 2, and must be decided or a percentage such as 2%"),
        (("--until", "0%"), "--until is 0%, and must be decided or a percentage such as 2%"),
        (("--until", "100%"), "--until is 100%, and must be"),
        (("--until", "nan%"), "--until is nan%, and must be"),
        (("--until", ""), "--until is empty"),
        (("--max-rounds", 9), "--max-rounds has no meaning without --until"),
        (("--until", "decided", "--max-rounds", 0), "--max-rounds is 0, and must be at least 1"),
        (("--until", "decided", "--rounds", 51), "--rounds 51 is more than --max-rounds 50"),
        (
            ("--until", "2%", "--rounds", 9, "--max-rounds", 8),
            "--rounds 9 is more than --max-rounds 8",
        ),
        (("--duration", "1h", "--rounds", 3), "--duration and --rounds exclude each other"),
        (("--duration", "0s"), "--duration is 0 seconds, and must be above 0 and at most"),
        (("--cool-down", -1), "--cool-down is -1, and must be from 0 to 2592000 seconds"),
        (("--cool-down", "nan"), "--cool-down is nan, and must be from 0 to 2592000 seconds"),
        (("--resume-only-missing",), "--resume-only-missing needs --resume SESSION"),
        (("--resume", "x", "--cool-down", 1), "--cool-down and --resume exclude each other"),
        (("--resume", "x", "--aa"), "--aa and --resume exclude each other"),
        (("--resume", "x", "--steps", 9), "--steps and --resume exclude each other"),
        (("--resume", "x"), "--resume x: x/session.json cannot be read: No such file or directory"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_in_one_line(
    tmp_path: Path, arguments: tuple[object, ...], message: str
) -> None:
    for more in ((), ("--dry-run",)):
        result = invoke("run", *arguments, *more)
        assert result.exit_code == 2
        error, *hint = result.stderr.splitlines()
        assert error.startswith(f"error: {message}")
        assert [line.partition(" ")[0] for line in hint] in ([], ["hint:"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "h", "1y", "-1h", "1 h", "nan", "1h30m"])
def test_a_time_that_cannot_be_read_is_refused(text: str) -> None:
    result = invoke("run", "--duration", text)
    assert result.exit_code == 2
    assert "is not a time such as 90s, 30m or 8h" in result.stderr


@pytest.mark.parametrize(
    ("text", "seconds"), [("600", 600), ("90s", 90), ("1.5h", 5400), ("2d", 172_800), ("30m", 1800)]
)
def test_times_have_units(text: str, seconds: float) -> None:
    context: Any = None
    assert parse_duration(context, context, text) == seconds


def test_a_session_that_lasts_ends_with_a_verdict(run_here: Run, tmp_path: Path) -> None:
    """One round is in session.json, and the others are drawn as they come."""
    command = run_here(
        *("run", "--smoke", "--mode", "single", "--duration", "1s", "--out", "out"), cwd=tmp_path
    )
    assert command.exit_code == 0, command.err
    session = only_session()
    found = records(session)
    assert len(found) > 1
    assert [record.position for record in found] == list(range(1, len(found) + 1))
    assert {record.rounds_added for record in found} == {None}
    assert len(json.loads((session / "session.json").read_text())["plan"]) == 1
    assert "speed over time" in command.out
    verdict = command.out.splitlines()[-1].partition(":")[0]
    assert verdict in ("steady", "drifting", "undecided")
    made = len(found)
    again = run_here("run", "--resume", session, "--duration", "1s", cwd=tmp_path)
    assert again.exit_code == 0, again.err
    assert len(records(session)) > made


# Until it is decided.


def test_a_session_goes_on_until_it_is_decided(run_here: Run, tmp_path: Path) -> None:
    """The batches differ so much that the first possible look decides, or one soon after it."""
    command = run_here(
        *("run", "--smoke", "--mode", "single", "--out", "out", "--until", "decided"),
        *("--variant", "small: -b 1", "--variant", "large: -b 256"),
        cwd=tmp_path,
    )
    assert command.exit_code == 0, command.err
    found = records(only_session())
    rounds = max(record.round or 0 for record in found)
    assert 5 <= rounds < 50
    assert len(found) == 2 * rounds
    assert [record.rounds_added for record in found] == [(r.round or 0) - 1 for r in found]
    assert {record.sitting for record in found} == {1}
    first, *_, last = notes(command)
    assert first == (
        "note: after 1 round single x1 (large) against small is undecided (no interval yet): one "
        "more round (at most 50)"
    )
    assert last == f"note: no round to add after {rounds}: all is decided"
    assert f"run {2 * rounds}/{2 * rounds} (round {rounds})" in command.err
    versus = compared(only_session())[1]["versus_baseline"]
    assert (versus["verdict"], versus["method"], versus["pairs"]) == ("faster", "sequence", rounds)
    assert "rounds were added" in command.out


def test_a_session_ends_at_the_limit(run_here: Run, tmp_path: Path) -> None:
    """Fewer than five rounds decide nothing."""
    command = run_here(*BOTH, "--until", "decided", "--max-rounds", 2, cwd=tmp_path)
    assert command.exit_code == 0, command.err
    found = records(only_session())
    assert [(record.round, record.rounds_added) for record in found] == [
        (1, 0), (1, 0), (2, 1), (2, 1),
    ]  # fmt: skip
    assert notes(command)[-1] == (
        "note: no round to add after 2 (--max-rounds 2): ddp x2 against single is undecided (no "
        "interval yet)"
    )
    assert compared(only_session())[1]["versus_baseline"]["verdict"] == "undecided"


def test_a_session_goes_on_until_an_interval_is_narrow(run_here: Run, tmp_path: Path) -> None:
    """There is an interval from five rounds on. On a busy machine six may not be enough."""
    options = ("--mode", "single", "--aa", "--steps", 40, "--until", "50%", "--max-rounds", 6)
    command = run_here(*TINY, *options, cwd=tmp_path)
    assert command.exit_code == 0, command.err
    rounds = max(record.round or 0 for record in records(only_session()))
    assert rounds in (5, 6)
    first, *_, last = notes(command)
    assert "is wider than 50 % (no interval yet): one more round (at most 6)" in first
    assert re.fullmatch(
        rf"note: no round to add after {rounds}: every interval is within 50 %"
        r"|note: no round to add after 6 \(--max-rounds 6\): single x1 \(aa-2\) against aa-1 is "
        r"wider than 50 % \(\d.*\.\.\d.*\)",
        last,
    )


def test_one_mode_alone_has_nothing_to_decide(run_here: Run, tmp_path: Path) -> None:
    command = run_here(*TINY, "--mode", "single", "--until", "decided", cwd=tmp_path)
    assert command.exit_code == 0, command.err
    assert len(records(only_session())) == 1
    assert notes(command)[-1] == "note: no round to add after 1: there is nothing to compare"


# Resuming.


@pytest.fixture(scope="module")
def one_round(run_here: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished session of single and ddp in one round. Tests take copies of it."""
    cwd = tmp_path_factory.mktemp("one-round")
    command = run_here(*BOTH, cwd=cwd)
    assert command.exit_code == 0, command.err
    (folder,) = (cwd / "out").iterdir()
    return folder


@pytest.fixture
def finished(one_round: Path, tmp_path: Path) -> Path:
    folder = Path("out") / one_round.name
    shutil.copytree(one_round, folder)
    return folder


def lose(folder: Path, modes: Iterable[str]) -> None:
    """Remove the rows of some modes."""
    path = folder / "runs.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not any(f",{m}," in line for m in modes)))


def test_rounds_are_added_to_a_finished_session(
    run_here: Run, finished: Path, tmp_path: Path
) -> None:
    before = (finished / "runs.csv").read_text()
    command = run_here("run", "--resume", finished, "--rounds", 3, cwd=tmp_path)
    assert command.exit_code == 0, command.err
    assert (finished / "runs.csv").read_text().startswith(before)
    found = records(finished)
    assert [(r.round, r.sitting, r.rounds_added) for r in found] == [
        *[(1, 1, None)] * 2,
        *[(2, 2, 1)] * 2,
        *[(3, 2, 2)] * 2,
    ]
    assert [record.position for record in found] == [1, 2, 3, 4, 5, 6]
    assert [record.run_id.endswith("-2") for record in found] == [False] * 2 + [True] * 4
    assert notes(command) == []
    assert set(steps_of(finished)) == {record.run_id for record in found}
    # Whoever adds rounds has looked: it is judged by a confidence sequence from then on.
    versus = compared(finished)[1]["versus_baseline"]
    assert (versus["method"], versus["pairs"]) == ("sequence", 3)
    # Those rounds belong to the session, so nothing is missing.
    again = run_here("run", "--resume", finished, cwd=tmp_path)
    assert notes(again) == [f"note: nothing is missing in {finished}"]
    assert len(records(finished)) == 6


def test_a_finished_session_goes_on_until_it_is_decided(
    run_here: Run, finished: Path, tmp_path: Path
) -> None:
    command = run_here(
        *("run", "--resume", finished, "--until", "decided", "--max-rounds", 2), cwd=tmp_path
    )
    assert command.exit_code == 0, command.err
    found = records(finished)
    assert [(r.round, r.sitting, r.rounds_added) for r in found] == [
        *[(1, 1, None)] * 2,
        *[(2, 2, 1)] * 2,
    ]
    assert compared(finished)[1]["versus_baseline"]["method"] == "sequence"
    again = run_here(
        *("run", "--resume", finished, "--until", "decided", "--max-rounds", 2), cwd=tmp_path
    )
    assert again.exit_code == 0, again.err
    assert "no round to add after 2 (--max-rounds 2): ddp x2 against single is" in again.err
    assert len(records(finished)) == 4


def test_the_limit_of_a_resumed_session_is_that_of_this_call(finished: Path) -> None:
    result = invoke("run", "--resume", finished, "--until", "decided", "--rounds", 51)
    assert result.exit_code == 2
    assert "--rounds 51 is more than --max-rounds 50" in result.stderr


def test_a_dry_run_shows_the_rounds_that_would_be_added(finished: Path) -> None:
    before = (finished / "runs.csv").read_bytes()
    result = invoke("run", "--resume", finished, "--rounds", 2, "--dry-run")
    assert result.exit_code == 0, result.stderr
    rows = [line.split()[:3] for line in result.stdout.splitlines()[4:]]
    assert [row[:2] for row in rows] == [["3", "2"], ["4", "2"]]
    assert {row[2] for row in rows} == {"single", "ddp"}
    assert (finished / "runs.csv").read_bytes() == before


def test_the_whole_of_an_incomplete_round_is_made_again(
    run_here: Run, finished: Path, tmp_path: Path
) -> None:
    """Only runs of one sitting are a pair: the machine may be faster by now."""
    lose(finished, ["ddp"])
    dry = invoke("run", "--resume", finished, "--dry-run")
    assert len(dry.stdout.splitlines()[4:]) == 2
    command = run_here("run", "--resume", finished, cwd=tmp_path)
    assert command.exit_code == 0, command.err
    said = (
        "note: round 1: all 2 runs are repeated, since only runs of one call are paired "
        "(--resume-only-missing makes the missing ones, without pairs)"
    )
    assert dry.stderr.splitlines() == notes(command) == [said]
    found = records(finished)
    assert sorted((r.mode, r.sitting, r.rounds_added) for r in found) == [
        ("ddp", 2, None), ("single", 1, None), ("single", 2, None),
    ]  # fmt: skip
    # The older row and its steps stay, under another name.
    single = {r.sitting: r.run_id for r in found if r.mode == "single"}
    assert single[2] == f"{single[1]}-2"
    steps = steps_of(finished)
    assert set(steps) == {record.run_id for record in found}
    assert steps[single[1]] == steps[single[2]] == 5
    # Of each run one counts.
    rows = compared(finished)
    assert [row["runs"] for row in rows] == [1, 1]
    assert rows[1]["versus_baseline"]["pairs"] == 1
    assert rows[0]["throughput_samples_per_s"] == pytest.approx(
        next(r.throughput_samples_per_s for r in found if r.mode == "single" and r.sitting == 2)
    )


def test_what_a_call_that_finds_nothing_to_do_prints_is_what_compare_prints(
    run_here: Run, finished: Path, tmp_path: Path
) -> None:
    """Rows that were made again do not count twice."""
    lose(finished, ["ddp"])
    made = run_here("run", "--resume", finished, cwd=tmp_path)
    again = run_here("run", "--resume", finished, cwd=tmp_path)
    assert notes(again) == [f"note: nothing is missing in {finished}"]
    assert again.out == made.out
    table = again.out.partition("\n\nsteps")[0]
    assert invoke("compare", finished).stdout.startswith(table)


def test_a_run_that_fails_when_it_is_made_again_is_reported(
    run_here: Run, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has figures of the first sitting, but the round is still not complete."""
    lose(finished, ["ddp"])

    def launch(
        supervisor: object, config: RunConfig, *others: object, **more: object
    ) -> list[RankRecord]:
        if config.mode == "single":
            raise RunFailed("single x1: the true cause")
        return launch_run(supervisor, config, *others, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr("mgpubench.session.recorder.launch_run", launch)
        command = run_here("run", "--resume", finished, cwd=tmp_path)
    assert command.exit_code == 1
    assert "error: single x1: the true cause" in command.err
    assert "error: 1 of 2 runs failed" in command.err
    single, ddp = compared(finished)
    assert (single["runs"], single["failed"], ddp["runs"], ddp["failed"]) == (1, 1, 1, 0)
    assert ddp["versus_baseline"]["paired"] is False
    assert re.search(r"^single +1 +1, 1 failed ", command.out, re.MULTILINE)
    last = run_here("run", "--resume", finished, cwd=tmp_path)
    assert last.exit_code == 0, last.err
    assert compared(finished)[1]["versus_baseline"]["pairs"] == 1
    assert [record.sitting for record in records(finished)] == [1, 2, 2, 3, 3]


def test_only_the_missing_runs_are_made_if_that_is_wanted(
    run_here: Run, finished: Path, tmp_path: Path
) -> None:
    lose(finished, ["ddp"])
    command = run_here("run", "--resume", finished, "--resume-only-missing", cwd=tmp_path)
    assert command.exit_code == 0, command.err
    assert notes(command) == []
    found = records(finished)
    assert sorted((r.mode, r.sitting) for r in found) == [("ddp", 2), ("single", 1)]
    rows = compared(finished)
    versus = rows[1]["versus_baseline"]
    assert [row["runs"] for row in rows] == [1, 1]
    assert versus["ratio"] > 0
    assert (versus["pairs"], versus["paired"], versus["verdict"]) == (0, False, None)
    reason = "^no verdict for ddp on 2 devices: no round ran both in one call"
    assert re.search(reason, command.out, re.M)
    again = run_here("run", "--resume", finished, "--resume-only-missing", cwd=tmp_path)
    assert notes(again) == [f"note: nothing is missing in {finished}"]


def test_a_broken_off_resume_does_not_erase_a_pair(run_here: Run, tmp_path: Path) -> None:
    """Sitting 1 has dp and ddp of the round, and sitting 2 only one run: that of 1 counts."""
    command = run_here(*TINY, "--mode", "all", "--gpus", 2, cwd=tmp_path)
    assert command.exit_code == 0, command.err
    folder = only_session()
    lose(folder, ["single"])
    pair = compared(folder)[1]["versus_dp"]
    assert pair["pairs"] == 1
    run_here("run", "--resume", folder, cwd=tmp_path)
    path = folder / "runs.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:4]))  # the first one of it
    assert [record.sitting for record in records(folder)] == [1, 1, 2]
    rows = {row["mode"]: row for row in compared(folder)}
    assert rows["ddp"]["versus_dp"]["pairs"] == 1
    assert rows["ddp"]["versus_dp"]["ratio"] == pair["ratio"]
