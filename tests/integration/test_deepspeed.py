"""deepspeed: it trains like ddp, and is refused by name where it cannot run.

The first test that runs it waits until DeepSpeed has compiled a part of itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mgpubench.errors import RequestRefused
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Supervisor, open_supervisor
from mgpubench.runners.deepspeed_check import check_deepspeed
from mgpubench.session.workers import CHECK_DEEPSPEED, IMAGES, launch_run
from tests.conftest import make_cpu_config
from tests.installed import needs_deepspeed, slow
from tests.integration.test_recipes import DDP, difference

DEEPSPEED = {"mode": "deepspeed", "effective_mode": "deepspeed", "num_devices": 2}


@pytest.fixture(scope="module")
def workers() -> Iterator[Supervisor]:
    """A supervisor of its own, in whose scratch folder DeepSpeed has compiled its part."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
        with StopSignal().installed() as stop, open_supervisor(stop, IMAGES) as supervisor:
            supervisor.call(CHECK_DEEPSPEED, make_cpu_config(**DEEPSPEED))
            assert list(supervisor.scratch.glob("extensions/*/*.so"))
            yield supervisor


Train = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def train(workers: Supervisor) -> Train:
    """Some steps of a run, as each of its ranks ends."""

    def run(**changes: Any) -> Any:
        config = make_cpu_config(
            **{"num_classes": 10, "steps": 3, "batch_per_device": 8, **changes}
        )
        return launch_run(workers, config, lambda steps: None, "tests.trained:some_steps")

    return run


@slow
@needs_deepspeed
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("model", ["mlp", "tiny-cnn", "resnet18"])
def test_deepspeed_trains_to_the_weights_of_ddp(train: Train, model: str, accumulate: int) -> None:
    work = {"model": model, "accumulate": accumulate}
    ddp, deepspeed = train(**work, **DDP), train(**work, **DEEPSPEED)
    for one, other in zip(ddp, deepspeed, strict=True):
        assert difference(other["weights"], one["weights"]) < 1e-5
        assert other["losses"] == pytest.approx(one["losses"], rel=1e-5)


@slow
@needs_deepspeed
@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_each_rank_has_its_part_of_the_optimizers_state(train: Train, optimizer: str) -> None:
    work = {"model": "mlp", "optimizer": optimizer}
    ddp, deepspeed = train(**work, **DDP), train(**work, **DEEPSPEED)
    assert difference(deepspeed[0]["weights"], ddp[0]["weights"]) < 1e-5
    kept = [rank["state_bytes"] for rank in deepspeed]
    assert sum(kept) == pytest.approx(ddp[0]["state_bytes"], rel=0.01)
    assert max(kept) < 0.51 * ddp[0]["state_bytes"]


@slow
@needs_deepspeed
def test_bf16_autocast_comes_close_to_fp32(train: Train) -> None:
    exact, found = (
        train(model="tiny-cnn", precision=precision, **DEEPSPEED)[0]
        for precision in ("fp32", "amp-bf16")
    )
    assert found["types"] == ["torch.float32"]
    assert found["losses"] != exact["losses"]
    assert found["losses"] == pytest.approx(exact["losses"], rel=0.02)


@slow
@needs_deepspeed
def test_one_device_trains_like_single(train: Train) -> None:
    (single,) = train(model="mlp")
    (alone,) = train(model="mlp", **{**DEEPSPEED, "num_devices": 1})
    assert difference(alone["weights"], single["weights"]) < 1e-5


# Refusals.


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    with pytest.raises(RequestRefused, match=r"^--mode deepspeed needs the package deepspeed"):
        check_deepspeed(make_cpu_config(**DEEPSPEED))


@pytest.mark.parametrize(
    ("there", "named"),
    [
        ((), r"needs a C\+\+ compiler \(c\+\+\) and ninja \(ninja\), to compile a part of itself"),
        (("c++",), r"needs ninja \(ninja\), to compile"),
        (("ninja",), r"needs a C\+\+ compiler \(c\+\+\), to compile"),
    ],
)
def test_a_compiler_or_ninja_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...], named: str
) -> None:
    for tool in there:
        (tmp_path / tool).touch(mode=0o755)
    monkeypatch.setitem(sys.modules, "deepspeed", sys)  # any module
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(RequestRefused, match=named):
        check_deepspeed(make_cpu_config(**DEEPSPEED))
