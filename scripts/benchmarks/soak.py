"""Random faults at random moments, many in one call of `mgpubench run`; see `scripts/soak`.

After every call it checks that the call ended in time and with the right code, that no process is
left, that every finished run is still there, and that the session can be read and resumed.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from PIL import Image

from mgpubench.results.read import read_runs, read_sessions
from tests.processes import Command, Process, descendants

END_S = 60.0
CALL_S = 180.0
PLAN = (
    *("run", "--device", "cpu", "--gpus", 2, "--model", "tiny-cnn", "--image-size", 32, "-b", 4),
    *("--warmup-steps", 1, "--steps", 150, "--rounds", 8, "--timeout", 30, "--out", "out"),
)
NUM_RUNS = 24
"""Three modes, eight rounds."""

TO_A_RANK = (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGSTOP, signal.SIGABRT)
TO_THE_PARENT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)


class Soak:
    """Counts faults, and notes what is wrong."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.folder = folder
        self.faults: Counter[str] = Counter()
        self.calls = 0
        self.wrong: list[str] = []

    def call(self) -> None:
        """One `mgpubench run`, hurt again and again until a signal ends it, or it ends."""
        self.calls += 1
        cwd = self.folder / str(self.calls)
        cwd.mkdir()
        uses_folder = self.rng.random() < 0.5
        if uses_folder:
            make_images(cwd / "photos")
        data = ("--data", "photos", "--workers-per-gpu", 1) if uses_folder else ()
        command = Command(*PLAN, *data, cwd=cwd)
        last = self.rng.choice(TO_THE_PARENT) if self.rng.random() < 0.8 else None
        ends_s = time.monotonic() + self.rng.uniform(6, 25)
        finished: set[str] = set()
        sent: signal.Signals | None = None
        stop_s = time.monotonic() + CALL_S
        while command.popen.poll() is None and time.monotonic() < stop_s:
            time.sleep(self.rng.uniform(0.2, 3.0))
            finished |= ok_runs(cwd)
            if last is not None and time.monotonic() > ends_s:
                self.hurt_parent(command, last)
                sent = last
                break
            self.hurt_one(command)
        self.check(command, cwd, finished, sent)
        if list(cwd.glob("out/*/session.json")):
            self.resume(cwd)

    def hurt_one(self, command: Command) -> None:
        """Send a signal to a rank, or kill a loader worker."""
        ranks = command.ranks()
        if not ranks:
            return
        victim = self.rng.choice(ranks)
        workers = descendants(victim.pid)
        if workers and self.rng.random() < 0.3:
            self.send(self.rng.choice(workers), signal.SIGKILL, "a loader worker")
            return
        signum = self.rng.choice(TO_A_RANK)
        self.send(victim, signum, "a rank")
        if signum is signal.SIGSTOP and self.rng.random() < 0.5:
            time.sleep(0.5)
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim.pid, signal.SIGCONT)

    def send(self, process: Process, signum: signal.Signals, what: str) -> None:
        """Send a signal, and count it if the process still existed."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signum)
            self.faults[f"{signum.name} to {what}"] += 1

    def hurt_parent(self, command: Command, signum: signal.Signals) -> None:
        """End the whole call."""
        command.family()
        command.popen.send_signal(signum)
        self.faults[f"{signum.name} to the parent"] += 1

    def check(
        self, command: Command, cwd: Path, finished: set[str], last: signal.Signals | None
    ) -> None:
        """Check everything that must hold after a call."""
        try:
            code = command.wait(END_S)
        except Exception:
            self.blame(cwd, f"did not end within {END_S:.0f} s after {last}")
            command.kill()
            return
        expected = expected_codes(cwd, last)
        if code not in expected:
            self.blame(cwd, f"exit code {code} is not one of {sorted(expected)}")
        try:
            command.assert_none_left()
        except AssertionError as error:
            self.blame(cwd, str(error))
            command.kill()
        if lost := finished - ok_runs(cwd):
            self.blame(cwd, f"lost finished runs {sorted(lost)}")
        if "Traceback" in command.err:
            self.blame(cwd, "a traceback on stderr")

    def resume(self, cwd: Path) -> None:
        """Resume the session without faults: it must finish."""
        (folder,) = (path.parent for path in cwd.glob("out/*/session.json"))
        before = ok_runs(cwd)
        command = Command(
            *("run", "--resume", folder.relative_to(cwd), "--timeout", CALL_S), cwd=cwd
        )
        try:
            code = command.wait(CALL_S)
        except Exception:
            self.blame(cwd, "resuming did not end")
            command.kill()
            return
        if lost := before - ok_runs(cwd):
            self.blame(cwd, f"resuming lost finished runs {sorted(lost)}")
        # Rounds that were made again have more rows. Of each run one counts.
        counting = sum(record.is_ok for record in read_sessions([folder]).records)
        if code != 0 or counting != NUM_RUNS:
            errors = [line for line in command.err.splitlines() if line.startswith("error")]
            made = f"{counting} of {NUM_RUNS} runs"
            self.blame(cwd, f"resuming gave code {code}, {made}: {errors}")

    def blame(self, cwd: Path, what: str) -> None:
        """Note what is wrong, and where."""
        self.wrong.append(f"call {cwd.name}: {what}")
        print("WRONG", self.wrong[-1], flush=True)


def make_images(root: Path) -> None:
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for number in range(8):
            Image.new("RGB", (40, 40), (30 * number, 9, 99)).save(root / name / f"{number}.jpg")


def expected_codes(cwd: Path, last: signal.Signals | None) -> set[int]:
    """The exit codes that are right if this was the last signal to the parent."""
    by_itself = {0, 1}
    if last is None:
        return by_itself
    codes = {-last} if last is signal.SIGKILL else {128 + last}
    if not list(cwd.glob("out/*/session.json")):
        # Python itself had not started yet, or a fault in the preparation had just ended the call.
        codes |= {-last, 1}
    if num_rows(cwd) == NUM_RUNS:
        codes |= by_itself  # it was already ending
    return codes


def num_rows(cwd: Path) -> int:
    """How many runs have a row, finished or not."""
    return sum(len(read_runs(path).records) for path in cwd.glob("out/*/runs.csv"))


def ok_runs(cwd: Path) -> set[str]:
    """The runs that are recorded as finished."""
    return {
        record.run_id
        for path in cwd.glob("out/*/runs.csv")
        if path.stat().st_size
        for record in read_runs(path).records
        if record.is_ok
    }


def main() -> None:
    """Cause faults until there are enough. The exit code is 1 if anything was wrong."""
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(seed, Path(folder))
        while soak.faults.total() < wanted:
            soak.call()
            minutes = (time.monotonic() - began_s) / 60
            print(
                f"call {soak.calls}: {soak.faults.total()} faults, {len(soak.wrong)} wrong, "
                f"{minutes:.1f} min",
                flush=True,
            )
    for name, count in sorted(soak.faults.items()):
        print(f"{count:4d} {name}")
    print(f"{'ok  ' if not soak.wrong else 'WRONG'} {soak.faults.total()} faults, seed {seed}")
    sys.exit(bool(soak.wrong))


if __name__ == "__main__":
    main()
