"""Models by name, and the wrapper inside DataParallel and DistributedDataParallel."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mgpubench.config.types import default_image_size
from mgpubench.errors import RequestRefused, TorchUnavailable
from mgpubench.results.schema import ModelFacts
from mgpubench.training.devices import Part
from mgpubench.training.preflight import inspect_model
from mgpubench.training.step import TrainStep
from mgpubench.training.technique import Wrapped
from mgpubench.training.trainable import TrainableModel, build_model
from tests.conftest import make_cpu_config

PartOf = Callable[..., Part]


def inspect(name: str, classes: int = 10, batch: int = 2, size: int | None = None) -> ModelFacts:
    size = size or default_image_size(name)
    return inspect_model(
        [make_cpu_config(model=name, num_classes=classes, batch_per_device=batch, image_size=size)]
    )


def test_sizes_are_those_of_the_published_models() -> None:
    """ResNet-18 has 11,689,512 parameters and ResNet-50 has 25,557,032, at 4 bytes each."""
    assert inspect("resnet18", 1000).num_parameters == 11_689_512
    facts = inspect("resnet50", 1000)
    assert facts.num_parameters == 25_557_032
    assert facts.parameter_bytes == 4 * 25_557_032


@pytest.mark.parametrize("name", ["tiny-cnn", "mlp", "resnet18"])
@pytest.mark.parametrize("classes", [2, 1000])
def test_models_turn_images_into_logits(part_of: PartOf, name: str, classes: int) -> None:
    model = build_model(part_of(make_cpu_config(model=name, num_classes=classes)))
    images = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    (logits,) = model(images)
    assert logits.shape == (2, classes)
    assert logits.dtype == torch.float32


def test_an_unknown_model_is_refused_with_those_that_are_near() -> None:
    with pytest.raises(RequestRefused, match="--model resnet51 is unknown") as caught:
        inspect("resnet51")
    assert "resnet50" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fasterrcnn_resnet50_fpn", "detection"),
        ("fcn_resnet50", "segmentation"),
        ("r3d_18", "video"),
        ("quantized_resnet18", "quantization"),
        ("raft_small", "optical flow"),
    ],
)
def test_models_of_other_tasks_are_refused_by_name(name: str, kind: str) -> None:
    with pytest.raises(RequestRefused, match=f"--model {name} is a model for {kind}, and"):
        inspect(name)


@pytest.mark.parametrize(
    ("name", "batch", "size", "words"),
    [
        ("vit_b_16", 2, 32, ["vit_b_16", "32", "224"]),  # C39: one size only
        ("alexnet", 2, 32, ["too small"]),
        ("inception_v3", 2, 64, ["too small", "299"]),
        ("resnet18", 1, 32, ["more than 1 value per channel", "cannot average"]),
        ("maxvit_t", 2, 64, ["64"]),
    ],
)
def test_inputs_that_a_model_cannot_take_are_refused(
    name: str, batch: int, size: int, words: list[str]
) -> None:
    with pytest.raises(RequestRefused) as caught:
        inspect(name, 1000, batch, size)
    text = f"{caught.value.message} {caught.value.hint}"
    assert all(word in text for word in words), text


def test_a_batch_of_one_is_named_only_if_it_is_the_cause() -> None:
    with pytest.raises(RequestRefused) as caught:
        inspect("vit_b_16", 1000, 1, 32)
    assert caught.value.hint == "Its own image size is 224 (--image-size 224)."
    with pytest.raises(RequestRefused) as caught:
        inspect("resnet18", 1000, 1, 32)
    assert "cannot average" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "batch", "size"),
    [("vit_b_16", 1, 224), ("resnet18", 1, 64), ("vgg11", 1, 32), ("regnet_y_400mf", 2, 64)],
)
def test_inputs_that_a_model_takes_are_not_refused(name: str, batch: int, size: int) -> None:
    """A batch of 1 is not wrong in itself: BatchNorm only fails if it has one value per channel."""
    assert inspect(name, 1000, batch, size).num_parameters > 10**6


def test_auxiliary_logits_follow_the_main_ones(part_of: PartOf) -> None:
    model = build_model(part_of(make_cpu_config(model="googlenet", num_classes=10)))
    outputs = model(torch.zeros(2, 3, 96, 96, dtype=torch.uint8))
    assert [output.shape for output in outputs] == [(2, 10)] * 3


def test_the_loss_is_the_main_one_and_0_3_of_the_auxiliary_ones(part_of: PartOf) -> None:
    class Outputs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
            even = torch.zeros(2, 4) + self.weight  # cross entropy ln 4 = 1.386
            sure = torch.tensor([[50.0, 0, 0, 0]]).repeat(2, 1) + self.weight  # 0 for label 0
            return even, sure, even

    model: Any = Outputs()
    step = TrainStep(Wrapped(model=model, plain=model), part_of(make_cpu_config()))
    loss = step(iter([(torch.zeros(2, 3, 4, 4), torch.zeros(2, dtype=torch.int64))]))
    assert float(loss) == pytest.approx(1.3 * math.log(4))


def test_a_built_in_model_needs_no_torchvision() -> None:
    program = (
        "import sys; from tests.integration.test_models import inspect; "
        "inspect('tiny-cnn'); inspect('mlp'); "
        "sys.exit('torchvision' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


class Probe(torch.nn.Module):
    """Shows what the wrapper hands to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(3))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.images = images
        output = images.mean((2, 3)) @ self.weight
        self.dtype = output.dtype
        return output


def test_images_are_normalised_with_imagenets_statistics() -> None:
    probe = Probe()
    white = torch.full((1, 3, 2, 2), 255, dtype=torch.uint8)
    TrainableModel(probe, "fp32")(white)
    by_hand = [(1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225]
    assert probe.images[0, :, 0, 0].tolist() == pytest.approx(by_hand, rel=1e-6)


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("amp-bf16", torch.bfloat16)]
)
def test_matrix_products_run_in_the_precision_asked_for(precision: str, dtype: torch.dtype) -> None:
    probe = Probe()
    (logits,) = TrainableModel(probe, precision)(torch.zeros(1, 3, 2, 2, dtype=torch.uint8))  # type: ignore[arg-type]
    assert probe.dtype == dtype
    assert logits.dtype == torch.float32


def test_products_in_another_type_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trap of DataParallel: its threads know that autocast is on, and not with which type."""
    monkeypatch.setattr(
        TrainableModel, "_autocast", lambda self, kind: torch.autocast(kind, dtype=torch.float16)
    )
    model = TrainableModel(Probe(), "amp-bf16")
    with pytest.raises(RuntimeError, match=r"run in torch\.float16 instead of torch\.bfloat16"):
        model(torch.zeros(1, 3, 2, 2, dtype=torch.uint8))


def test_the_same_seed_gives_the_same_weights(part_of: PartOf) -> None:
    weights = []
    for _ in range(2):
        torch.manual_seed(3)
        weights.append(next(build_model(part_of(make_cpu_config(num_classes=10))).parameters()))
    assert torch.equal(*weights)


def test_channels_last_reaches_images_and_weights(part_of: PartOf) -> None:
    config = make_cpu_config(model="resnet18", num_classes=10, channels_last=True)
    model = build_model(part_of(config))
    seen = []
    first = next(module for module in model.modules() if isinstance(module, torch.nn.Conv2d))
    first.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model(torch.zeros(2, 3, 64, 64, dtype=torch.uint8))
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    assert first.weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", ["tiny-cnn", "mlp", "googlenet"])
def test_what_data_parallel_gathers_has_a_batch_dimension(part_of: PartOf, name: str) -> None:
    """C64: DataParallel warns of scalars; the loss is computed outside it."""
    model = build_model(part_of(make_cpu_config(model=name, num_classes=10)))
    outputs = model(torch.zeros(2, 3, 96, 96, dtype=torch.uint8))
    assert all(output.dim() == 2 and len(output) == 2 for output in outputs)


TRY_BOTH = """
from mgpubench.errors import TorchUnavailable
from mgpubench.training.data.folder import check_decoder
from mgpubench.training.models.by_name import make_module

for work in (check_decoder, lambda: make_module("resnet18", 10)):
    try:
        work()
    except TorchUnavailable as error:
        print(error)
"""


def test_a_torchvision_for_another_torch_is_reported_as_such(tmp_path: Path) -> None:
    """It fails with a RuntimeError, and not with an ImportError."""
    words = "operator torchvision::nms does not exist"
    (tmp_path / "torchvision.py").write_text(f"raise RuntimeError({words!r})\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    answer = subprocess.run(
        [sys.executable, "-c", TRY_BOTH],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    images, model = answer.stdout.splitlines()
    assert images == f"a folder of images needs torchvision and Pillow: {words}"
    assert model == f"--model resnet18 needs torchvision, which cannot be imported: {words}"


def test_a_missing_torchvision_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not as an error of the model."""
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(TorchUnavailable, match="resnet18 needs torchvision, which cannot be"):
        inspect("resnet18")
