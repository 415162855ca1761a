"""What `mgpubench info` asks, and of whom."""

from __future__ import annotations

import os

from mgpubench import host
from mgpubench.errors import TorchUnavailable
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import open_supervisor
from mgpubench.system import Survey, describe_system


def take_survey(stop: StopSignal) -> Survey:
    """Ask the system here, and torch in a process that ends, so that no CUDA context is held here.

    Raises:
        BenchError: Interrupted after a signal. A torch that cannot be imported is a finding.
    """
    machine = build = None
    torch_error = ""
    with open_supervisor(stop, "torch") as supervisor:
        try:
            machine = supervisor.call("mgpubench.machine:describe")
            build = supervisor.call("mgpubench.machine:describe_build")
        except TorchUnavailable as error:
            torch_error = error.message
    return Survey(
        system=describe_system(),
        machine=machine,
        build=build,
        torch_error=torch_error,
        environment=host.recorded_environment(os.environ),
    )
