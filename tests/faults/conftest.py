"""docs/reliability.md: every test in this folder adds a row with what the user sees of its fault.

`pytest tests/faults --write-reliability` writes the page again. Without the option each test checks
that its row is on the page.
"""

from __future__ import annotations

import csv
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mgpubench.launch.supervisor import Supervisor
from tests.conftest import Here
from tests.faults.cases import TINY, Fault, Scene, Times, hurt_when_training
from tests.hurtmodels import FAULT_TIME
from tests.orphans import Orphan
from tests.processes import Command, all_processes, wait_until

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"

END_S = 30.0
"""From the fault to the end of the command."""

SECTIONS = {
    "test_matrix": "Ranks, models, loaders and images",
    "test_training": "Training, evaluation and prediction that are refused",
    "test_training_ends": "Training that ends before its time",
    "test_interruption": "Signals to mgpubench itself",
    "test_surroundings": "Limits, disks, networks and other processes",
    "test_nodes": "Several machines: two agents on one",
    "test_node_starters": "Several machines: trainings, starters, clocks and the network",
}
"""Sections by the test module that makes their rows."""

HEAD = """# Reliability

What the user sees of each fault, and how soon the command ends. This page is written by
`pytest tests/faults --write-reliability`, with CPU replicas and gloo on a machine with 2 cores. The
seconds count from the fault to the end of the command. If the fault was there before, they count
from the start of the command, and include loading torch if the test starts a process of its own. No
case leaves a process behind. A failed
run is a row with `status=failed` and its cause in the column `error`. The other runs of the plan go
on, unless `--fail-fast` is given, and `mgpubench run --resume SESSION` makes every round again in
which a run failed or is missing.
"""
TABLE = """
## {title}

| fault | mode | what the user sees | and the hint | exit code | seconds to the end | what is kept |
|---|---|---|---|--:|--:|---|
"""


SILENT = {137: "Killed (printed by the shell)", 0: "nothing"}
"""What the user sees if mgpubench itself can print nothing, by exit code."""


@dataclass(frozen=True)
class Row:
    """A row of the page."""

    fault: str
    mode: str
    line: str
    hint: str
    exit_code: int
    seconds: float
    kept: str

    def __str__(self) -> str:
        line = re.sub(r"(pid\S*) \d+", r"\1 N", self.line)
        line = re.sub(r"\d{8}T\d{6}Z-\w{6}", "SESSION", line).replace("|", "/")
        line = re.sub(r"/\S*/(photos/|tmp\b|out/)", r"\1", line)
        cells = (self.fault, self.mode, f"`{line}`", self.hint, self.exit_code)
        return "| " + " | ".join(map(str, (*cells, f"{self.seconds:.1f}", self.kept))) + " |"

    @property
    def sure(self) -> list[str]:
        """The cells that are the same every time."""
        return [self.fault, self.mode, self.hint, str(self.exit_code), self.kept]


@dataclass
class Page:
    """What the page says, and what the tests saw."""

    written: list[str]
    is_checked: bool
    seen: dict[str, list[Row]] = field(default_factory=dict)

    def add(self, section: str, row: Row) -> None:
        """Add a row. It must be on the page already, unless the page is being written."""
        self.seen.setdefault(section, []).append(row)
        if self.is_checked:
            sure = [
                cells[:2] + cells[3:5] + cells[6:]
                for cells in (line.strip("| ").split(" | ") for line in self.written)
            ]
            assert row.sure in sure

    def write(self) -> None:
        """Write the rows. A section whose tests did not run stays as it is."""
        text = HEAD
        for section, title in SECTIONS.items():
            rows = list(map(str, self.seen.get(section, []))) or self._written_rows(title)
            text += TABLE.format(title=title) + "\n".join(rows) + "\n"
        PAGE.write_text(text, encoding="utf-8")

    def _written_rows(self, title: str) -> list[str]:
        _, _, after = "\n".join(self.written).partition(f"## {title}\n")
        lines = after.partition("\n## ")[0].splitlines()
        return [line for line in lines if line.startswith("| ")][1:]


@pytest.fixture(scope="session", autouse=True)
def no_fault_time_left() -> Iterator[None]:
    """Removes the file after all tests."""
    yield
    FAULT_TIME.unlink(missing_ok=True)


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A TMPDIR. `tmp_path` may be too long for the socket of the fork server (107 characters)."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def page(request: pytest.FixtureRequest) -> Iterator[Page]:
    """The page. It is written at the end if that was asked for and no test failed."""
    is_made = request.config.getoption("--write-reliability")
    written = PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []
    page = Page(written, is_checked=not is_made)
    yield page
    if is_made and not request.session.testsfailed:
        page.write()


@pytest.fixture
def report(page: Page, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Checks what holds for every fault, adds its row, and returns the line that the user saw."""
    section = request.module.__name__.rpartition(".")[2]

    def report_one(
        fault: str,
        command: Command | Here | Orphan,
        says: str | None,
        *,
        code: int,
        kept: str,
        mode: str = "ddp",
        since_s: float | None = None,
    ) -> str:
        exit_code = command.wait()
        exit_code = exit_code if exit_code >= 0 else 128 - exit_code  # as the shell says
        seconds = command.ended_s - (command.began_s if since_s is None else since_s)
        assert exit_code == code, command.err
        assert "Traceback" not in command.err
        line = SILENT.get(code, "") if says is None else the_line(says, command.err)
        hint = hint_after(line, command.err)
        assert bool(hint) == (code in (1, 2))
        assert 0 <= seconds < END_S
        page.add(section, Row(fault, mode, line, hint, exit_code, seconds, kept))
        return line

    return report_one


def the_line(pattern: str, text: str) -> str:
    """The only line that begins like this."""
    lines = [line for line in text.splitlines() if re.match(pattern, line)]
    assert lines, f"no line like {pattern!r} in\n{text}"
    assert text.count(lines[0]) == 1
    return lines[0]


def hint_after(line: str, text: str) -> str:
    """The hint below an error, without paths of this machine."""
    lines = [*text.splitlines(), ""]
    following = lines[lines.index(line) + 1] if line in lines else ""
    hint = following.removeprefix("hint: ") if following.startswith("hint: ") else ""
    hint = re.sub(r"\d{8}T\d{6}Z-\w{6}", "SESSION", hint)
    return re.sub(r" \(/\S+\)", "", hint)


@pytest.fixture
def try_fault(
    run_here: Callable[..., Here],
    supervisor: Supervisor,
    tmp_path: Path,
    photos: Callable[..., Path],
    report: Callable[..., str],
) -> Callable[[Fault, str], None]:
    """Makes a run in one mode, hurts it, and checks everything that is left of it."""

    def try_one(fault: Fault, mode: str) -> None:
        root = photos(cat=8, dog=8)
        if fault.prepare is not None:
            fault.prepare(root)
        options = [str(option).format(photos=root) for option in fault.options]
        FAULT_TIME.unlink(missing_ok=True)
        times = Times()
        if fault.hurt is not None:
            times = hurt_when_training(
                fault.hurt, supervisor, lambda ranks: Scene(ranks, root, tmp_path / "out")
            )
        command = run_here(*TINY, "--mode", mode, *options, cwd=tmp_path)
        assert times.error is None
        since_s = times.hurt_s
        if FAULT_TIME.exists():
            since_s = float(FAULT_TIME.read_text())
        line = report(
            fault.name,
            command,
            fault.says.replace("{mode}", mode),
            code=fault.exit_code,
            mode=mode,
            kept=fault.kept,
            since_s=since_s,
        )
        assert statuses(tmp_path) == fault.statuses
        for row in rows(tmp_path):
            if row["status"] == "failed":
                assert line == f"error: {row['error']}"
            if row["status"] != "ok":
                assert row["window_s"] == row["throughput_samples_per_s"] == ""
        wait_until(
            lambda: not [p for p in all_processes() if p.pid in times.seen],
            5,
            "end of all processes",
        )

    return try_one


def rows(folder: Path) -> list[dict[str, str]]:
    """All rows of all sessions below a folder."""
    found = []
    for path in folder.glob("out/*/runs.csv"):
        with path.open(newline="", encoding="utf-8") as file:
            found += list(csv.DictReader(file))
    return found


def statuses(folder: Path) -> tuple[str, ...]:
    """The status of each of those rows."""
    return tuple(row["status"] for row in rows(folder))
