"""A node's part of a run: its own ranks, and an eye on the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from mgpubench.errors import BenchError, Interrupted, SessionEnded
from mgpubench.launch.cause import RanksFailed
from mgpubench.launch.environment import Meeting
from mgpubench.launch.nodes.link import Link
from mgpubench.launch.nodes.messages import Done, abort_key, group_of
from mgpubench.launch.supervisor import GRACE_S, Job, Launcher


class _WasAsked(BenchError):
    """Another node's part of the run has failed."""


@dataclass(slots=True)
class Part:
    """A node's part of run number `run`."""

    link: Link
    interface: str
    """By which this machine reaches the others."""
    run: int
    asked_at_s: float | None = field(default=None, init=False)
    """When another node's failure was first seen, by the elapsed seconds of the run."""

    def make(self, launcher: Launcher, job: Job) -> Done:
        """Run this node's ranks to their end.

        Raises:
            Interrupted, SessionEnded: if the session is over.
        """
        self.link.want(self._aborts)
        try:
            results = launcher.run(self._with_others(job))
            return Done(results=tuple(results))
        except (Interrupted, SessionEnded):
            raise
        except RanksFailed as error:
            outcome = Done(exits=error.exits)
        except _WasAsked:
            outcome = Done(was_asked=True)
        except BenchError as error:
            outcome = Done(error=error)
        finally:
            self.link.forget(self._aborts)
        self.link.put(abort_key(self.run, self.link.place.node), True)
        return outcome

    @property
    def _aborts(self) -> list[str]:
        place = self.link.place
        return [abort_key(self.run, k) for k in range(place.num_nodes) if k != place.node]

    def _with_others(self, job: Job) -> Job:
        place = self.link.place
        return replace(
            job,
            watch=self._watching(job.watch),
            explain=RanksFailed,
            meeting=Meeting(
                place.host, place.port, place.prefix + group_of(self.run), self.interface
            ),
        )

    def _watching(self, watch: Callable[[float], None]) -> Callable[[float], None]:
        def watch_all(elapsed_s: float) -> None:
            watch(elapsed_s)
            self.link.check()
            if self.asked_at_s is None and any(map(self.link.has, self._aborts)):
                self.asked_at_s = elapsed_s
            # Its own ranks may have seen more than that a peer is gone.
            if self.asked_at_s is not None and elapsed_s - self.asked_at_s >= GRACE_S:
                raise _WasAsked("another node has failed")

        return watch_all
