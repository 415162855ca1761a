"""The parent's side of the telemetry: rows of a run, and no failure of it reaches a session."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mgpubench.config.machine_facts import Machine
from mgpubench.errors import RunFailed
from mgpubench.results.rank_record import RankRecord
from mgpubench.results.schema import ModelFacts
from mgpubench.results.session_folder import Session, open_session
from mgpubench.results.telemetry import MACHINE, Sample
from mgpubench.session import recorder
from mgpubench.session.document import load_session
from mgpubench.session.prepare import Workload
from mgpubench.session.recorder import Recorder, Sitting
from mgpubench.session.telemetry import (
    NO_TELEMETRY,
    SampledTelemetry,
    Sampling,
    lost_gpu,
    open_telemetry,
    samples_of,
    uuids_of,
)
from tests.conftest import make_cpu_config
from tests.fakes import nvml_environment
from tests.unit.session.test_recorder import Shown

ON_GPUS: dict[str, Any] = {
    "device_type": "cuda",
    "mode": "dp",
    "effective_mode": "dp",
    "num_devices": 2,
    "device_indices": (0, 1),
}


def let_it_find_gpus(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    for name, value in nvml_environment(**settings).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return open_session(tmp_path, {"argv": ["run"]}, datetime.now(UTC))


def about(session: Session) -> list[dict[str, Any]]:
    document = json.loads((session.folder / "session.json").read_text())
    entries: list[dict[str, Any]] = document.get("telemetry", [])
    return entries


def test_each_run_has_its_own_samples_and_session_json_the_cost(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_it_find_gpus(monkeypatch, gpus=2)
    shown: Any = Shown()
    with session, open_telemetry(session, shown, 3, Sampling()) as telemetry:
        telemetry.begin_run("r1")
        first = telemetry.end_run()
        telemetry.begin_run("r2")
        second = telemetry.end_run()
        assert set(telemetry.latest()) == {MACHINE, "GPU-0", "GPU-1"}
    assert set(first) == set(second) == {MACHINE, "GPU-0", "GPU-1"}
    assert first["GPU-1"][-1].clock_s <= second["GPU-1"][0].clock_s
    text = (session.folder / "telemetry.csv").read_text()
    assert {line.split(",")[2] for line in text.splitlines()[1:]} >= {"r1", "r2"}
    (entry,) = about(session)
    assert entry["sitting"] == 3
    assert entry["sampler_cpu_s"] > 0
    assert (entry["no_gpus"], entry["failure"]) == (None, None)
    assert shown.calls == []


def test_a_sampler_that_was_killed_is_mentioned_and_nothing_else_happens(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: Any = Shown()
    let_it_find_gpus(monkeypatch, init=12)
    with session, open_telemetry(session, shown, 1, Sampling()) as telemetry:
        assert isinstance(telemetry, SampledTelemetry)
        telemetry.begin_run("r1")
        telemetry.end_run()
        telemetry._process.send_signal(signal.SIGKILL)
        telemetry._process.wait()
        telemetry.begin_run("r2")
        assert telemetry.end_run() == {}
    assert shown.named("notice") == [("the telemetry ended early: its process has ended",)]
    (entry,) = about(session)
    assert entry["no_gpus"] == "NVML: library not found (NVML error 12)"


def test_a_stopped_sampler_does_not_hold_a_session_up(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mgpubench.session.telemetry.ANSWER_S", 0.05)
    monkeypatch.setattr("mgpubench.session.telemetry.END_S", 0.05)
    shown: Any = Shown()
    with session, open_telemetry(session, shown, 1, Sampling()) as telemetry:
        assert isinstance(telemetry, SampledTelemetry)
        telemetry._process.send_signal(signal.SIGSTOP)
        telemetry.begin_run("r1")
        assert telemetry.end_run() == {}
    assert telemetry._process.wait(10) == -signal.SIGKILL


def test_without_telemetry_nothing_is_started(session: Session) -> None:
    shown: Any = Shown()
    with session, open_telemetry(session, shown, 1, Sampling(is_wanted=False)) as telemetry:
        assert telemetry is NO_TELEMETRY
    assert not (session.folder / "telemetry.csv").exists()
    assert about(session) == []


def test_an_edited_session_json_is_not_made_whole_again(session: Session) -> None:
    path = session.folder / "session.json"
    edited = path.read_text().replace("run", "ran")
    path.write_text(edited)
    assert not session.amend("telemetry", {"sitting": 1})
    assert path.read_text() == edited
    path.unlink()
    assert not session.amend("telemetry", {"sitting": 1})


def test_a_session_stays_locked_when_session_json_is_amended(session: Session) -> None:
    from mgpubench.errors import RequestRefused
    from mgpubench.results.session_folder import reopen_session

    assert session.amend("telemetry", {"sitting": 1})
    assert session.amend("telemetry", {"sitting": 2})
    assert [entry["sitting"] for entry in about(session)] == [1, 2]
    with pytest.raises(RequestRefused, match="another mgpubench is writing"):
        reopen_session(session.folder, session.id)
    with session:
        pass
    with reopen_session(session.folder, session.id):
        pass


# Lost GPUs.


def sample(device: str, error: str = "") -> Sample:
    unknown: dict[str, Any] = dict.fromkeys(Sample._fields)
    return Sample(
        **{**unknown, "clock_s": 0.0, "device": device, "error": error, "clock_reasons": ""}
    )


LOST = {"GPU-0": sample("GPU-0"), "GPU-1": sample("GPU-1", "lost (NVML error 15)")}


def test_gpus_are_found_with_and_without_the_prefix_that_torch_leaves_out() -> None:
    samples = {"machine": 0, "GPU-a-1": 1, "MIG-b-2": 2}
    assert samples_of(samples, ["a-1", "GPU-a-1", "b-2", "MIG-b-2", "c"]) == [1, 1, 2, 2, None]


def test_a_lost_gpu_fails_the_runs_that_use_it_and_no_others(
    machine: Callable[..., Machine],
) -> None:
    both = make_cpu_config(**ON_GPUS)
    error = lost_gpu(both, machine(2), LOST)
    assert error is not None
    assert error.message == (
        "dp x2: GPU 1 (NVIDIA X, GPU-1) has fallen off the bus (NVML error 15)"
    )
    single = make_cpu_config(device_type="cuda", device_indices=(0,))
    assert lost_gpu(single, machine(2), LOST) is None
    assert lost_gpu(make_cpu_config(num_devices=2, mode="dp"), machine(2), LOST) is None


def test_gpus_of_several_machines_are_not_ours_to_look_at(
    machine: Callable[..., Machine],
) -> None:
    config = make_cpu_config(
        **{**ON_GPUS, "mode": "ddp", "effective_mode": "ddp", "devices_per_node": (1, 1)}
    )
    assert uuids_of(config, machine(2)) == []
    assert uuids_of(make_cpu_config(**ON_GPUS), machine(2)) == ["GPU-0", "GPU-1"]


class CannedTelemetry:
    """Telemetry with the samples of a test."""

    def __init__(self, samples: dict[str, Sample]) -> None:
        self.samples = samples
        self.runs: list[str] = []

    def begin_run(self, run_id: str) -> None:
        self.runs.append(run_id)

    def end_run(self) -> dict[str, list[Sample]]:
        return {device: [each] for device, each in self.samples.items()}

    def latest(self) -> dict[str, Sample]:
        return self.samples


def recorder_with(session: Session, machine: Machine, telemetry: Any, shown: Any) -> Recorder:
    facts = ModelFacts(num_parameters=7, parameter_bytes=28, num_classes=10, digest="")
    workload = Workload(machine, "none", {"tiny-cnn": facts}, {})
    return Recorder(session, workload, shown, Sitting(), telemetry)


@pytest.mark.parametrize("how", ["the ranks hang", "the ranks fail"])
def test_the_row_of_a_run_names_the_gpu_that_it_lost(
    how: str, session: Session, machine: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch(launcher: Any, config: Any, on_steps: Callable[[int], None], **_: Any) -> None:
        if how == "the ranks hang":
            on_steps(7)
        raise RunFailed("dp x2: rank 0: CUDA error: unspecified launch failure")

    monkeypatch.setattr(recorder, "launch_run", launch)
    shown: Any = Shown()
    telemetry = CannedTelemetry(LOST)
    with session:
        record = recorder_with(session, machine(2), telemetry, shown).run(
            Any,
            make_cpu_config(**ON_GPUS),  # type: ignore[arg-type]
        )
    assert record.status == "failed"
    assert record.error.endswith("has fallen off the bus (NVML error 15)")
    assert telemetry.runs == [record.run_id]


def test_a_run_that_was_throttled_has_the_finding(
    session: Session,
    machine: Callable[..., Machine],
    rank_record: Callable[..., RankRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranks = [rank_record([1.0] * 4, window_ended_s=14.0)]
    monkeypatch.setattr(recorder, "launch_run", lambda *arguments, **named: ranks)
    shown: Any = Shown()

    class Hot(CannedTelemetry):
        def end_run(self) -> dict[str, list[Sample]]:
            hot = [
                sample("GPU-0")._replace(clock_s=at_s, clock_reasons="heat", energy_j=at_s * 200)
                for at_s in (9.0, 11.0, 13.0, 15.0)
            ]
            return {"GPU-0": hot}

    config = make_cpu_config(device_type="cuda", device_indices=(0,))
    with session:
        record = recorder_with(session, machine(2), Hot({}), shown).run(Any, config)  # type: ignore[arg-type]
    assert "throttled" in record.finding_codes
    assert record.throttle_reasons == "heat"
    assert record.energy_j == pytest.approx(800)
    ((_, finding),) = [args for args in shown.named("finding") if args[1].code == "throttled"]
    assert finding.message.startswith("a GPU was slowed down in the window by heat: ")


def test_a_resumed_session_may_have_been_amended(tmp_path: Path) -> None:
    """The digest of session.json is that of the whole, so it is still known as unedited."""
    from mgpubench.config.plan import make_plan
    from mgpubench.config.request import Request
    from mgpubench.machine.host import assumed_machine
    from mgpubench.session.document import called_part

    request = Request(device="cpu", smoke=True)
    plan = make_plan(request, assumed_machine(0))
    with open_session(tmp_path, called_part(request, plan, ["run"]), datetime.now(UTC)) as opened:
        assert opened.amend("telemetry", {"sitting": 1})
    assert load_session(opened.folder).plan == plan
