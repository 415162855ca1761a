"""`mgpubench run` with people's own models, images, compilers and environments."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from tests.conftest import Here
from tests.processes import Command, mgpubench

TINY = (
    *("run", "--device", "cpu", "--model", "tiny-cnn", "--image-size", 64, "-b", 4),
    *("--warmup-steps", 1, "--steps", 4, "--rounds", 1, "--out", "out"),
)
AUTO = tuple(word for word in TINY if word not in ("--device", "cpu"))
Row = dict[str, str]
Run = Callable[..., Here]


def rows(command: Command | Here, cwd: Path) -> dict[str, Row]:
    """The rows of the only session of a command that succeeded, by mode."""
    assert command.wait() == 0, command.err
    (path,) = cwd.glob("out/*/runs.csv")
    with path.open(newline="", encoding="utf-8") as file:
        return {row["mode"]: row for row in csv.DictReader(file)}


def the_error(command: Command | Here, exit_code: int) -> str:
    """The error of a command that failed, which it prints in one line, and once."""
    assert command.wait() == exit_code, command.err
    assert "Traceback" not in command.err
    errors = [line for line in command.err.splitlines() if line.startswith("error: ")]
    assert len(set(errors)) == len(errors)
    return errors[0].removeprefix("error: ")


# Models.


def test_a_model_of_the_users_own_runs_in_every_mode(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(
        "from torch import nn\n"
        "def small():\n"
        "    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 7))\n"
    )
    command = mgpubench(*TINY, "--model", "nets:small", cwd=tmp_path)
    found = rows(command, tmp_path)
    assert set(found) == {"single", "dp", "ddp"}
    assert {row["model"] for row in found.values()} == {"nets:small"}
    assert {row["num_parameters"] for row in found.values()} == {str(48 * 7 + 7)}


def test_unused_parameters_of_a_model_get_a_hint_with_the_option_that_helps(
    run_here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C52: DDP fails in the second step if a parameter gets no gradient."""
    (tmp_path / "netswithunused.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.used, self.unused = nn.Linear(48, 7), nn.Linear(48, 7)\n"
        "        self.pool = nn.AdaptiveAvgPool2d(4)\n"
        "    def forward(self, images):\n"
        "        return self.used(self.pool(images).flatten(1))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    options = ("--model", "netswithunused:Net", "--mode", "ddp", "--gpus", 2)
    command = run_here(*TINY, *options, cwd=tmp_path)
    the_error(command, 1)
    assert "hint: Some parameters got no gradient; try --find-unused-parameters." in command.err
    shutil.rmtree(tmp_path / "out")
    helped = run_here(*TINY, *options, "--find-unused-parameters", cwd=tmp_path)
    row = rows(helped, tmp_path)["ddp"]
    assert row["options"] == "find_unused_parameters=true"


def test_an_impossible_image_size_is_refused_once_before_ranks_are_started(
    run_here: Run, tmp_path: Path
) -> None:
    """C39."""
    options = ("--model", "vit_b_16", "--image-size", 32, "-b", 1, "--mode", "ddp", "--gpus", 2)
    error = the_error(run_here(*TINY, *options, cwd=tmp_path), 2)
    assert all(word in error for word in ("vit_b_16", "32", "224")), error
    assert not (tmp_path / "out").exists()


# Images.


def test_bad_images_end_the_run_or_are_counted(
    run_here: Run, photos: Callable[..., Path], tmp_path: Path
) -> None:
    """C58: zero bytes, and a hidden companion that macOS leaves."""
    root = photos(cat=8, dog=4)
    (root / "cat" / "empty.jpg").touch()
    (root / "cat" / "._1.jpg").write_bytes(b"\0" * 4096)
    options = (*TINY, "--data", root, "--mode", "single", "--steps", 12)
    error = the_error(run_here(*options, cwd=tmp_path), 1)
    assert f"cannot read image {root}/cat/empty.jpg: it is not an image" in error
    shutil.rmtree(tmp_path / "out")
    command = run_here(*options, "--skip-bad-images", cwd=tmp_path)
    row = rows(command, tmp_path)["single"]
    assert row["dataset_samples"] == "13"
    assert row["skipped_images"] == "1"
    assert "bad-images" in row["findings"]
    assert command.err.count(f"{root}/cat/empty.jpg") == 1


def test_rows_say_what_was_loaded_and_by_how_many(
    run_here: Run, photos: Callable[..., Path], tmp_path: Path
) -> None:
    root = photos()
    options = ("--data", root, "--mode", "all", "--gpus", 2, "--workers-per-gpu", 1)
    found = rows(run_here(*TINY, *options, cwd=tmp_path), tmp_path)
    workers = {mode: row["loader_workers"] for mode, row in found.items()}
    assert workers == {"single": "1", "dp": "2", "ddp": "2"}
    (digest,) = {row["dataset_digest"] for row in found.values()}
    assert re.fullmatch("[0-9a-f]{16}", digest)
    (folder,) = tmp_path.glob("out/*")
    (dataset,) = json.loads((folder / "session.json").read_text())["datasets"]
    assert (dataset["name"], dataset["digest"]) == ("photos", digest)

    # The rest of a session must be made with the same images.
    path = folder / "runs.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    Image.new("RGB", (400, 400)).save(root / "cat" / "0.jpg")
    refusal = run_here("run", "--resume", folder, cwd=tmp_path)
    assert "the names or sizes of the images have changed" in the_error(refusal, 2)


def test_a_decompression_bomb_is_named_with_its_pixels(
    run_here: Run, photos: Callable[..., Path], tmp_path: Path
) -> None:
    """C72."""
    root = photos()
    Image.new("1", (13_400, 13_400)).save(root / "cat" / "big.png")
    command = run_here(*(*TINY, "--data", root, "--mode", "single", "--steps", 12), cwd=tmp_path)
    error = the_error(command, 1)
    assert f"{root}/cat/big.png" in error
    assert "179560000 pixels" in error


def test_a_huge_image_is_used_and_named_once(
    run_here: Run, photos: Callable[..., Path], tmp_path: Path
) -> None:
    """C72: 9500 x 9500 is above the limit at which Pillow warns."""
    root = photos(cat=3, dog=4)
    Image.new("1", (9_500, 9_500)).save(root / "cat" / "large.png")
    command = run_here(*(*TINY, "--data", root, "--mode", "single", "--steps", 4), cwd=tmp_path)
    assert "huge-images" in rows(command, tmp_path)["single"]["findings"]
    assert command.err.count("large.png") == 1


# torch.compile.


@pytest.fixture(scope="module")
def compiled(
    run_here: Run, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Row], Here]:
    """One compiled session; the only one in the tests, since compiling takes long."""
    cwd = tmp_path_factory.mktemp("compiled")
    options = ("--compile", "--model", "mlp", "--warmup-steps", 2, "--steps", 5, "--gpus", 2)
    command = run_here(*TINY, *options, cwd=cwd)
    return rows(command, cwd), command


needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++ for --compile")


@needs_compiler
def test_compile_time_is_apart_from_the_window(compiled: tuple[dict[str, Row], Here]) -> None:
    """C03, C30: five steps, none of which compiles."""
    for row in compiled[0].values():
        assert (row["steps"], row["warmup_steps"], row["compiled"]) == ("5", "2", "true")
        assert row["samples"] == str(5 * int(row["global_batch"]))
        assert float(row["compile_s"]) > float(row["window_s"])
        assert row["recompiles"] == "0"
        assert float(row["step_time_max_s"]) < float(row["compile_s"]) / 2


@needs_compiler
def test_dp_is_left_out_of_a_compiled_session(compiled: tuple[dict[str, Row], Here]) -> None:
    """C30."""
    found, command = compiled
    assert set(found) == {"single", "ddp"}
    assert "note: dp is left out with --compile" in command.err
    assert "compiled in " in command.err


def test_compile_and_dp_exclude_each_other(run_here: Run, tmp_path: Path) -> None:
    """C30."""
    error = the_error(run_here(*TINY, "--mode", "dp", "--compile", cwd=tmp_path), 2)
    assert error.startswith("--compile and --mode dp exclude each other")


def test_a_missing_compiler_is_named_before_anything_is_written(tmp_path: Path) -> None:
    """C30."""
    command = mgpubench(
        *TINY, "--mode", "single", "--compile", cwd=tmp_path, env={"CXX": "/none/g++"}
    )
    error = the_error(command, 2)
    assert error.startswith("--compile: torch.compile failed")
    assert "/none/g++" in error
    assert not (tmp_path / "out").exists()


def test_a_model_that_torch_compile_did_not_compile_does_not_count_as_compiled(
    tmp_path: Path,
) -> None:
    """C30, C03: it is switched off in the environment. Without warm-up there is a warning."""
    command = mgpubench(
        *(*TINY, "--mode", "single", "--compile", "--warmup-steps", 0),
        cwd=tmp_path,
        env={"TORCHDYNAMO_DISABLE": "1"},
    )
    row = rows(command, tmp_path)["single"]
    assert row["compiled"] == "false"
    assert {"not-compiled", "no-warmup"} <= set(row["findings"].split(";"))
    assert "warning: single x1: torch.compile compiled nothing" in command.err
    assert "without warm-up the one-time costs of the first step are in the window" in command.err


# Environments.


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.mark.skipif(has_gpu(), reason="is about machines without a GPU")
@pytest.mark.parametrize("value", ["0,0"])
def test_cuda_visible_devices_is_shown_if_no_gpu_is_usable(tmp_path: Path, value: str) -> None:
    """C34, C56: it is not read as a number."""
    command = mgpubench(
        *AUTO, "--mode", "ddp", "--gpus", 2, cwd=tmp_path, env={"CUDA_VISIBLE_DEVICES": value}
    )
    error = the_error(command, 2)
    assert error.startswith("--gpus 2 needs GPUs and 0 are usable")
    assert error.endswith(f"CUDA_VISIBLE_DEVICES={value}")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(has_gpu(), reason="is about machines without a GPU")
@pytest.mark.parametrize("value", ["MIG-377e0049-554c-540b-93c6-d0976f8426cb"])
def test_the_cpu_is_chosen_with_a_note_that_shows_cuda_visible_devices(
    tmp_path: Path, value: str
) -> None:
    """C34, C56."""
    command = mgpubench(
        *AUTO, "--mode", "single", cwd=tmp_path, env={"CUDA_VISIBLE_DEVICES": value}
    )
    assert rows(command, tmp_path)["single"]["device_type"] == "cpu"
    (note,) = [line for line in command.err.splitlines() if "no usable GPU" in line]
    assert f"CUDA_VISIBLE_DEVICES={value}" in note


def test_nothing_is_downloaded_and_no_network_is_needed(tmp_path: Path) -> None:
    """C74."""
    nowhere = "http://127.0.0.1:9"
    command = mgpubench(
        *(*TINY, "--mode", "ddp", "--gpus", 2, "--model", "resnet18", "--steps", 1),
        cwd=tmp_path,
        env={"TORCH_HOME": "torch-home", "http_proxy": nowhere, "https_proxy": nowhere},
    )
    assert rows(command, tmp_path)["ddp"]["status"] == "ok"
    assert not (tmp_path / "torch-home").exists()
