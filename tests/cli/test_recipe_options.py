"""`mgpubench run` with another optimizer, accumulation, precisions and options of DDP."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from torch.nn.parallel import DistributedDataParallel

from mgpubench.config.run_config import DdpOptions, RunConfig
from mgpubench.errors import RequestRefused
from mgpubench.launch.supervisor import Supervisor
from mgpubench.runners.comm_hooks import check_hook
from tests.conftest import Here, make_cpu_config

RunHere = Callable[..., Here]


def rows(folder: Path) -> list[dict[str, str]]:
    (path,) = folder.glob("results/*/runs.csv")
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_work_is_in_its_columns_and_in_the_title(run_here: RunHere, tmp_path: Path) -> None:
    done = run_here(
        *("run", "--smoke", "--mode", "single,dp,ddp", "-b", 4),
        *("--optimizer", "adamw", "--accumulate", 3),
        cwd=tmp_path,
    )
    assert done.exit_code == 0, done.err
    found = {row["mode"]: row for row in rows(tmp_path)}
    for mode, devices in (("single", 1), ("dp", 2), ("ddp", 2)):
        row = found[mode]
        assert (row["optimizer"], row["accumulate"]) == ("adamw", "3")
        assert (row["batch_per_device"], row["global_batch"]) == ("12", str(12 * devices))
        assert row["samples"] == str(5 * 12 * devices)
        assert row["skipped_steps"] == row["options"] == ""
    assert "adamw, batch 12 per device, in 3 micro-batches" in done.out


def test_options_of_ddp_stand_beside_ddp_alone(run_here: RunHere, tmp_path: Path) -> None:
    done = run_here(
        *("run", "--smoke", "--mode", "dp,ddp", "--zero", "--comm-hook", "fp16"),
        *("--log-every", 1, "--precision", "amp-fp16"),
        cwd=tmp_path,
    )
    assert done.exit_code == 0, done.err
    found = {row["mode"]: row for row in rows(tmp_path)}
    assert found["ddp"]["options"] == "comm_hook=fp16;log_every=1;zero=true"
    assert found["dp"]["options"] == "log_every=1"
    assert {row["skipped_steps"] for row in found.values()} == {"0"}
    assert "amp-fp16 on a CPU: fp16 is far slower there" in done.err
    assert done.err.count("samples/s, loss 6.") == 2


def test_two_bytes_a_weight_are_recorded(run_here: RunHere, tmp_path: Path) -> None:
    done = run_here("run", "--smoke", "--mode", "single", "--precision", "bf16", cwd=tmp_path)
    assert done.exit_code == 0, done.err
    (row,) = rows(tmp_path)
    assert int(row["parameter_bytes"]) == 2 * int(row["num_parameters"])


def test_variants_measure_what_logging_costs(run_here: RunHere, tmp_path: Path) -> None:
    done = run_here(
        *("run", "--smoke", "--mode", "ddp"),
        *("--variant", "quiet:", "--variant", "log: --log-every 1"),
        cwd=tmp_path,
    )
    assert done.exit_code == 0, done.err
    assert {row["variant"]: row["options"] for row in rows(tmp_path)} == {
        "quiet": "",
        "log": "log_every=1",
    }
    assert done.out.count("tiny-cnn") == 1  # one table


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--accumulate", "2", "--static-graph"), "--accumulate and --static-graph exclude"),
        (("--mode", "dp", "--zero"), "--zero: only for ddp"),
        (("--mode", "dp", "--comm-hook", "bf16"), "--comm-hook: only for ddp"),
        (("--sync-batchnorm",), "--sync-batchnorm needs GPUs"),
        (("--global-batch", "10", "--accumulate", "3"), "2 devices x 3 micro-batches"),
        (("--accumulate", "0"), "--accumulate is 0"),
    ],
)
def test_what_cannot_be_is_refused_in_two_lines(
    run_here: RunHere, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    done = run_here("run", "--device", "cpu", "--out", "out", *options, cwd=tmp_path)
    assert done.exit_code == 2
    error = done.err.splitlines()
    assert error[0].startswith("error: ")
    assert words in error[0]
    assert not (tmp_path / "out").exists()


def check_without_bf16(config: RunConfig) -> None:
    """As on a torch that lacks the hook; called in a worker."""

    def refuse(*arguments: object) -> None:
        raise TypeError("BF16 all reduce communication hook required CUDA 11+ and NCCL 2.10+")

    DistributedDataParallel.register_comm_hook = refuse  # type: ignore[method-assign,assignment]
    check_hook(config)


def test_a_hook_that_torch_does_not_have_is_refused_before_the_first_run(
    supervisor: Supervisor,
) -> None:
    config = make_cpu_config(mode="ddp", num_devices=2, ddp=DdpOptions(comm_hook="bf16"))
    supervisor.call("mgpubench.runners.comm_hooks:check_hook", config, hide_gpus=True)
    with pytest.raises(RequestRefused) as caught:
        supervisor.call("tests.cli.test_recipe_options:check_without_bf16", config, hide_gpus=True)
    assert caught.value.message == (
        "--comm-hook bf16 does not work here over gloo: BF16 all reduce communication hook "
        "required CUDA 11+ and NCCL 2.10+"
    )
    assert caught.value.hint
