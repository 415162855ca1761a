"""What a person sees on stderr while a session runs: a live bar, or plain lines in a pipe."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from mgpubench.analysis.endurance import judge_endurance
from mgpubench.analysis.findings.catalogue import has_table_note
from mgpubench.analysis.findings.kind import Finding
from mgpubench.config.run_config import RunConfig
from mgpubench.errors import BenchError, SessionEnded
from mgpubench.format import format_duration, format_rate
from mgpubench.report.endurance import endurance_sentences
from mgpubench.report.live import Lines, LiveLines
from mgpubench.results.schema import RunRecord
from mgpubench.results.telemetry import Sample

PLAIN_LINE_EVERY_S = 30.0
PLAIN_LINE_EVERY_SHARE = 0.2
"""In a pipe a long run prints a line now and then, and less often the longer the session lasts: the
log of a day has some 50 of them."""


class SessionDisplay:
    """A `recorder.Display` on stderr."""

    def __init__(self, *, verbose: bool, live: Lines | None = None) -> None:
        self._verbose = verbose
        self._live: Lines = LiveLines() if live is None else live
        self._num_runs = self._num_steps = 0
        """Of this call, as far as they are known."""
        self._config: RunConfig | None = None
        self._number = 0
        """Number of the run in this call, which may make only a part of the plan."""
        self._steps_before = 0
        self._loss = ""
        """The last loss of the run, with a comma before it."""
        self._session_began_s = self._run_began_s = self._printed_at_s = 0.0
        self._printed_findings: set[str] = set()

    def notice(self, text: str) -> None:
        """Print a line that begins with `note:`."""
        self._line(f"note: {text}")

    def add_runs(self, runs: Sequence[RunConfig]) -> None:
        """Extend the bar over the steps of these runs."""
        if not self._num_runs:
            self._session_began_s = self._printed_at_s = time.monotonic()
        self._num_runs += len(runs)
        self._num_steps += sum(config.total_steps for config in runs)
        self._live.update(total=self._num_steps)

    def begin_run(self, config: RunConfig) -> None:
        """Show the name of the run in the bar."""
        self._number += 1
        self._config = config
        self._run_began_s = time.monotonic()
        self._loss = ""
        self._live.update(
            description=self._name(config), rate="starting", samples_per_step=config.global_batch
        )

    def on_steps(self, steps: int) -> None:
        """Show the steps done, their rate and the time left."""
        rate = f"{format_rate(steps / (time.monotonic() - self._run_began_s))} steps/s{self._loss}"
        if self._live.has_bar:
            self._live.update(completed=self._steps_before + steps, rate=rate)
        elif self._config and self._is_silent_for_long():
            total = self._config.total_steps
            self._line(
                f"{self._name(self._config)}: step {steps} of {total}, {rate} {self._left(steps)}"
            )

    def on_loss(self, loss: float) -> None:
        """Show the loss with the next step count, and at the end of the run."""
        self._loss = f", loss {loss:.4g}"

    def on_devices(self, latest: Mapping[str, Sample]) -> None:
        """Show the devices, if there is a screen."""
        self._live.show_devices(latest)

    def end_run(self, record: RunRecord, error: BenchError | None) -> None:
        """Print the run's throughput, or its error, in one line."""
        config = self._config
        assert config is not None  # begin_run came before
        self._steps_before += config.total_steps
        if error is None:
            figures = f"{_speed(record)}{self._loss}"
            self._line(f"{self._name(config)}: {figures} {self._left(0)}")
        elif record.status == "failed":
            if self._verbose:
                self._live.console.print(error.details)
            self._line(f"{self._name(config)}: failed {self._left(0)}")
            if isinstance(error, SessionEnded):
                return  # the command ends with it, and says it then
            self._line(f"error: {error.message}")
            if error.hint:
                self._line(f"hint: {error.hint}")

    def finding(self, config: RunConfig, finding: Finding) -> None:
        """Print a finding once per configuration, or once if all runs have it alike."""
        place = "" if has_table_note(finding.code) else f"{config.label}: "
        key = f"{place}{finding.code}"
        if key not in self._printed_findings:
            self._printed_findings.add(key)
            self._line(f"warning: {place}{finding.message} [{finding.code}]")

    def judge_endurance(self, records: Sequence[RunRecord]) -> None:
        """Print the verdict on a session that was to last and has ended early."""
        for sentence in endurance_sentences(judge_endurance(records)):
            self.notice(f"up to here {sentence}")

    def close(self) -> None:
        """Remove the bar."""
        self._live.close()

    def _name(self, config: RunConfig) -> str:
        return f"run {self._number}/{self._num_runs} (round {config.round}) {config.label}"

    def _left(self, steps: int) -> str:
        done = self._steps_before + steps
        if not done:
            return ""
        elapsed_s = time.monotonic() - self._session_began_s
        left_s = elapsed_s / done * (self._num_steps - done)
        return f"({format_duration(left_s)} left)" if left_s >= 1 else ""

    def _is_silent_for_long(self) -> bool:
        now_s = time.monotonic()
        lasted_s = now_s - self._session_began_s
        patience_s = max(PLAIN_LINE_EVERY_S, PLAIN_LINE_EVERY_SHARE * lasted_s)
        return now_s - self._printed_at_s > patience_s

    def _line(self, text: str) -> None:
        self._printed_at_s = time.monotonic()
        self._live.line(text)


def _speed(record: RunRecord) -> str:
    rate = f"{format_rate(record.throughput_samples_per_s)} samples/s"
    if record.compile_s is None:
        return rate
    return f"compiled in {format_duration(record.compile_s)}, {rate}"
