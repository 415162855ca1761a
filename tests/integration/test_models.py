"""Models by name, and the wrapper inside DataParallel and DistributedDataParallel."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from mgpubench.errors import RequestRefused
from mgpubench.models import TrainableModel, build_model, inspect_model


def test_sizes_are_those_of_the_published_models() -> None:
    """ResNet-18 has 11,689,512 parameters and ResNet-50 has 25,557,032, at 4 bytes each."""
    assert inspect_model("resnet18", 1000).num_parameters == 11_689_512
    facts = inspect_model("resnet50", 1000)
    assert facts.num_parameters == 25_557_032
    assert facts.parameter_bytes == 4 * 25_557_032


@pytest.mark.parametrize("name", ["tiny-cnn", "mlp", "resnet18"])
@pytest.mark.parametrize("classes", [2, 1000])
def test_models_turn_images_into_logits(name: str, classes: int) -> None:
    model = build_model(name, classes, "fp32")
    images = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    logits = model(images)
    assert logits.shape == (2, classes)
    assert logits.dtype == torch.float32


def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RequestRefused, match="--model resnet51 is not known") as caught:
        build_model("resnet51", 10, "fp32")
    assert "tiny-cnn, mlp" in caught.value.hint
    assert "resnet50" in caught.value.hint


def test_a_built_in_model_needs_no_torchvision() -> None:
    program = (
        "import sys; from mgpubench.models import inspect_model; "
        "inspect_model('tiny-cnn', 10); inspect_model('mlp', 10); "
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
    logits = TrainableModel(probe, precision)(torch.zeros(1, 3, 2, 2, dtype=torch.uint8))  # type: ignore[arg-type]
    assert probe.dtype == dtype
    assert logits.dtype == torch.float32


def test_the_same_seed_gives_the_same_weights() -> None:
    weights = []
    for _ in range(2):
        torch.manual_seed(3)
        weights.append(next(build_model("tiny-cnn", 10, "fp32").parameters()))
    assert torch.equal(*weights)
