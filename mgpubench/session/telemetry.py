"""The sampler's other end: it is started, told which run is on, and never waited for endlessly."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeVar

from mgpubench.config.machine_facts import Machine
from mgpubench.config.run_config import RunConfig
from mgpubench.errors import RunFailed
from mgpubench.machine.sampler import BYE, END, FAILED, NO_GPUS, OK, RUN
from mgpubench.results.session_folder import Session
from mgpubench.results.telemetry import (
    MACHINE,
    TELEMETRY_CSV,
    Sample,
    TelemetryFile,
    by_device,
)

T = TypeVar("T")

SAMPLER = "mgpubench.machine.sampler"

ANSWER_S = 1.5
"""How long the last sample of a run is waited for."""
END_S = 1.0
"""How long the sampler's end is waited for. A process that hangs in a driver cannot be killed."""

DOCUMENT_KEY = "telemetry"
"""Key in session.json: one entry for each sitting."""

Latest = Mapping[str, Sample]
"""The last sample of each device."""

NOTHING: Latest = MappingProxyType({})


class Telemetry(Protocol):
    """What the recorder asks about the devices."""

    def begin_run(self, run_id: str) -> None:
        """A run starts."""

    def end_run(self) -> dict[str, list[Sample]]:
        """The run has ended: its samples by device."""

    def latest(self) -> Latest:
        """The last sample of each device in this run."""


class NoTelemetry:
    """Nothing is sampled."""

    def begin_run(self, run_id: str) -> None:
        """Nothing is told."""

    def end_run(self) -> dict[str, list[Sample]]:
        """There are no samples."""
        return {}

    def latest(self) -> Latest:
        """There is no sample."""
        return NOTHING


NO_TELEMETRY = NoTelemetry()


class SampledTelemetry:
    """What a sampler writes to telemetry.csv."""

    def __init__(self, folder: Path, terminal: int | None = None) -> None:
        path = folder / TELEMETRY_CSV
        self.why_no_gpus = ""
        """Why there are no figures of GPUs; empty if there are."""
        self.failure = ""
        """Why the sampler has ended early; empty if it has not."""
        self._new = TelemetryFile(path)
        self._new.skip()
        self._run = TelemetryFile(path, self._new.offset)
        self._latest: dict[str, Sample] = {}
        self._answer = b""
        self._process = _start(path, terminal)
        assert self._process.stdin is not None
        # A sampler that was stopped must not stop this process too.
        os.set_blocking(self._process.stdin.fileno(), False)

    def begin_run(self, run_id: str) -> None:
        """Let the rows to come have the id of this run."""
        self._run.skip()
        self._latest = {}
        self._tell(f"{RUN}{run_id}")

    def end_run(self) -> dict[str, list[Sample]]:
        """Let a last sample be taken, and read those of the run."""
        if self._tell(END):
            self._listen(ANSWER_S)
        samples = by_device(self._run.new_samples())
        self._latest = {device: of_device[-1] for device, of_device in samples.items()}
        return samples

    def latest(self) -> Latest:
        """The last sample of each device in this run."""
        self._latest.update((sample.device, sample) for sample in self._new.new_samples())
        return self._latest

    def close(self) -> dict[str, object]:
        """End the sampler. What session.json says about it."""
        began_s = time.monotonic()
        self._tell(BYE)
        self._close_pipes()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        if self._process.returncode is None:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(max(0.0, began_s + 2 * END_S - time.monotonic()))
        last = self.latest().get(MACHINE)
        return {
            "sampler_cpu_s": last.sampler_cpu_s if last else None,
            "no_gpus": self.why_no_gpus or None,
            "failure": self.failure or None,
        }

    def _close_pipes(self) -> None:
        self._listen(0.0)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _tell(self, line: str) -> bool:
        """Send a line. False if nobody reads it."""
        self._listen(0.0)
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), f"{line}\n".encode())
        except OSError:
            self.failure = self.failure or "its process has ended"
            return False
        return not self.failure

    def _listen(self, seconds: float) -> None:
        """Note what the sampler says, until it says `ok` or the time is up."""
        until_s = time.monotonic() + seconds
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while select.select([descriptor], [], [], max(0.0, until_s - time.monotonic()))[0]:
            chunk = os.read(descriptor, 4096)
            if not chunk or self._note(chunk):
                return

    def _note(self, chunk: bytes) -> bool:
        """Note the lines in a chunk. True if one of them is `ok`."""
        *lines, self._answer = (self._answer + chunk).split(b"\n")
        texts = [line.decode(errors="replace") for line in lines]
        for text in texts:
            if text.startswith(NO_GPUS):
                self.why_no_gpus = text.removeprefix(NO_GPUS)
            if text.startswith(FAILED):
                self.failure = text.removeprefix(FAILED)
        return OK in texts


def _start(path: Path, terminal: int | None) -> subprocess.Popen[bytes]:
    # Not the terminal's own descriptor: the sampler's stderr leads nowhere.
    passed = [] if terminal is None else [os.dup(terminal)]
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", SAMPLER, str(path.absolute()), *map(str, passed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            # Ctrl-C and Ctrl-Z in the terminal are for the parent, which decides.
            start_new_session=True,
            pass_fds=passed,
        )
    finally:
        for descriptor in passed:
            os.close(descriptor)


def _environment() -> dict[str, str]:
    """This process's own, in which the package is found even if it is not installed."""
    root = str(Path(__file__).parents[2])
    paths = sysconfig.get_paths()
    if root in (paths["purelib"], paths["platlib"]):
        return dict(os.environ)
    given = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{given}" if given else root}


class Notices(Protocol):
    """What a person sees."""

    def notice(self, text: str) -> None:
        """Show something that matters."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Whether the devices are sampled, and what the sampler does for the screen."""

    is_wanted: bool = True
    terminal: int | None = None
    """A file descriptor whose screen the sampler restores if this process is killed."""


@contextlib.contextmanager
def open_telemetry(
    session: Session, display: Notices, sitting: int, sampling: Sampling
) -> Iterator[Telemetry]:
    """The telemetry of a session, which ends with the block. Its failure is never the session's."""
    if not sampling.is_wanted:
        yield NO_TELEMETRY
        return
    began_s = time.monotonic()
    try:
        telemetry = SampledTelemetry(session.folder, sampling.terminal)
    except OSError as error:
        display.notice(f"no telemetry: its process cannot be started: {error.strerror}")
        yield NO_TELEMETRY
        return
    try:
        yield telemetry
    finally:
        about = {"sitting": sitting, **telemetry.close()}
        about["seconds"] = round(time.monotonic() - began_s, 3)
        if telemetry.failure:
            display.notice(f"the telemetry ended early: {telemetry.failure}")
        if not session.amend(DOCUMENT_KEY, about):
            display.notice("session.json was changed or removed: it does not have the telemetry")


def uuids_of(config: RunConfig, machine: Machine) -> list[str]:
    """The GPUs of a run on this machine, as NVML names them: each once, in the order of ranks."""
    indices = dict.fromkeys(config.device_indices) if config.num_nodes == 1 else ()
    return [machine.gpus[index].uuid for index in indices]


def samples_of(samples: Mapping[str, T], uuids: Sequence[str]) -> list[T | None]:
    """What is known about each GPU. Torch leaves the prefix of a UUID out."""
    by_bare = {device.partition("-")[2]: value for device, value in samples.items()}
    return [samples.get(uuid, by_bare.get(uuid.removeprefix("GPU-"))) for uuid in uuids]


def lost_gpu(config: RunConfig, machine: Machine, latest: Latest) -> RunFailed | None:
    """The error of a run one of whose GPUs has fallen off the bus; None if none has."""
    uuids = uuids_of(config, machine)
    for number, sample in enumerate(samples_of(latest, uuids)):
        if sample is not None and sample.is_lost:
            index = list(dict.fromkeys(config.device_indices))[number]
            name = machine.gpus[index].name
            return RunFailed(
                f"{config.label}: GPU {index} ({name}, {sample.device}) has fallen off the bus "
                "(NVML error 15)",
                "Runs that do not use it go on. dmesg has NVIDIA's own reason (Xid); it comes back "
                "when the machine restarts.",
            )
    return None
