"""A user's own models: `package.module:function`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpubench.errors import RequestRefused
from mgpubench.results.schema import ModelFacts
from mgpubench.training.devices import Part
from mgpubench.training.preflight import inspect_model
from mgpubench.training.trainable import build_model
from tests.conftest import make_cpu_config
from tests.processes import mgpubench

NETS = """
import torch
from torch import nn


def plain():
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 7))


class LooksAtNumbers(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = float(torch.linspace(0, 1, 5)[2])
        self.head = plain()

    def forward(self, images):
        if images.mean().item() > 100:
            return None
        return self.head(images * self.scale)


def looks_at_numbers():
    return LooksAtNumbers()


class Returns(nn.Module):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, images):
        return self.answer(images)


def parallel():
    return nn.DataParallel(plain())


def parallel_inside():
    return nn.Sequential(plain(), nn.ModuleDict({"head": parallel()})["head"])


def parallel_hidden():
    model = plain()
    model.spare = [{"another": nn.Sequential(parallel())}]
    return model


class Derived(nn.DataParallel):
    pass


def derived():
    return nn.Sequential(Derived(plain()))


def wrapped_for_checkpointing():
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    return nn.Sequential(checkpoint_wrapper(plain()))


def a_dictionary():
    return Returns(lambda images: {"logits": images})


def nothing():
    return Returns(lambda images: None)


def an_image():
    return Returns(lambda images: images)


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.main, self.other = nn.Linear(768, 9), nn.Linear(768, 2)

    def forward(self, images):
        flat = images.flatten(1)
        return self.main(flat), self.other(flat), None


def more_outputs():
    return TwoHeads()


RATES = [rate.item() for rate in torch.linspace(0, 0.1, 4)]
SCALE = torch.tensor(2.0)


class UsesTheModulesTensor(LooksAtNumbers):
    def forward(self, images):
        return super().forward(images * SCALE)


def uses_the_modules_tensor():
    return UsesTheModulesTensor()


def no_classes():
    return Returns(lambda images: images.flatten(1)[:, :0])


def whole_numbers():
    return Returns(lambda images: images.flatten(1).long())


def detached():
    return Returns(lambda images: images.flatten(1).detach())


def complex_numbers():
    return Returns(lambda images: images.flatten(1) * (1 + 1j))


def lazy():
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(7))


def exits():
    raise SystemExit(3)


def frozen():
    return plain().requires_grad_(False)


def wrong_size():
    return nn.Sequential(nn.Flatten(), nn.Linear(10, 7))


def raises():
    raise KeyError("weights")


def no_model():
    return 7


def compiled():
    return torch.compile(plain())


def compiled_in_part():
    model = nn.Sequential(plain(), nn.Linear(7, 7))
    model[1].compile()
    return model


ONLY_ONE = []


def remembered():
    ONLY_ONE.append(LooksAtNumbers.__new__(LooksAtNumbers))
    if len(ONLY_ONE) == 1:
        nn.Module.__init__(ONLY_ONE[0])
        ONLY_ONE[0].scale = 1.0
        ONLY_ONE[0].head = plain()
    return ONLY_ONE[0]


def in_eval():
    return nn.Sequential(plain(), nn.Dropout(), nn.BatchNorm1d(7)).eval()


def needs_arguments(width):
    return plain()


a_number = 3
"""


@pytest.fixture(autouse=True)
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules in the current folder. Nothing of them is left afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "nets.py").write_text(NETS)
    (tmp_path / "broken.py").write_text("import torch_of_tomorrow\n")
    monkeypatch.chdir(tmp_path)
    yield
    for name in ("zoo", "zoo.nets", "broken"):
        sys.modules.pop(name, None)


def inspect(function: str, **changes: Any) -> ModelFacts:
    return inspect_model([make_cpu_config(model=f"zoo.nets:{function}", image_size=16, **changes)])


@pytest.mark.parametrize("function", ["plain", "looks_at_numbers", "uses_the_modules_tensor"])
def test_a_model_of_the_users_own_decides_its_number_of_classes(function: str) -> None:
    """The others cannot be built or run on the meta device, and are tried with real numbers."""
    facts = inspect(function)
    assert replace(facts, digest="") == ModelFacts(
        num_parameters=48 * 7 + 7, parameter_bytes=4 * 343, num_classes=7, digest=""
    )
    assert len(facts.digest) == 16


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("a_dictionary", "it returns a dict instead of a tensor"),
        ("nothing", "it returns a NoneType instead of a tensor"),
        ("an_image", "it returns the shape (2, 3, 16, 16) instead of logits of shape (2, classes)"),
        ("no_classes", "it returns logits for 0 classes"),
        ("whole_numbers", "it returns torch.int64 instead of floating-point logits"),
        ("complex_numbers", "it returns torch.complex64 instead of floating-point logits"),
        ("detached", "its logits do not depend on any trainable parameter"),
        ("lazy", "has lazy parameters, which DataParallel and DDP cannot copy"),
        ("frozen", "has no parameters to train"),
        ("wrong_size", "cannot be trained on 2 x 3 x 16 x 16 per device: mat1 and mat2"),
        ("raises", "cannot be built: KeyError: 'weights'"),
        ("exits", "cannot be built: SystemExit: 3"),
        ("no_model", "returns an object of type int"),
        ("compiled", "returns a module that is already compiled"),
        ("compiled_in_part", "returns a module that is already compiled"),
        ("remembered", "returns the same module at every call"),
        ("needs_arguments", "missing 1 required positional argument: 'width'"),
        ("a_number", "a_number is not a function, but of type int"),
        ("plane", "zoo.nets has no function plane"),
    ],
)
def test_what_is_not_a_classification_model_is_refused(function: str, words: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        inspect(function)
    assert caught.value.message.startswith(f"--model zoo.nets:{function}")
    assert words in caught.value.message


@pytest.mark.parametrize("function", ["parallel", "parallel_inside", "parallel_hidden", "derived"])
def test_a_model_that_brings_its_own_parallelism_is_refused(function: str) -> None:
    """On GPUs `single` would use all of them."""
    with pytest.raises(RequestRefused) as caught:
        inspect(function)
    kind = "Derived" if function == "derived" else "DataParallel"
    assert caught.value.message == (
        f"--model zoo.nets:{function} has a module of type {kind} in it, which uses several "
        "devices by itself"
    )


def test_a_model_that_torch_wraps_for_checkpointing_is_not_parallel() -> None:
    assert inspect("wrapped_for_checkpointing").num_classes == 7


def test_a_model_is_trained_in_training_mode(part_of: Callable[..., Part]) -> None:
    model = build_model(part_of(make_cpu_config(model="zoo.nets:in_eval")))
    assert all(module.training for module in model.modules())


def test_a_similar_name_is_suggested() -> None:
    with pytest.raises(RequestRefused) as caught:
        inspect("plane")
    assert caught.value.hint == "Did you mean zoo.nets:plain?"


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("broken:net", "ModuleNotFoundError: No module named 'torch_of_tomorrow'"),
        ("zoo.missing:net", "ModuleNotFoundError: No module named 'zoo.missing'"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named_with_its_error(name: str, error: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        inspect_model([make_cpu_config(model=name)])
    module = name.partition(":")[0]
    assert caught.value.message == f"--model {name}: {module} cannot be imported: {error}"


def test_a_folder_with_more_classes_than_logits_is_refused() -> None:
    with pytest.raises(RequestRefused, match="gives 7 logits, and the folder of --data has 8"):
        inspect("plain", data="photos", num_classes=8)
    assert inspect("plain", data="photos", num_classes=7).num_classes == 7


def test_the_output_with_the_fewest_classes_decides() -> None:
    """Auxiliary logits are in the loss: a label beyond them would be an error on the device."""
    assert inspect("more_outputs").num_classes == 2


def test_a_module_may_change_the_folder_and_the_start_method(
    photos: Callable[..., Path], tmp_path: Path
) -> None:
    """As scripts do at their top. Our paths, and our loaders, must not follow."""
    photos(cat=8, dog=8)
    text = "import os, torch.multiprocessing as mp\nos.chdir('/')\nmp.set_start_method('spawn')\n"
    (tmp_path / "moves.py").write_text(text + NETS)
    options = ("--mode", "single", "--workers-per-gpu", 1, "--batch-per-gpu", 2, "--data", "photos")
    command = mgpubench("run", "--smoke", "--model", "moves:plain", *options, cwd=tmp_path)
    assert command.wait() == 0, command.err
