"""The fault matrix: what a person sees of each fault, and how soon. Makes docs/reliability.md.

Each case is one run that goes wrong, in this process but for its workers, so that all share one
cold start of torch. `pytest tests/faults/test_matrix.py --write-reliability` writes the page anew.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mgpubench.launch.progress import STEP_COUNT_FILE, read_step_count
from mgpubench.launch.supervisor import Supervisor
from tests.conftest import Here
from tests.hurtmodels import FAULT_TIME
from tests.processes import Process, all_processes, descendants, wait_until

pytestmark = pytest.mark.faults

Run = Callable[..., Here]
TINY = (
    *("run", "--device", "cpu", "--model", "tiny-cnn", "--image-size", 64, "-b", 4, "--gpus", 2),
    *("--warmup-steps", 1, "--steps", 4, "--rounds", 1, "--out", "out"),
)
ENDLESS = ("--steps", 1_000_000)
IMAGES = ("--data", "{photos}", "--workers-per-gpu", 1)
ALL = ("single", "dp", "ddp")
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"

LIMIT_S = 30.0
"""From the fault to the end of the command."""


def model(function: str) -> tuple[str, ...]:
    return ("--model", f"tests.hurtmodels:{function}")


@dataclass(frozen=True)
class Scene:
    """What a fault finds when training has begun."""

    ranks: list[Process]
    photos: Path
    out: Path

    def loader_workers(self) -> list[Process]:
        return [child for rank in self.ranks for child in descendants(rank.pid)]


Hurt = Callable[[Scene], None]


def send(signum: signal.Signals) -> Hurt:
    return lambda scene: os.kill(scene.ranks[-1].pid, signum)


def stop_for_a_second(scene: Scene) -> None:
    os.kill(scene.ranks[-1].pid, signal.SIGSTOP)
    time.sleep(1)
    os.kill(scene.ranks[-1].pid, signal.SIGCONT)


def kill_a_loader_worker(scene: Scene) -> None:
    wait_until(scene.loader_workers, 20, "loader workers")
    os.kill(scene.loader_workers()[0].pid, signal.SIGKILL)


def spoil(content: bytes | None) -> Hurt:
    """Replace all images but the first by something else, or take them away."""

    def hurt(scene: Scene) -> None:
        for path in sorted(scene.photos.rglob("*.jpg"))[1:]:
            if content is None:
                path.unlink()
            else:
                path.write_bytes(content)

    return hurt


def remove_the_session(scene: Scene) -> None:
    shutil.rmtree(scene.out)


@dataclass(frozen=True)
class Fault:
    """One line of the matrix."""

    name: str
    says: str
    """A pattern of the error line, or of a warning where the run succeeds."""
    modes: tuple[str, ...] = ALL
    options: tuple[object, ...] = ()
    hurt: Hurt | None = None
    """What is done to it from outside once it trains; None: its model does it."""
    exit_code: int = 1
    status: str | None = "failed"
    """Of its row; None: there is none."""
    kept: str = "finished runs; a row says why this one failed"


PEERLESS = r"error: {mode} x\d: rank \d"
FAULTS = (
    Fault(
        "the model raises in forward",
        rf"{PEERLESS}: ValueError: wrong in forward",
        options=model("raises_in_forward"),
    ),
    Fault(
        "the model raises in backward",
        rf"{PEERLESS}: ValueError: wrong in backward",
        options=model("raises_in_backward"),
    ),
    Fault(
        "the model raises on rank 1 only",
        r"error: ddp x2: rank 1: ValueError: wrong on rank 1",
        modes=("ddp",),
        options=model("raises_on_rank_1"),
    ),
    Fault(
        "the model returns nonsense in the middle of a run",
        rf"{PEERLESS}: TypeError: it returns a NoneType, and should return a tensor",
        options=model("returns_nonsense"),
    ),
    Fault(
        "a rank exits with code 0 and no word",
        rf"{PEERLESS} \(pid \d+\) exited with code 0 without leaving a record",
        options=model("exits_silently"),
    ),
    Fault(
        "a rank is killed (SIGKILL)",
        rf"{PEERLESS} \(pid \d+\) was killed by signal 9 \(SIGKILL\)",
        options=ENDLESS,
        hurt=send(signal.SIGKILL),
    ),
    Fault(
        "a rank crashes (SIGSEGV)",
        rf"{PEERLESS} \(pid \d+\) was killed by signal 11 \(SIGSEGV\)",
        options=ENDLESS,
        hurt=send(signal.SIGSEGV),
    ),
    Fault(
        "a rank stops for ever (SIGSTOP), with --timeout 8",
        r"error: {mode} x\d did not end within --timeout 8 s: \d of 5 steps done, .* a step; "
        r"the last one \d+ s ago: a rank is stopped, or hangs",
        modes=("ddp",),
        options=(*model("stops"), "--timeout", 8),
    ),
    Fault(
        "a rank stops for a second (SIGSTOP, SIGCONT)",
        r"results: ",
        modes=("ddp",),
        options=("--steps", 400),
        hurt=stop_for_a_second,
        exit_code=0,
        status="ok",
        kept="all; the run goes on",
    ),
    Fault(
        "memory runs out (a limit as of ulimit -v)",
        rf"{PEERLESS}: \w+: out of memory: ",
        options=model("allocates_too_much"),
    ),
    Fault(
        "a loader worker is killed",
        rf"{PEERLESS}: RuntimeError: (a )?DataLoader worker .*(killed|exited unexpectedly)",
        modes=("single", "ddp"),
        options=(*IMAGES, *ENDLESS),
        hurt=kill_a_loader_worker,
    ),
    Fault(
        "images vanish during the run",
        rf"{PEERLESS}: UnreadableImage: cannot read image .*photos.*\.jpg: .*No such file",
        modes=("single",),
        options=(*IMAGES, *ENDLESS),
        hurt=spoil(None),
    ),
    Fault(
        "images become empty during the run",
        rf"{PEERLESS}: UnreadableImage: cannot read image .*\.jpg: it is not an image",
        modes=("single",),
        options=(*IMAGES, *ENDLESS),
        hurt=spoil(b""),
    ),
    Fault(
        "images are cut short during the run",
        rf"{PEERLESS}: UnreadableImage: cannot read image .*\.jpg: ",
        modes=("ddp",),
        options=(*IMAGES, *ENDLESS),
        hurt=spoil(b"\xff\xd8\xff\xe0\x00\x10JFIF"),
    ),
    Fault(
        "the session's folder is removed during the run",
        r"error: out/.*steps\.csv cannot be written: No such file or directory",
        modes=("single",),
        options=("--steps", 400),
        hurt=remove_the_session,
        status=None,
        kept="nothing: somebody removed it",
    ),
    Fault(
        "the loss is not finite",
        r"warning: {mode} x\d: the loss of rank 0 ended as nan: speed is measured",
        options=model("loses_its_mind"),
        exit_code=0,
        status="ok",
        kept="all; the run has a finding",
    ),
)
CASES = [(fault, mode) for fault in FAULTS for mode in fault.modes]


@dataclass
class Times:
    """When things happened, on the monotonic clock."""

    hurt_s: float | None = None
    error: BaseException | None = None
    seen: set[int] = field(default_factory=set)


def hurt_when_training(
    fault: Fault, supervisor: Supervisor, scene_of: Callable[..., Scene]
) -> Times:
    """Begin a thread that waits for the third step, and hurts."""
    times = Times()

    def work() -> None:
        try:
            wait_until(lambda: steps_done(supervisor) >= 3, 60, "three steps")
            ranks = sorted(
                (p for p in descendants(os.getpid()) if p.is_worker and p.session == p.pid),
                key=lambda process: process.pid,
            )
            scene = scene_of(ranks)
            times.seen = {p.pid for p in [*ranks, *scene.loader_workers()]}
            times.hurt_s = time.monotonic()
            assert fault.hurt is not None
            fault.hurt(scene)
        except BaseException as error:
            times.error = error

    threading.Thread(target=work, daemon=True).start()
    return times


def steps_done(supervisor: Supervisor) -> int:
    files = supervisor.scratch.glob(f"launch-*/{STEP_COUNT_FILE}")
    return max((read_step_count(file).steps for file in files), default=0)


MEASURED: dict[tuple[str, str], tuple[float, int, str]] = {}
"""Time to end in seconds, exit code and error line of each case."""


@pytest.mark.parametrize(
    ("fault", "mode"), CASES, ids=[f"{fault.name}-{mode}" for fault, mode in CASES]
)
def test_a_fault_is_named_and_ends_in_time(
    fault: Fault,
    mode: str,
    run_here: Run,
    supervisor: Supervisor,
    tmp_path: Path,
    photos: Callable[..., Path],
) -> None:
    root = photos(cat=8, dog=8)
    options = [str(option).format(photos=root) for option in fault.options]
    FAULT_TIME.unlink(missing_ok=True)
    times = Times()
    if fault.hurt is not None:
        times = hurt_when_training(
            fault, supervisor, lambda ranks: Scene(ranks, root, tmp_path / "out")
        )
    result = run_here(*TINY, *options, "--mode", mode, cwd=tmp_path)
    ended_s = time.monotonic()
    assert times.error is None
    hurt_s = times.hurt_s or float(FAULT_TIME.read_text())
    assert result.exit_code == fault.exit_code, result.err
    line = the_line(fault.says.replace("{mode}", mode), result.err)
    assert "Traceback" not in result.err
    assert result.err.count(line) == 1
    assert 0 <= ended_s - hurt_s < LIMIT_S
    assert statuses(tmp_path) == ([fault.status] if fault.status else [])
    wait_until(
        lambda: not [p for p in all_processes() if p.pid in times.seen], 5, "end of all processes"
    )
    MEASURED[fault.name, mode] = ended_s - hurt_s, fault.exit_code, line


def the_line(pattern: str, text: str) -> str:
    lines = [line for line in text.splitlines() if re.match(pattern, line)]
    assert lines, f"no line like {pattern!r} in\n{text}"
    return lines[0]


def statuses(folder: Path) -> list[str]:
    found = []
    for path in folder.glob("out/*/runs.csv"):
        with path.open(newline="", encoding="utf-8") as file:
            found += [row["status"] for row in csv.DictReader(file)]
    return found


HEAD = """# Reliability

What a person sees of each fault, and how soon the command ends. Made by
`pytest tests/faults/test_matrix.py --write-reliability`, on CPU replicas with gloo; the times are
of one machine with 2 cores. Every case leaves no process behind, and a run that failed is a row
with `status=failed` and its cause in the column `error`; the other runs of the plan go on, unless
`--fail-fast` is given, and `mgpubench run --resume SESSION` makes the failed ones again.

| fault | mode | what the user sees | exit code | seconds to the end | what is kept |
|---|---|---|--:|--:|---|
"""


@pytest.fixture(scope="module", autouse=True)
def page(request: pytest.FixtureRequest) -> Iterator[None]:
    """Writes docs/reliability.md at the end, if that was asked for and every case was tried."""
    yield
    if not request.config.getoption("--write-reliability"):
        return
    assert len(MEASURED) == len(CASES)
    rows = []
    for fault, mode in CASES:
        seconds, exit_code, line = MEASURED[fault.name, mode]
        shown = re.sub(r"/\S*/(photos/)", r"\1", re.sub(r"(pid\S*) \d+", r"\1 N", line))
        shown = re.sub(r"out/\S*/", "out/SESSION/", shown).replace("|", "/")
        rows.append(
            f"| {fault.name} | {mode} | `{shown}` | {exit_code} | {seconds:.1f} | {fault.kept} |"
        )
    PAGE.write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")


def test_the_page_has_every_case() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    told = [tuple(cell.strip() for cell in line.split("|")[1:3]) for line in lines[10:]]
    assert told == [(fault.name, mode) for fault, mode in CASES]
