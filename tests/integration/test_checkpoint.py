"""Checkpoints: what is saved is loaded again, bit by bit, and old ones are removed last."""

from __future__ import annotations

import errno
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim import SGD, Adam, AdamW

from mgpubench.config.recipe import Recipe
from mgpubench.errors import RequestRefused, RunFailed
from mgpubench.results.checkpoint_files import expected_bytes
from mgpubench.training import checkpoint_folder
from mgpubench.training.checkpoint import About, Best, Content, load, save
from mgpubench.training.checkpoint_folder import Checkpoints
from mgpubench.training.models.builtin import tiny_cnn
from mgpubench.training.optimizer import make_optimizer
from mgpubench.training.optimizer_state import load_optimizer_by_name, optimizer_by_name
from mgpubench.training.safetensors_export import export_safetensors
from mgpubench.training.start import begin
from mgpubench.training.technique import itself
from mgpubench.training.weights import load_into
from tests.checkpoints import (
    MakeOptimizer,
    about,
    content,
    same,
    same_content,
    sgd,
    small_content,
    train,
    trained,
)

# What a checkpoint is of.


def test_about_is_the_same_after_json() -> None:
    best = Best(top1=0.75, epoch=3)
    strange = about(9, best=best, classes=("b\N{LATIN SMALL LETTER A WITH DIAERESIS}r", "\udcff"))
    for each in (about(), strange):
        assert About.from_json(each.to_json()) == each


def test_what_a_later_version_adds_to_about_is_left_out() -> None:
    text = json.dumps({**json.loads(about().to_json()), "colour": "red"})
    assert About.from_json(text) == about()


@pytest.mark.parametrize(
    "changes",
    [
        {"model": 7},
        {"classes": "cat"},
        {"classes": ["cat", 7]},
        {"epoch": "1"},
        {"epoch": True},
        {"image_size": 32.5},
        {"best": {"top1": 0.5}},
        {"best": {"top1": "0.5", "epoch": 1}},
        {"best": 3},
        {"options": None},
    ],
    ids=str,
)
def test_about_with_another_type_is_not_parsed(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        About.from_json(json.dumps({**json.loads(about().to_json()), **changes}))


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '{"model": "mlp"}', "[" * 100_000])
def test_about_that_is_something_else_is_not_parsed(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        About.from_json(text)


# Save and load.


@pytest.mark.parametrize("scaler", [None, {"scale": 65536.0, "_growth_tracker": 3}])
def test_what_is_saved_is_loaded(tmp_path: Path, scaler: dict[str, Any] | None) -> None:
    model, optimizer = trained()
    saved = content(model, optimizer, 4, Best(top1=0.5, epoch=2))
    saved = Content(about=saved.about, model=saved.model, optimizer=saved.optimizer, scaler=scaler)
    save(tmp_path / "epoch-0004.pt", saved)
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-0004.pt"]
    assert same_content(load(tmp_path / "epoch-0004.pt"), saved)


OPTIMIZERS: dict[str, MakeOptimizer] = {
    "sgd": sgd,
    "sgd without momentum": lambda parameters: SGD(parameters, lr=0.1),
    "nesterov": lambda parameters: SGD(parameters, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda parameters: Adam(parameters, amsgrad=True),
    "adamw": AdamW,
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_bit_by_bit_as_if_there_had_been_no_break(
    tmp_path: Path, name: str
) -> None:
    """Also after the file is gone: nothing stays mapped from it."""
    model, optimizer = trained(2, OPTIMIZERS[name])
    path = tmp_path / "epoch-0001.pt"
    save(path, content(model, optimizer))
    train(model, optimizer, range(2, 5))

    again, fresh = trained(0, OPTIMIZERS[name], seed=1)
    loaded = load(path)
    load_into(again, loaded.model)
    load_optimizer_by_name(fresh, loaded.optimizer, again.named_parameters())
    before = path.read_bytes()
    train(again, fresh, range(2, 5))
    assert same(again.state_dict(), model.state_dict())
    assert same(fresh.state_dict(), optimizer.state_dict())
    assert path.read_bytes() == before
    mapped = {tensor.untyped_storage().data_ptr() for tensor in loaded.model.values()}
    own = [*again.parameters(), *(v for s in fresh.state.values() for v in s.values())]
    assert not [t for t in own if isinstance(t, torch.Tensor) and t.data_ptr() in mapped]


def test_a_checkpoint_from_before_the_first_step_is_loaded(tmp_path: Path) -> None:
    model, optimizer = trained(0)
    save(tmp_path / "a.pt", content(model, optimizer))
    load_optimizer_by_name(optimizer, load(tmp_path / "a.pt").optimizer, model.named_parameters())
    train(model, optimizer, range(1))


# The optimizer, by name.


def two_groups(model: nn.Module, *, reverse: bool) -> SGD:
    """Weights decay and biases do not, in either order."""
    named = list(model.named_parameters())
    groups = [
        {"params": [p for name, p in named if name.endswith("weight")], "weight_decay": 0.1},
        {"params": [p for name, p in named if name.endswith("bias")], "weight_decay": 0.0},
    ]
    return SGD(groups[::-1] if reverse else groups, lr=0.1, momentum=0.9)


def test_state_and_settings_go_by_name_and_not_by_order() -> None:
    model, _ = trained(0)
    one = two_groups(model, reverse=False)
    train(model, one, range(2))
    other = two_groups(model, reverse=True)
    load_optimizer_by_name(
        other, optimizer_by_name(one, model.named_parameters()), model.named_parameters()
    )
    assert [group["weight_decay"] for group in other.param_groups] == [0.0, 0.1]
    for parameter in model.parameters():
        assert same(dict(one.state[parameter]), dict(other.state[parameter]))


def test_a_training_that_begins_with_a_checkpoint_has_its_own_settings(tmp_path: Path) -> None:
    """Its momentum and weight decay count, and not those that the checkpoint was trained with."""
    model, optimizer = trained()
    save(tmp_path / "a.pt", content(model, optimizer))
    recipe = Recipe(lr=0.2, momentum=0.5, weight_decay=0.25, nesterov=True)
    fresh, _ = trained(0)
    step = SimpleNamespace(
        optimizer=make_optimizer(fresh.parameters(), recipe),
        recipe=recipe,
        scaler=torch.amp.GradScaler("cpu", enabled=False),
    )
    wrapped = SimpleNamespace(plain=SimpleNamespace(model=fresh), part_of=itself)
    config: Any = SimpleNamespace(run=SimpleNamespace(num_nodes=1), resume_from=tmp_path / "a.pt")
    assert begin(cast(Any, None), config, cast(Any, wrapped), cast(Any, step)).epochs == 1
    (group,) = step.optimizer.param_groups
    expected = {"lr": 0.2, "momentum": 0.5, "weight_decay": 0.25, "nesterov": True}
    assert {name: group[name] for name in expected} == expected
    state = optimizer_by_name(step.optimizer, fresh.named_parameters())["state"]
    assert same(state, optimizer_by_name(optimizer, model.named_parameters())["state"])


def test_settings_are_loaded_but_not_how_the_optimizer_computes() -> None:
    model, _ = trained(0)
    one = SGD(model.parameters(), lr=0.3, momentum=0.5, foreach=True)
    other = SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    saved = optimizer_by_name(one, model.named_parameters())
    load_optimizer_by_name(other, saved, model.named_parameters())
    (group,) = other.param_groups
    assert (group["lr"], group["momentum"], group["foreach"]) == (0.3, 0.5, False)


def change(path: tuple[Any, ...], value: object) -> Callable[[dict[str, Any]], None]:
    """Sets a value deep inside of a saved optimizer."""

    def apply(saved: dict[str, Any]) -> None:
        inner: Any = saved
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value

    return apply


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (change(("class",), "AdamW"), "is that of AdamW, and this is SGD"),
        (change(("state", "head.weight"), {}), "has parameters that the model lacks: head.weight"),
        (change(("groups", 0, "params", 0), "x"), "has parameters that the model lacks: x"),
        (change(("groups", 0, "params"), ["0.weight"]), "has its parameters in other groups"),
        (
            change(("state", "0.weight", "momentum_buffer"), torch.ones(3)),
            "has another shape for momentum_buffer of 0.weight",
        ),
    ],
)
def test_the_state_of_another_optimizer_is_refused(
    damage: Callable[[dict[str, Any]], None], words: str
) -> None:
    model, optimizer = trained()
    saved = optimizer_by_name(optimizer, model.named_parameters())
    before = optimizer_by_name(optimizer, model.named_parameters())
    damage(saved)
    with pytest.raises(RequestRefused, match=f"the optimizer in the checkpoint {words}"):
        load_optimizer_by_name(optimizer, saved, model.named_parameters())
    assert same(optimizer_by_name(optimizer, model.named_parameters()), before)


def test_the_parts_of_zero_are_one_optimizer(tmp_path: Path) -> None:
    """The state that ZeRO gathered is loaded into plain SGD, and back."""
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        model, _ = trained(0)
        settings = {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4}
        zero = ZeroRedundancyOptimizer(model.parameters(), SGD, **settings)
        train(model, zero, range(2))
        zero.consolidate_state_dict(0)
        saved = optimizer_by_name(zero, model.named_parameters())
        plain = sgd(model.parameters())
        load_optimizer_by_name(plain, saved, model.named_parameters())
        assert same(optimizer_by_name(plain, model.named_parameters())["state"], saved["state"])
        load_optimizer_by_name(zero, saved, model.named_parameters())
        train(model, zero, range(2, 3))
    finally:
        torch.distributed.destroy_process_group()


# Weights that are not finite.


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("0.weight", math.nan),
        ("0.weight", math.inf),
        ("11.bias", -math.inf),
        ("1.running_var", math.nan),
    ],
)
def test_weights_that_are_not_finite_are_never_saved(
    tmp_path: Path, name: str, value: float
) -> None:
    model, optimizer = trained()
    save(tmp_path / "epoch-0001.pt", content(model, optimizer))
    model.state_dict()[name].view(-1)[-1] = value
    with pytest.raises(RunFailed, match=f"is not written: {name} has values that are not finite"):
        save(tmp_path / "epoch-0002.pt", content(model, optimizer, 2))
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-0001.pt"]


def test_large_weights_and_masks_are_saved(tmp_path: Path) -> None:
    """The sum of large weights overflows; the buffer of an attention mask is infinite."""
    model = nn.Linear(2, 2)
    nn.init.constant_(model.weight, 3e38)
    model.register_buffer("mask", torch.full((2, 2), -math.inf).triu(1))
    save(tmp_path / "a.pt", content(model, sgd(model.parameters())))
    assert same(dict(load(tmp_path / "a.pt").model), dict(model.state_dict()))


# The folder.


def write(folder: Checkpoints, *epochs: int, best: int | None = None) -> None:
    for epoch in epochs:
        saved_best = Best(top1=0.5, epoch=best) if best is not None else None
        folder.write(small_content(epoch, saved_best))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_last_ones_and_the_best_one_are_kept(tmp_path: Path) -> None:
    folder = Checkpoints(tmp_path / "checkpoints", keep=2)
    write(folder, 1, best=1)
    write(folder, 2, best=2)
    write(folder, 3, 4, 5, best=2)
    assert names(folder.folder) == ["epoch-0002.pt", "epoch-0004.pt", "epoch-0005.pt"]
    write(folder, 6, best=6)
    assert names(folder.folder) == ["epoch-0005.pt", "epoch-0006.pt"]


def test_without_an_evaluation_only_the_last_ones_are_kept(tmp_path: Path) -> None:
    folder = Checkpoints(tmp_path, keep=1)
    write(folder, 1, 2)
    assert names(tmp_path) == ["epoch-0002.pt"]


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    foreign = ["epoch-1.pt", "epoch-best.pt", "model.pt", ".epoch-x.pt.part"]
    for name in foreign:
        (tmp_path / name).write_bytes(b"mine")
    folder = Checkpoints(tmp_path, keep=1)
    write(folder, 1, 2, 3)
    assert names(tmp_path) == sorted([*foreign, "epoch-0003.pt"])
    assert all((tmp_path / name).read_bytes() == b"mine" for name in foreign)


def test_old_ones_are_removed_only_when_the_new_one_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Checkpoints(tmp_path, keep=1)
    write(folder, 1)
    synced: list[list[str]] = []

    def sync(place: Path) -> None:
        synced.append(names(place))

    monkeypatch.setattr("mgpubench.results.whole_file.sync_folder", sync)
    write(folder, 2)
    assert synced == [["epoch-0001.pt", "epoch-0002.pt"]]
    assert names(tmp_path) == ["epoch-0002.pt"]


def test_after_a_failed_write_the_old_ones_are_still_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Checkpoints(tmp_path, keep=1)
    write(folder, 1)

    def refuse(path: Path, content: Content) -> None:
        raise OSError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(checkpoint_folder, "save", refuse)
    with pytest.raises(RunFailed, match=r"epoch-0002.pt cannot be written: Permission denied"):
        write(folder, 2)
    assert names(tmp_path) == ["epoch-0001.pt"]


def test_a_checkpoint_is_never_overwritten(tmp_path: Path) -> None:
    folder = Checkpoints(tmp_path, keep=2)
    write(folder, 1)
    before = (tmp_path / "epoch-0001.pt").read_bytes()
    with pytest.raises(RunFailed, match=r"epoch-0001.pt exists already"):
        write(folder, 1)
    assert (tmp_path / "epoch-0001.pt").read_bytes() == before


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunFailed, match="file/checkpoints cannot be written: Not a directory"):
        write(Checkpoints(tmp_path / "file" / "checkpoints", keep=1), 1)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_a_checkpoint_is_not_larger_than_expected(tmp_path: Path, name: str) -> None:
    model = nn.Linear(1000, 1000)
    optimizer = OPTIMIZERS[name](model.parameters())
    model(torch.ones(1, 1000)).sum().backward()
    optimizer.step()
    save(tmp_path / "a.pt", content(model, optimizer))
    size = (tmp_path / "a.pt").stat().st_size
    expected = expected_bytes(4 * 1_001_000, name)
    assert 0.8 * expected < size <= expected


# The weights, into a model.


def test_weights_of_another_model_are_refused_with_their_names() -> None:
    model = tiny_cnn(3)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = {name: tensor + 1 for name, tensor in model.state_dict().items()}
    del state["0.weight"], state["11.bias"]
    state |= {"head.bias": torch.ones(7), "11.weight": torch.ones(7, 64)}
    with pytest.raises(RequestRefused) as caught:
        load_into(model, state, source="a.pt")
    assert caught.value.message == (
        "a.pt does not fit the model: missing: 0.weight, 11.bias; unexpected: head.bias; of "
        "another shape: 11.weight (7x64 instead of 3x64)"
    )
    assert same(dict(model.state_dict()), before)


def test_many_names_are_shortened_and_all_are_in_the_details() -> None:
    with pytest.raises(RequestRefused, match=r"missing: 0.weight, .* and 15 more$") as caught:
        load_into(tiny_cnn(3), {})
    assert caught.value.details.count(",") == 19


def test_what_may_be_new_stays_as_it_is_and_is_named() -> None:
    model = tiny_cnn(3)
    bias = model.state_dict()["11.bias"].clone()
    state = {name: tensor + 1 for name, tensor in model.state_dict().items()}
    del state["11.bias"]
    state["11.weight"] = torch.ones(7, 64)
    new = load_into(model, state, may_be_new={"11.bias", "11.weight", "0.weight"})
    assert new == ("11.bias", "11.weight")
    assert torch.equal(model.state_dict()["11.bias"], bias)
    assert torch.equal(model.state_dict()["0.weight"], state["0.weight"])


# For other programs.


def test_safetensors_has_the_weights_and_what_they_are_of(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors")
    from safetensors.torch import load_file

    model, optimizer = trained()
    model.tied = model[0]  # the same memory under two names
    saved = content(model, optimizer, 3)
    save(tmp_path / "epoch-0003.pt", saved)
    file = tmp_path / "model.safetensors"
    export_safetensors(tmp_path / "epoch-0003.pt", file)
    assert same(load_file(file), dict(saved.model))
    with safetensors.safe_open(file, "pt") as opened:
        assert About.from_json(opened.metadata()["about"]) == about(3)
    before = file.read_bytes()
    with pytest.raises(RequestRefused, match=r"model.safetensors exists already"):
        export_safetensors(tmp_path / "epoch-0003.pt", file)
    assert file.read_bytes() == before
    with pytest.raises(RequestRefused, match=r"x cannot be written: .*no is not a folder"):
        export_safetensors(tmp_path / "epoch-0003.pt", tmp_path / "no" / "x")


def test_without_safetensors_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(RequestRefused, match="needs the package safetensors") as caught:
        export_safetensors(tmp_path / "epoch-0001.pt", tmp_path / "model.safetensors")
    assert "pip install safetensors" in caught.value.hint
