"""What `mgpubench info` prints, on a machine whose facts are known."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from mgpubench.config.machine_facts import Machine
from mgpubench.machine.gpu_advice import Advice
from mgpubench.machine.host import SharedMemory
from mgpubench.machine.system import Survey
from mgpubench.report.machine_report import dotted_cudnn, to_json, to_text
from tests.unit.machine.test_advice import BUILD, SYSTEM


@pytest.mark.parametrize(
    ("number", "version"), [(92400, "9.24.0"), (90100, "9.1.0"), (8902, "8.9.2"), (7605, "7.6.5")]
)
def test_cudnns_number_is_shown_as_its_version(number: int, version: str) -> None:
    assert dotted_cudnn(number) == version


@pytest.fixture
def survey(machine: Callable[..., Machine]) -> Survey:
    """Two equal GPUs."""
    return Survey(system=SYSTEM, machine=machine(2), build=BUILD, torch_error="", environment={})


def test_facts_and_advice_are_lines_of_text(survey: Survey) -> None:
    lines = to_text(survey, [Advice("a-code", "a problem\x1b[2J", "its remedy")]).splitlines()
    facts = dict(line.split("  ", 1) for line in lines[: lines.index("")])
    assert facts["CPU"].strip() == (
        "CPU Y, 16 usable cores of 16, 8 physical cores, 1 NUMA node, load 0.20"
    )
    assert facts["RAM"].strip() == "64.0 GB, 60.0 GB available"
    assert facts["peer access"].strip() == "all to all"
    assert lines[-3:] == [
        "1 problem that will hurt or limit a benchmark:",
        "- a problem?[2J [a-code]",
        "  remedy: its remedy",
    ]
    assert to_text(survey, []).endswith("\nnothing found that would hurt a benchmark")


def test_unknown_sizes_are_said_to_be_unknown(survey: Survey) -> None:
    system = replace(
        SYSTEM,
        memory_bytes=None,
        memory_available_bytes=None,
        shared_memory=SharedMemory(None, None, is_writable=True),
    )
    lines = to_text(replace(survey, system=system), []).splitlines()
    facts = dict(line.split("  ", 1) for line in lines[: lines.index("")])
    assert facts["RAM"].strip() == facts["/dev/shm"].strip() == "unknown size"


def test_json_is_the_survey_with_its_advice(survey: Survey) -> None:
    document = json.loads(to_json(survey, [Advice("a-code", "a problem", "its remedy")]))
    assert document["machine"]["usable_cores"] == 16
    assert document["system"]["memory_limit_bytes"] is None
    assert document["advice"] == [
        {"code": "a-code", "message": "a problem", "remedy": "its remedy"}
    ]
