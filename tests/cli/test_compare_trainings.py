"""`mgpubench compare` on trainings: what is compared, what is refused, and what is left out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mgpubench.cli import cli
from tests.conftest import Here
from tests.trainings import epoch, epochs, in_mode, write_training

EXAMPLE = Path(__file__).parents[2] / "results" / "example"
FORMATS = ("table", "markdown", "csv", "json")


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder `results` in the current folder, with two trainings."""
    monkeypatch.chdir(tmp_path)
    write_training(Path("results"), epochs(4, 2, 2), split=0.8).rename("results/t1")
    write_training(Path("results"), in_mode("ddp", 2, 2, 1, 1), split=0.8).rename("results/t2")
    return Path("results")


def add_runs(results: Path, name: str = "runs") -> Path:
    """A session of runs beside the trainings."""
    shutil.copytree(EXAMPLE, results / name)
    return results / name


def compare(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["compare", *map(str, arguments)])


def printed(*arguments: object) -> str:
    result = compare(*arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def refusal(*arguments: object, exit_code: int = 2) -> str:
    result = compare(*arguments)
    assert (result.exit_code, result.stdout) == (exit_code, ""), result.output
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("error: "))
    return line.removeprefix("error: ")


@pytest.mark.parametrize("output_format", FORMATS)
def test_all_formats_show_both_trainings_and_the_time_to_an_accuracy(
    results: Path, output_format: str
) -> None:
    text = printed(results, "--to-accuracy", "75%", "--format", output_format)
    assert "ddp" in text
    assert ("3.000" if output_format in ("table", "markdown") else "3.0") in text


@pytest.mark.parametrize(
    "paths", [("results",), ("results/t1", "results/t2"), ("results/t1/epochs.csv", "results/t2")]
)
@pytest.mark.usefixtures("results")
def test_trainings_are_found_as_sessions_are(paths: tuple[str, ...]) -> None:
    _, ddp = json.loads(printed(*paths, "--format", "json"))
    assert ddp["versus_baseline"]["ratio"] == 2


def test_one_training_is_shown_by_itself(results: Path) -> None:
    assert "40.00" in printed(results / "t1")


def test_a_training_may_be_the_baseline(results: Path) -> None:
    (single, ddp) = json.loads(printed(results, "--format", "json", "--baseline", "ddp"))
    # single has one device, and there is no ddp on one.
    assert (single["versus_baseline"]["ratio"], ddp["versus_baseline"]) == (None, None)
    (single, _) = json.loads(printed(results, "--format", "json", "--baseline", ddp["training"]))
    assert single["versus_baseline"]["ratio"] == 0.5


def test_runs_and_trainings_are_not_mixed(results: Path) -> None:
    runs = add_runs(results)
    assert refusal(results / "t1", runs) == (
        "results/t1 has trainings, and results/runs has runs: they are not compared with each other"
    )
    assert refusal(runs / "runs.csv", results / "t1" / "epochs.csv").endswith(
        "they are not compared with each other"
    )


def test_of_a_folder_with_both_the_runs_are_compared(results: Path) -> None:
    add_runs(results)
    result = compare(results)
    assert (result.exit_code, result.stderr) == (
        0,
        "note: left out 2 trainings (to compare them: mgpubench compare results --trainings)\n",
    )
    assert "resnet18" in result.stdout
    assert "mlp" not in result.stdout


@pytest.mark.parametrize("option", [("--trainings",), ("--to-accuracy", "75")])
def test_of_a_folder_with_both_the_trainings_are_compared_if_asked_for(
    results: Path, option: tuple[str, ...]
) -> None:
    runs = add_runs(results)
    alone = printed(results / "t1", results / "t2", *option)
    assert printed(results, *option) == printed(*option) == alone
    assert printed(results, results / "t1", *option[2:]) == printed(results / "t1", results / "t2")
    assert refusal(runs, *option) == f"{option[0]} is for trainings, and results/runs has only runs"


def test_without_a_path_the_newest_session_of_runs_is_compared(results: Path) -> None:
    assert refusal() == "results has no sessions: no runs.csv in it, nor in a folder in it"
    assert "hint: It has trainings: mgpubench compare results" in compare().stderr
    add_runs(results)
    result = compare()
    assert result.stderr.splitlines() == [
        "comparing results/runs, the newest session; there is no other",
        "note: left out 2 trainings (to compare them: mgpubench compare results --trainings)",
    ]
    assert "resnet18" in result.stdout


def test_the_published_example_does_not_hide_trainings(results: Path) -> None:
    shutil.copytree(EXAMPLE, results / "example")
    assert "mlp" in printed(results)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ("results", "--margin", "3"),
            "--margin is for runs, and does not go with trainings",
        ),
        (
            ("results", "--fail-if-slower", "3"),
            "--fail-if-slower is for runs, and does not go with trainings",
        ),
        (
            ("--trainings", "--before", "results/t1", "--after", "results/t2"),
            "--trainings does not go with --before and --after",
        ),
        (
            ("--to-accuracy", "5", "--before", "results/t1", "--after", "results/t2"),
            "--to-accuracy does not go with --before and --after",
        ),
        (
            ("--before", "results/t1", "--after", "results/t2"),
            "results/t1 has no sessions: no runs.csv in it, nor in a folder in it",
        ),
        (("results/t3", "--trainings"), "results/t3: no such file or folder"),
    ],
)
@pytest.mark.usefixtures("results")
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], error: str) -> None:
    assert refusal(*arguments) == error


@pytest.mark.parametrize("text", ["0", "101", "nan", "many"])
@pytest.mark.usefixtures("results")
def test_an_accuracy_is_a_percentage(text: str) -> None:
    result = compare("results", "--to-accuracy", text)
    assert result.exit_code == 2
    assert "--to-accuracy" in result.stderr


def test_all_of_the_images_is_an_accuracy_too(results: Path) -> None:
    (single, _) = json.loads(printed(results, "--to-accuracy", "100", "--format", "json"))
    assert (single["to_top1"], single["seconds_to_accuracy"]) == (1.0, None)


def test_a_training_without_a_finished_epoch_is_left_out(tmp_path: Path) -> None:
    folder = write_training(tmp_path, [])
    assert refusal(folder, exit_code=1) == (
        f"no results in {folder}: 1 training, and no finished epoch"
    )
    assert f"hint: Go on with it: mgpubench train --resume {folder}" in compare(folder).stderr
    write_training(tmp_path, [epoch(1)])
    result = compare(tmp_path)
    assert result.exit_code == 0
    assert result.stderr == f"warning: {folder}: left out, since it has no finished epoch\n"


def test_a_damaged_training_is_named_and_the_others_are_compared(results: Path) -> None:
    (results / "t2" / "epochs.csv").write_text("")
    result = compare(results)
    assert result.exit_code == 0
    assert result.stderr == "warning: results/t2/epochs.csv is empty\n"
    assert refusal(results / "t2") == "results/t2/epochs.csv is empty"


def test_real_trainings_that_stop_and_go_on_can_be_compared(
    run_here: Callable[..., Here], photos: Callable[..., Path], tmp_path: Path
) -> None:
    """dp for two epochs, then one more; ddp for two; single from a checkpoint of dp."""
    photos(cat=9, dog=11)
    tiny = ("train", "--data", "photos", "--device", "cpu", "--image-size", 32, "--model", "mlp")
    options = (*tiny, "--global-batch", 6, "--split", 0.7, "--epochs", 2)

    def train(*arguments: object) -> Path:
        result = run_here(*arguments, cwd=tmp_path)
        assert result.exit_code == 0, result.err
        results, command = result.err.splitlines()[-2:]
        folder = Path(results.removeprefix("results: "))
        assert command == f"compare: mgpubench compare {folder}"
        return folder

    dp, ddp = (train(*options, "--mode", mode, "--gpus", 2) for mode in ("dp", "ddp"))
    train("train", "--resume", dp, "--epochs", 3)
    checkpoint = dp / "checkpoints" / "epoch-0002.pt"
    train(*tiny, "--global-batch", 6, "--split", 0.7, "--epochs", 3, "--resume", checkpoint)
    result = run_here("compare", dp, ddp, "--to-accuracy", 1, "--format", "json", cwd=tmp_path)
    first, second = json.loads(result.out)
    assert [(each["epoch"], each["sitting"]) for each in first["epochs"]] == [
        (1, 1),
        (2, 1),
        (3, 2),
    ]
    assert first["versus_baseline"] is None
    assert second["versus_baseline"]["epochs"] == 2
    assert second["versus_baseline"]["ratio"] > 0
    for training in (first, second):
        assert training["train_s"] == pytest.approx(sum(e["train_s"] for e in training["epochs"]))
        assert training["seconds_to_accuracy"] <= training["train_s"]
    table = run_here("compare", "results", cwd=tmp_path)
    assert table.exit_code == 0, table.err
    assert "dp (cpu-replicas)" in table.out
    assert f"weights (checkpoint {dp.name}/epoch-0002.pt / random)" in table.out
    assert "CPU rows are smoke tests of the tool, not a forecast for GPUs." in table.out
