"""Two agents on one machine train a model together, and have no folder in common."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mgpubench.training.checkpoint import load
from mgpubench.training.models.by_name import make_module
from tests.conftest import Here
from tests.pairs import Pair, pair_of

TINY = (
    *("--device", "cpu", "--model", "mlp", "--image-size", 32, "--global-batch", 6, "--lr", 0.05),
    *("--no-augment", "--split", 0.8, "--log-every", 1, "--keep", 9, "--workers-per-gpu", 0),
)


def rows(folder: Path, name: str = "epochs.csv") -> list[dict[str, str]]:
    with open(folder / name, newline="") as file:
        return list(csv.DictReader(file))


def weights(folder: Path, epoch: int) -> dict[str, Tensor]:
    return dict(load(folder / "checkpoints" / f"epoch-{epoch:04}.pt").model)


def assert_success(pair: Pair) -> None:
    codes = pair.codes()
    assert codes == (0, 0), [node.err for node in pair.nodes]
    pair.assert_none_left()


def only_folder(place: Path) -> Path:
    (folder,) = (place / "results").iterdir()
    return folder


def test_two_machines_train_as_one_does_and_go_on_in_another_mode(
    tmp_path: Path, photos: Callable[..., Path], run_here: Callable[..., Here]
) -> None:
    """ddp for two epochs, then fsdp on one device more: an mlp has no BatchNorm.

    Node 1 has neither the weights to begin with nor a checkpoint.
    """
    root = photos(cat=9, dog=11)
    for node in ("node0", "node1"):
        shutil.copytree(root, tmp_path / node / "photos")
    torch.save(make_module("mlp", 2).state_dict(), tmp_path / "init.pt")
    shutil.copy(tmp_path / "init.pt", tmp_path / "node0")
    new = ("train", "--data", "photos", "--pretrained", "init.pt", *TINY)
    alone = run_here(*new, "--mode", "single", "--epochs", 3, cwd=tmp_path)
    assert alone.exit_code == 0, alone.err
    with pair_of(tmp_path, *new, "--gpus", 1, "--epochs", 2) as pair:
        assert_success(pair)
    assert "done: node 0 has the results" in pair.nodes[1].err
    more = ("train", "--resume", "last", "--mode", "fsdp", "--epochs", 3)
    # What node 1 names is not read there.
    with pair_of(tmp_path, *more, "--gpus", 2, second=(*more, "--data", "photos")) as pair:
        assert_success(pair)
    assert not (tmp_path / "node1" / "results").exists()

    whole, folder = only_folder(tmp_path), only_folder(tmp_path / "node0")
    assert [
        (row["epoch"], row["mode"], row["num_devices"], row["num_nodes"]) for row in rows(folder)
    ] == [("1", "ddp", "2", "2"), ("2", "ddp", "2", "2"), ("3", "fsdp", "3", "2")]
    for row, other in zip(rows(folder), rows(whole), strict=True):
        assert float(row["train_loss"]) == pytest.approx(float(other["train_loss"]), rel=1e-5)
        assert (row["top1"], row["eval_samples"]) == (other["top1"], other["eval_samples"])
        assert " | " in row["device_names"]
    losses = zip(rows(folder, "losses.csv"), rows(whole, "losses.csv"), strict=True)
    for row, other in losses:
        assert (row["epoch"], row["step"], row["samples"]) == (
            *(other["epoch"], other["step"], other["samples"]),
        )
        assert float(row["loss"]) == pytest.approx(float(other["loss"]), rel=1e-5)
    for epoch in (1, 2, 3):
        for name, tensor in weights(folder, epoch).items():
            torch.testing.assert_close(tensor, weights(whole, epoch)[name], rtol=1e-5, atol=1e-5)
    document = json.loads((folder / "session.json").read_text())
    assert [node["devices"] for node in document["nodes"]] == [[1], [1]]
