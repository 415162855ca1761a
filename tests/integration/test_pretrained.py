"""--pretrained: weights from a file or from torchvision's cache; nothing is downloaded."""

from __future__ import annotations

import hashlib
import re
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torchvision
from torch import nn

from mgpubench.errors import RequestRefused
from mgpubench.training.checkpoint import save
from mgpubench.training.models.builtin import tiny_cnn
from mgpubench.training.models.by_name import make_module
from mgpubench.training.pretrained import load_pretrained
from tests.checkpoints import content, same, trained

HEAD = ("11.weight", "11.bias")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A checkpoint of a tiny-cnn for 3 classes, all of whose weights are changed."""
    model, optimizer = trained(3)
    save(tmp_path / "epoch-0001.pt", content(model, optimizer))
    return tmp_path / "epoch-0001.pt"


def weights_of(model: nn.Module) -> dict[str, Any]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_a_checkpoint_for_the_same_classes_fits_whole(file: Path) -> None:
    model = tiny_cnn(3)
    assert load_pretrained(model, "tiny-cnn", 3, file) == (
        f"--pretrained: the weights are those of {file}",
    )
    assert same(weights_of(model), weights_of(trained(3)[0]))


def test_for_other_classes_only_the_head_is_random(file: Path) -> None:
    model = tiny_cnn(5)
    before = weights_of(model)
    _, notice = load_pretrained(model, "tiny-cnn", 5, file)
    assert notice == (
        "--pretrained: random at the beginning, for 5 classes: 11.weight (5x64), 11.bias (5)"
    )
    source, now = weights_of(trained(3)[0]), weights_of(model)
    assert all(same(now[name], (before if name in HEAD else source)[name]) for name in now)


@pytest.mark.parametrize(
    "options", [{}, {"_use_new_zipfile_serialization": False}], ids=["zip", "old format"]
)
@pytest.mark.parametrize("prefix", ["", "module."])
def test_a_plain_state_dict_fits_too(tmp_path: Path, options: dict[str, Any], prefix: str) -> None:
    """Also as DataParallel or an old torch wrote it: with a prefix, or no counts of batches."""
    source = {
        prefix + name: tensor
        for name, tensor in trained(3)[0].state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    torch.save(source, tmp_path / "weights.pth", **options)
    model = tiny_cnn(3)
    load_pretrained(model, "tiny-cnn", 3, tmp_path / "weights.pth")
    now = weights_of(model)
    assert all(same(now[name.removeprefix(prefix)], tensor) for name, tensor in source.items())
    assert now["1.num_batches_tracked"] == 0


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"0.weight": torch.ones(16, 3, 3, 3)}, "does not fit the model: missing: 1.weight, "),
        ({"epoch": 3, "model": {}}, "holds no weights: it is neither a checkpoint"),
        (nn.Linear(2, 2), "is refused: it holds torch.nn.modules.linear.Linear"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, document: object, words: str) -> None:
    file = tmp_path / "weights.pth"
    torch.save(document, file)
    model = tiny_cnn(3)
    before = weights_of(model)
    with pytest.raises(RequestRefused, match=f"^{re.escape(str(file))} {words}"):
        load_pretrained(model, "tiny-cnn", 3, file)
    assert same(weights_of(model), before)


def test_the_head_of_an_own_model_must_fit(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It decides by itself how many classes it has."""
    source = (
        "from mgpubench.training.models.builtin import tiny_cnn\ndef make(): return tiny_cnn(4)"
    )
    (tmp_path / "ownnet.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    model = make_module("ownnet:make", 4)
    with pytest.raises(RequestRefused, match=r"of another shape: 11.weight \(3x64 instead of 4x64"):
        load_pretrained(model, "ownnet:make", 4, file)


def test_the_numbers_drawn_afterwards_are_the_same(file: Path) -> None:
    model = make_module("regnet_y_400mf", 5)  # it cannot be made on the meta device
    torch.save(make_module("regnet_y_400mf", 3).state_dict(), file)
    torch.manual_seed(0)
    load_pretrained(model, "regnet_y_400mf", 5, file)
    drawn = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.rand(1))


# Torchvision's own weights.


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Torch's cache, still empty, on a machine without network."""

    def refuse(*arguments: object) -> None:
        raise AssertionError("it uses the network")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(socket.socket, "connect", refuse)
    return tmp_path / "hub" / "checkpoints"


def put(cache: Path, monkeypatch: pytest.MonkeyPatch, name: str, state: object) -> Path:
    """Weights in the cache, under the name that they would have at torchvision."""
    cache.mkdir(parents=True, exist_ok=True)
    torch.save(state, cache / "new")
    digest = hashlib.sha256((cache / "new").read_bytes()).hexdigest()[:8]
    path = cache / f"{name}-{digest}.pth"
    (cache / "new").rename(path)
    found = SimpleNamespace(url=f"https://download.pytorch.org/models/{path.name}")
    weights = type("Weights", (list,), {"DEFAULT": found})
    monkeypatch.setattr(torchvision.models, "get_model_weights", lambda name: weights([found]))
    return path


def test_weights_that_are_not_there_are_named_and_not_downloaded(cache: Path) -> None:
    model = make_module("resnet18", 10)
    with pytest.raises(RequestRefused) as caught:
        load_pretrained(model, "resnet18", 10, None)
    path = cache / "resnet18-f37072fd.pth"
    assert caught.value.message == (
        f"torchvision's weights of resnet18 are not on this machine: {path} does not exist"
    )
    assert caught.value.hint == (
        "mgpubench downloads nothing. Put the file there yourself, from "
        "https://download.pytorch.org/models/resnet18-f37072fd.pth"
    )
    assert not cache.exists()


def test_other_weights_of_the_model_are_taken_if_the_default_ones_are_missing(cache: Path) -> None:
    """ResNet-50 has two sets; the hash in the name shows that this is none of them."""
    cache.mkdir(parents=True)
    (cache / "resnet50-0676ba61.pth").write_bytes(b"")
    with pytest.raises(RequestRefused, match=r"resnet50-0676ba61.pth is damaged: its SHA-256"):
        load_pretrained(make_module("resnet50", 10), "resnet50", 10, None)


def test_weights_in_the_cache_are_taken_for_other_classes(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_module("resnet18", 1000)
    path = put(cache, monkeypatch, "resnet18", source.state_dict())
    model = make_module("resnet18", 10)
    notices = load_pretrained(model, "resnet18", 10, None)
    assert notices == (
        f"--pretrained: the weights are those of {path}",
        "--pretrained: random at the beginning, for 10 classes: fc.weight (10x512), fc.bias (10)",
    )
    assert torch.equal(model.state_dict()["conv1.weight"], source.state_dict()["conv1.weight"])


def test_names_of_old_densenets_are_known(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torchvision's own files have `norm.1` where its models have `norm1`."""
    source = make_module("densenet121", 1000).state_dict()
    pattern = re.compile(r"(denselayer\d+\.(?:norm|conv))([12])")
    old = {pattern.sub(r"\1.\2", name): tensor for name, tensor in source.items()}
    assert any(".norm.1." in name for name in old)
    put(cache, monkeypatch, "densenet121", old)
    model = make_module("densenet121", 1000)
    load_pretrained(model, "densenet121", 1000, None)
    assert same(weights_of(model), dict(source))


def test_weights_for_images_on_another_scale_are_said_to_be(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(cache, monkeypatch, "googlenet", make_module("googlenet", 1000).state_dict())
    model = make_module("googlenet", 10)
    notices = load_pretrained(model, "googlenet", 10, None)
    assert "aux1.fc2.weight (10x1024)" in notices[1]
    assert "images on another scale" in notices[2]


@pytest.mark.parametrize("name", ["tiny-cnn", "mlp", "ownnet:make"])
def test_models_that_are_not_torchvisions_need_a_file(name: str) -> None:
    with pytest.raises(RequestRefused, match=f"needs a file for --model {name}"):
        load_pretrained(tiny_cnn(3), name, 3, None)
