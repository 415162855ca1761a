"""By what a machine is identified."""

from __future__ import annotations

from collections.abc import Callable

from mgpubench.config.machine_facts import Machine


def test_a_machine_is_identified_by_cpu_cores_and_gpus(
    machine: Callable[..., Machine],
) -> None:
    prints = {
        machine(2).fingerprint,
        machine(1).fingerprint,
        machine(2, usable_cores=8).fingerprint,
        machine(2, cpu_model="CPU Z").fingerprint,
    }
    assert len(prints) == 4
    assert all(len(text) == 8 and int(text, 16) >= 0 for text in prints)


def test_versions_do_not_make_another_machine(machine: Callable[..., Machine]) -> None:
    assert machine(2, driver_version="1").fingerprint == machine(2).fingerprint
