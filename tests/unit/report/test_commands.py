"""Commands that would give a verdict: they must do what the sentence before them says."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from mgpubench.analysis.compare import compare
from mgpubench.analysis.row import Row
from mgpubench.report.commands import command_to_resume, command_to_run
from mgpubench.results.schema import RunRecord
from tests.conftest import make_run_record as run


def rows(*records: RunRecord) -> list[Row]:
    return compare(records, None, 0.02)


def command(*modes: str, **changes: Any) -> str:
    """For one run of each mode."""
    return command_to_run(rows(*(run(mode, **changes) for mode in modes)))


DEFAULTS: dict[str, Any] = {"image_size": None, "precision": ""}
"""Values that make no option."""


def test_a_session_is_resumed_until_it_is_decided() -> None:
    folders = {"s1": Path("results/s1"), "s2": Path("results/my session")}
    assert command_to_resume("s1", folders, 17) == (
        "mgpubench run --resume results/s1 --until decided"
    )
    assert command_to_resume("s2", folders, 17) == (
        "mgpubench run --resume 'results/my session' --until decided"
    )
    assert command_to_resume("s3", folders, 17) == (
        "mgpubench run --resume SESSION --until decided"
    )


@pytest.mark.parametrize(("rounds", "limit"), [(50, ""), (51, " --max-rounds 51")])
def test_more_rounds_than_until_makes_by_itself_are_allowed(rounds: int, limit: str) -> None:
    folders = {"s1": Path("results/s1")}
    assert command_to_resume("s1", folders, rounds).endswith(f"--until decided{limit}")


def test_a_folder_whose_name_controls_a_terminal_is_shown_without() -> None:
    text = command_to_resume("s1", {"s1": Path("results/\x1b[2J")}, 17)
    assert "\x1b" not in text


def test_all_modes_and_numbers_of_devices_of_the_rows_are_measured() -> None:
    both = [run("ddp", num_devices=count, **DEFAULTS) for count in (8, 2)]
    assert command_to_run(rows(run("single", **DEFAULTS), *both)) == (
        "mgpubench run --mode single,ddp --gpus 2,8"
    )
    assert command("single", **DEFAULTS) == "mgpubench run --mode single"


def test_the_standard_work_needs_no_option() -> None:
    standard = {"model": "resnet50", "batch_per_device": 64, "warmup_steps": 20, "steps": 100}
    assert command("dp", "ddp", **DEFAULTS, **standard) == "mgpubench run --mode dp,ddp --gpus 2"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device_type": "cpu"}, "--device cpu"),
        ({"model": "resnet18"}, "--model resnet18"),
        ({"model": "nets.small:make_net"}, "--model nets.small:make_net"),
        ({"data": "synthetic-host"}, "--data synthetic-host"),
        ({"image_size": 96}, "--image-size 96"),
        ({"precision": "amp-bf16"}, "--precision amp-bf16"),
        ({"batch_per_device": 8}, "--batch-per-gpu 8"),
        ({"scaling": "strong", "global_batch": 96}, "--global-batch 96"),
        ({"warmup_steps": 0}, "--warmup-steps 0"),
        ({"steps": 9}, "--steps 9"),
        ({"channels_last": True}, "--channels-last"),
        ({"compiled": True}, "--compile"),
        (
            {"data": "imagefolder:photos", "workers_per_device": 3},
            "--data FOLDER/photos --workers-per-gpu 3",
        ),
        ({"options": "bucket_cap_mb=50"}, "--bucket-cap-mb 50"),
        ({"options": "backend=gloo;static_graph=true"}, "--backend gloo --static-graph"),
        # Outside of the command line.
        ({"options": "cudnn_benchmark=true;env:A_B=1;env:C=2"}, "--cudnn-benchmark"),
    ],
    ids=str,
)
def test_what_is_not_standard_is_an_option(changes: dict[str, Any], words: str) -> None:
    assert command("dp", "ddp", **{**DEFAULTS, **changes}) == (
        f"mgpubench run --mode dp,ddp --gpus 2 {words}"
    )


def test_workers_are_no_option_for_data_without_a_loader() -> None:
    assert "--workers" not in command("dp", "ddp", **DEFAULTS, workers_per_device=3)


def test_options_of_ddp_alone_are_kept_beside_those_of_all_modes() -> None:
    common = "cudnn_benchmark=true"
    records = [
        run("dp", options=common, **DEFAULTS),
        run("ddp", options=f"bucket_cap_mb=50;{common}", **DEFAULTS),
    ]
    assert command_to_run(rows(*records)).endswith(" --bucket-cap-mb 50 --cudnn-benchmark")


def test_options_in_which_rows_differ_cannot_be_one_command() -> None:
    records = [
        run("ddp", options="bucket_cap_mb=50", **DEFAULTS),
        run("ddp", options="bucket_cap_mb=5", **DEFAULTS),
    ]
    assert command_to_run(rows(*records)) == "mgpubench run --mode ddp --gpus 2"


@pytest.mark.parametrize("name", ["a; rm -rf ~", "$(reboot)", "`x`", "my photos", "a'b", "x&y"])
def test_text_from_a_file_is_one_word_and_no_command(name: str) -> None:
    """A results file may come from anybody, and the command is there to be copied."""
    text = command("dp", "ddp", **{**DEFAULTS, "model": name, "data": f"imagefolder:{name}"})
    words = shlex.split(text)
    assert words[words.index("--model") + 1] == name
    assert words[words.index("--data") + 1] == f"FOLDER/{name}"
    option = name.replace(";", "")  # which divides options
    words = shlex.split(command("ddp", **{**DEFAULTS, "options": f"backend={option}"}))
    assert words[-2:] == ["--backend", option]
    words = shlex.split(command("ddp", **{**DEFAULTS, "options": f"{option}=true"}))
    assert words[-1] == f"--{option}"


def test_a_command_can_be_given_to_the_program() -> None:
    """Every option in it exists."""
    from mgpubench.cli.run import run as command_line

    known = {option for parameter in command_line.params for option in parameter.opts}
    full = {
        "device_type": "cpu", "model": "mlp", "data": "imagefolder:photos", "image_size": 9,
        "precision": "fp32", "batch_per_device": 3, "workers_per_device": 2, "warmup_steps": 1,
        "steps": 2, "channels_last": True, "compiled": True,
        "options": "backend=gloo;bucket_cap_mb=2;cudnn_benchmark=true;find_unused_parameters=true"
        ";gradient_as_bucket_view=true;static_graph=true",
    }  # fmt: skip
    words = shlex.split(command("single", "ddp", **full))
    assert {word for word in words if word.startswith("--")} <= known
    words = shlex.split(command_to_resume("s1", {}, 99))
    assert {word for word in words if word.startswith("--")} <= known
