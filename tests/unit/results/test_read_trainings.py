"""Trainings are read as runs are: what can be trusted, and a warning or refusal for the rest."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mgpubench.errors import ResultsUnreadable
from mgpubench.results.find import contents_of
from mgpubench.results.read_trainings import Training, read_training, read_trainings
from mgpubench.results.session_folder import digest_of
from mgpubench.results.training_facts import read_facts
from tests.trainings import epoch, epochs, write_training

EXAMPLE = Path(__file__).parents[3] / "results" / "example"


def read(folder: Path) -> Training:
    """A training that must be read without a warning."""
    training, warnings = read_training(folder / "epochs.csv")
    assert warnings == []
    return training


def edit(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(path.read_text()))


def test_a_training_has_its_facts_and_its_epochs(tmp_path: Path) -> None:
    folder = write_training(tmp_path, epochs(4, 2, 2), split=0.8, lr=0.05)
    training = read(folder)
    assert training.epochs == tuple(epochs(4, 2, 2))
    assert (training.facts.session_id, training.lost_epochs) == (folder.name, 0)
    assert (training.facts.model, training.facts.data) == ("mlp", "imagefolder:photos")
    assert (training.facts.evaluation, training.facts.lr) == ("split 0.8", 0.05)


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({}, "options", ""),
        ({"cudnn_benchmark": True, "log_every": 1}, "options", "cudnn_benchmark=true;log_every=1"),
        ({}, "evaluation", ""),
        ({"eval_data": "some/where/val"}, "evaluation", "folder val"),
        ({"eval_data": "some/where/val"}, "evaluation_digest", "ef"),
        ({"split": 0.8}, "evaluation_digest", ""),
        ({}, "weights", "random"),
        ({"pretrained": ""}, "weights", "torchvision's"),
        ({"pretrained": "a/net.pt"}, "weights", "file net.pt"),
        (
            {"resumed_from": "results/2026/checkpoints/epoch-0002.pt"},
            "weights",
            "checkpoint 2026/epoch-0002.pt",
        ),
        ({"resumed_from": "epoch-0002.pt"}, "weights", "checkpoint epoch-0002.pt"),
    ],
)
def test_what_session_json_says_in_a_few_words(
    tmp_path: Path, changes: dict[str, Any], field: str, value: str
) -> None:
    assert getattr(read_facts(write_training(tmp_path, [], **changes)), field) == value


def test_from_the_first_epoch_of_a_sitting_on_earlier_ones_are_lost(tmp_path: Path) -> None:
    """There was a checkpoint after epoch 2 only, and the second sitting was interrupted in 4."""
    first = [epoch(number, 1.0) for number in (1, 2, 3, 4)]
    second = [epoch(3, 5.0, sitting=2)]
    training = read(write_training(tmp_path, [*first, *second]))
    assert [(each.epoch, each.train_s) for each in training.epochs] == [(1, 1), (2, 1), (3, 5)]
    assert training.lost_epochs == 2


def test_equal_rows_count_once_and_contradicting_ones_never(tmp_path: Path) -> None:
    folder = write_training(tmp_path, [epoch(1), epoch(1), epoch(2), epoch(2, 3.0), epoch(3)])
    training, warnings = read_training(folder / "epochs.csv")
    assert [each.epoch for each in training.epochs] == [1, 3]
    assert warnings == [
        f"{folder / 'epochs.csv'}: left out 1 epoch with rows that contradict each other"
    ]


def test_a_training_without_an_epoch_is_read(tmp_path: Path) -> None:
    assert read(write_training(tmp_path, [])).epochs == ()


def test_a_damaged_row_is_left_out_and_named(tmp_path: Path) -> None:
    folder = write_training(tmp_path, epochs(4, 2, 2))
    edit(folder / "epochs.csv", lambda text: text.replace(",0.75,", ",1.75,"))
    training, warnings = read_training(folder / "epochs.csv")
    assert [each.epoch for each in training.epochs] == [1, 3]
    assert warnings == [
        f"{folder / 'epochs.csv'}: line 3: top1 is 1.75, and cannot be above 1; skipped"
    ]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"epoch": 0}, "epoch is 0"),
        ({"num_devices": 0}, "num_devices is 0"),
        ({"train_s": 0}, "samples / train_s is 80 / 0.0"),
        ({"train_s": 3}, "throughput_samples_per_s is 40.0, and samples / train_s is 80 / 3.0"),
        ({"throughput_samples_per_s": "inf"}, "'inf', which is not a number like 1234.5"),
        ({"mode": "warp"}, "mode is 'warp', which is not one of single, dp, ddp"),
        ({"effective_mode": "ddp"}, "mode is 'single', and effective_mode 'ddp'"),
        ({"lr": -1}, "lr is -1.0, and cannot be negative"),
        ({"sitting": ""}, "sitting is '', which is not a number like 1234.5"),
        ({"train_s": ""}, "train_s is empty"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused(
    tmp_path: Path, changes: dict[str, Any], fault: str
) -> None:
    folder = write_training(tmp_path, [epoch(1)])
    header, row = (folder / "epochs.csv").read_text().splitlines()
    cells = dict(zip(header.split(","), row.split(","), strict=True))
    cells |= {name: str(value) for name, value in changes.items()}
    (folder / "epochs.csv").write_text(f"{header}\n{','.join(cells.values())}\n")
    with pytest.raises(ResultsUnreadable, match="no row of the file can be used") as caught:
        read_training(folder / "epochs.csv")
    assert fault in caught.value.message


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("epochs.csv", lambda text: "", "epochs.csv is empty"),
        ("epochs.csv", lambda text: text.replace("train_s,", "", 1), "has no column train_s"),
        ("epochs.csv", lambda text: "a,b\n1,2\n", "has no column schema_version, epoch, mode"),
        (
            "epochs.csv",
            lambda text: text.replace("\n1,", "\n2,"),
            "line 2: unknown schema_version 2; this mgpubench reads 1",
        ),
        (
            "session.json",
            lambda text: text.replace('"schema_version": 1', '"schema_version": 7'),
            "session.json: unknown schema_version 7; this mgpubench reads 1",
        ),
        ("session.json", lambda text: "{", "session.json cannot be read: it is not JSON"),
        ("session.json", lambda text: "[]", "session.json is not that of a training"),
        (
            "session.json",
            lambda text: text.replace('"lr": 0.01', '"lr": 0.02'),
            "session.json is not as mgpubench wrote it, so what was trained is unknown",
        ),
    ],
)
def test_a_damaged_file_is_refused_by_name(
    tmp_path: Path, file: str, change: Callable[[str], str], message: str
) -> None:
    folder = write_training(tmp_path, [epoch(1)])
    edit(folder / file, change)
    with pytest.raises(ResultsUnreadable) as caught:
        read_trainings([folder])
    assert message in caught.value.message


def test_the_session_json_of_a_run_is_refused(tmp_path: Path) -> None:
    folder = write_training(tmp_path, [epoch(1)])
    shutil.copy(EXAMPLE / "session.json", folder)
    with pytest.raises(ResultsUnreadable, match=r"session\.json is not "):
        read_trainings([folder])


def test_the_epochs_of_another_training_are_refused(tmp_path: Path) -> None:
    folder = write_training(tmp_path, [epoch(1, session_id="other")])
    with pytest.raises(ResultsUnreadable, match="has epochs of other, and the "):
        read_trainings([folder])


def test_what_can_be_read_is_used_beside_what_cannot(tmp_path: Path) -> None:
    good, bad = (write_training(tmp_path, [epoch(1)]) for _ in range(2))
    (bad / "session.json").unlink()
    found = read_trainings([tmp_path])
    assert [training.folder for training in found.trainings] == [good]
    assert found.warnings == [f"{bad / 'session.json'} cannot be read: No such file or directory"]


def test_a_copied_training_counts_once(tmp_path: Path) -> None:
    folder = write_training(tmp_path, [epoch(1)])
    shutil.copytree(folder, tmp_path / "zz-copy")
    found = read_trainings([tmp_path, folder])
    assert [training.folder for training in found.trainings] == [folder]
    assert found.warnings == [
        f"{tmp_path / 'zz-copy' / 'epochs.csv'}: left out, since it was already read from {folder}"
    ]


def test_a_file_of_epochs_stands_for_its_folder(tmp_path: Path) -> None:
    folder = write_training(tmp_path, [epoch(1)])
    assert read_trainings([folder / "epochs.csv"]).trainings == read_trainings([folder]).trainings


def test_a_folder_without_trainings_says_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(ResultsUnreadable, match="has no trainings: no ") as caught:
        read_trainings([EXAMPLE])
    assert caught.value.hint == f"It has sessions: mgpubench compare {EXAMPLE}"
    with pytest.raises(ResultsUnreadable, match="has no trainings") as caught:
        read_trainings([tmp_path])
    assert caught.value.hint.startswith("Name the folder of a training, a folder of trainings")


def test_what_a_path_holds(tmp_path: Path) -> None:
    training = write_training(tmp_path / "t", [epoch(1)])
    runs, epochs_csv = frozenset({"runs.csv"}), frozenset({"epochs.csv"})
    assert contents_of(training) == contents_of(tmp_path / "t") == epochs_csv
    assert contents_of(training / "epochs.csv") == epochs_csv
    assert contents_of(EXAMPLE) == contents_of(EXAMPLE / "runs.csv") == runs
    shutil.copytree(EXAMPLE, tmp_path / "t" / "example")
    assert contents_of(tmp_path / "t") == epochs_csv  # the published example does not count
    shutil.copytree(EXAMPLE, tmp_path / "t" / "mine")
    assert contents_of(tmp_path / "t") == runs | epochs_csv
    assert contents_of(tmp_path / "missing") == contents_of(training / "checkpoints") == frozenset()


def test_an_option_that_this_mgpubench_does_not_know_is_shown(tmp_path: Path) -> None:
    """It may be why a training is faster."""
    folder = write_training(tmp_path, [epoch(1)])
    document = json.loads((folder / "session.json").read_text())
    document["plan"][0]["ddp"]["warp"] = True
    del document["digest"]
    document["digest"] = digest_of(document)
    (folder / "session.json").write_text(json.dumps(document))
    assert read(folder).facts.options == "warp=true"
