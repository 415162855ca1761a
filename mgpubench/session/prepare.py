"""What `mgpubench info` asks, and of whom."""

from __future__ import annotations

import os
from typing import Any

from mgpubench.errors import BenchError, Interrupted
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Supervisor, open_supervisor
from mgpubench.machine import host
from mgpubench.machine.system import Survey, describe_system


def _ask(supervisor: Supervisor, target: str) -> tuple[Any, str]:
    """The answer of a function, or why there is none: a broken torch is what people look for."""
    try:
        return supervisor.call(target), ""
    except Interrupted:
        raise
    except BenchError as error:
        return None, error.message


def take_survey(stop: StopSignal) -> Survey:
    """Ask the system here, and torch in a process that ends, so that no CUDA context is held here.

    Raises:
        BenchError: Interrupted after a signal. A torch that cannot be imported is a finding.
    """
    with open_supervisor(stop, "torch") as supervisor:
        machine, torch_error = _ask(supervisor, "mgpubench.machine.cuda:describe")
        build, build_error = _ask(supervisor, "mgpubench.machine.cuda:describe_build")
    return Survey(
        system=describe_system(),
        machine=machine,
        build=build,
        torch_error=torch_error or build_error,
        environment=host.recorded_environment(os.environ),
    )
