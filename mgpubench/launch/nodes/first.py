"""Node 0: it gathers the others, starts every run on all of them, and finds the cause of a
failure."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mgpubench.errors import RunFailed, SessionEnded
from mgpubench.launch.nodes.cause import find_cause_of_nodes
from mgpubench.launch.nodes.end import ending
from mgpubench.launch.nodes.link import Link
from mgpubench.launch.nodes.messages import (
    PLAN,
    Done,
    Hello,
    ack_key,
    bye_key,
    command_key,
    done_key,
    hello_key,
)
from mgpubench.launch.nodes.part import Part
from mgpubench.launch.supervisor import Job, Launcher

END_OF_PART_S = 30.0
"""After node 0's own part, for the others to end theirs: a rank that hangs is ended sooner."""


@dataclass(slots=True)
class First:
    """Node 0's view of all nodes."""

    link: Link
    interface: str
    failures: str = ""
    """Why the session has failed, for the others; empty if it has not."""
    _runs: Iterator[int] = field(default_factory=itertools.count, init=False)

    @property
    def others(self) -> range:
        """The numbers of the other nodes."""
        return range(1, self.link.place.num_nodes)

    def gather(self, on_join: Callable[[int, Hello], None]) -> list[Hello]:
        """Wait until all other nodes have said who they are.

        Raises:
            RunFailed: naming those that have not come in time.
        """
        timeout_s = self.link.place.join_timeout_s
        until_s = time.monotonic() + timeout_s
        self.link.wait_to_join()
        keys = {node: hello_key(node) for node in self.others}
        self.link.want(list(keys.values()), is_urgent=True)
        hellos: list[Hello] = []
        for node, key in keys.items():
            if self.link.wait([key], max(0.0, until_s - time.monotonic())):
                raise self._missing(timeout_s)
            hellos.append(self.link.read(key, Hello))
            on_join(node, hellos[-1])
        self.link.watch(self.others)
        return hellos

    def _missing(self, timeout_s: float) -> RunFailed:
        missing = [node for node in self.others if not self.link.has(hello_key(node))]
        names = ", ".join(f"node {node}" for node in missing)
        return RunFailed(
            f"{names} of {self.link.place.num_nodes} did not join within --join-timeout "
            f"{timeout_s:g} s",
            "Start the same command there with its own --node-rank. Can it reach --rdzv-endpoint?",
        )

    def announce(self, plan: object) -> None:
        """Tell all nodes what will be run."""
        self.link.put(PLAN, plan)

    def answers(self) -> list[dict[str, Any]]:
        """What each of the other nodes has found out about the plan."""
        keys = [ack_key(node) for node in self.others]
        self.link.wait(keys)
        return [self.link.read(key, dict) for key in keys]

    def run(self, launcher: Launcher, job: Job) -> list[Any]:
        """Run a job on all nodes, and return what its calls return, in the order of the ranks.

        Raises:
            BenchError: the cause, if any part failed; SessionEnded if the session is over.
        """
        run = next(self._runs)
        self.link.put(command_key(run), job.order)
        own = Part(self.link, self.interface, run).make(launcher, job)
        outcomes = {0: own} | self._outcomes_of_others(run, job.label)
        if any(outcome.has_failed for outcome in outcomes.values()):
            raise find_cause_of_nodes(outcomes, job.label, job.explain)
        return [result for node in sorted(outcomes) for result in outcomes[node].results]

    def _outcomes_of_others(self, run: int, label: str) -> dict[int, Done]:
        keys = {node: done_key(run, node) for node in self.others}
        missing = self.link.wait(list(keys.values()), END_OF_PART_S)
        if missing:
            late = [node for node, key in keys.items() if key in missing]
            raise SessionEnded(
                f"{label}: node {late[0]} did not end its part within {END_OF_PART_S:.0f} s of "
                "node 0",
                "Look for a process that hangs there.",
            )
        outcomes = {node: self.link.read(key, Done) for node, key in keys.items()}
        self.link.forget(list(keys.values()))
        return outcomes


@contextlib.contextmanager
def leading(link: Link, interface: str) -> Iterator[First]:
    """Node 0's view of all nodes. At the end it sends them the reason."""
    first = First(link, interface)
    farewells = [bye_key(node) for node in first.others]
    with ending(link, farewells, lambda: first.failures):
        yield first


@dataclass(frozen=True, slots=True)
class NodesLauncher:
    """A launcher that runs a job on all nodes if it has parts there."""

    first: First
    local: Launcher

    @property
    def scratch(self) -> Path:
        """The folder for what node 0's workers are to read."""
        return self.local.scratch

    def make_folder(self) -> Path:
        """A new folder for the files of a job."""
        return self.local.make_folder()

    def run(self, job: Job) -> list[Any]:
        """Run a job to its end, and return what its calls return, in the order of the ranks."""
        return self.local.run(job) if job.order is None else self.first.run(self.local, job)
