"""A supervisor for each environment of the variants of a session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from mgpubench.config.request import Request
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Supervisor, open_supervisor
from mgpubench.session.prepare import save_listings
from mgpubench.session.workers import NOTHING, preload_for
from mgpubench.training.data.listing import ImageListing

Environment = tuple[tuple[str, str], ...]
"""The environment variables that a variant sets."""


@contextmanager
def open_supervisors(
    first: Supervisor, request: Request, listings: Mapping[str, ImageListing], stop: StopSignal
) -> Iterator[Mapping[Environment, Supervisor]]:
    """A supervisor for each environment of the variants; `first` is the one without changes."""
    environments = dict.fromkeys(part.env for part in request.parts if part.env)
    with ExitStack() as stack:
        supervisors = {(): first} | {
            env: stack.enter_context(open_supervisor(stop, preload_for(request), dict(env)))
            for env in environments
        }
        for env, supervisor in supervisors.items():
            save_listings(supervisor, listings)
            if env:
                settings = (f"--env {name}={value}" for name, value in env)
                supervisor.call(NOTHING, label=" ".join(settings))
        yield supervisors
