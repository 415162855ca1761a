"""Optimizers, accumulation, precisions and DDP's own options: real small runs on a CPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mgpubench.analysis.metrics import summarize
from mgpubench.config.run_config import DdpOptions, RunConfig
from mgpubench.launch.supervisor import Supervisor
from mgpubench.results.rank_record import RankRecord
from mgpubench.session.workers import launch_run, listing_file
from mgpubench.training.data.listing import list_images
from mgpubench.training.models.builtin import mlp, tiny_cnn
from mgpubench.training.trainable import TrainableModel
from tests.conftest import make_cpu_config

Result = dict[str, Any]
Numbers = dict[str, list[float]]


@pytest.fixture
def train(supervisor: Supervisor) -> Callable[..., list[Result]]:
    """Some steps of a run, as each of its ranks ends."""

    def run(**changes: Any) -> list[Result]:
        config = make_cpu_config(**{"num_classes": 10, "steps": 3, **changes})
        ranks: list[Any] = launch_run(
            supervisor, config, lambda steps: None, "tests.trained:some_steps"
        )
        return ranks

    return run


Train = Callable[..., list[Result]]

DP = {"mode": "dp", "effective_mode": "cpu-replicas", "num_devices": 2}
DDP = {"mode": "ddp", "effective_mode": "ddp", "num_devices": 2}
FSDP = {"mode": "fsdp", "effective_mode": "fsdp", "num_devices": 2}


def difference(found: Numbers, expected: Numbers) -> float:
    """The largest difference, relative to the largest number of each tensor."""
    assert found.keys() == expected.keys()
    return max(
        max(abs(a - b) for a, b in zip(numbers, expected[name], strict=True))
        / (max(map(abs, expected[name])) or 1.0)
        for name, numbers in found.items()
    )


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """An ImageFolder of 40 images that differ in every pixel, in 4 classes."""
    from PIL import Image

    generator = torch.Generator().manual_seed(5)
    for number in range(40):
        folder = tmp_path / "pictures" / f"class-{number % 4}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = torch.randint(0, 256, (12, 12, 3), dtype=torch.uint8, generator=generator)
        Image.fromarray(pixels.numpy()).resize((40, 40)).save(folder / f"{number}.png")
    return tmp_path / "pictures"


@pytest.mark.parametrize("model", ["tiny-cnn", "resnet18"])
def test_dp_and_ddp_train_batchnorm_models_to_equal_weights_on_real_images(
    train: Train, supervisor: Supervisor, pictures: Path, model: str
) -> None:
    """Each device must get the same images in both, since BatchNorm averages over a device."""
    list_images(pictures).save_samples(listing_file(supervisor, str(pictures)))
    work = {"data": str(pictures), "model": model, "batch_per_device": 8, "num_classes": 4}
    steps = {"steps": 4, "image_size": 32}  # with the warm-up 5, in an epoch of 2
    (dp,) = train(**work, **steps, **DP)
    ranks = train(**work, **steps, **DDP)
    for rank in ranks:
        assert difference(rank["weights"], dp["weights"]) < 1e-5
    # Those of the other ranks are overwritten by rank 0 in the next forward pass.
    assert difference(ranks[0]["buffers"], dp["buffers"]) < 1e-5
    assert dp["losses"] == pytest.approx(
        [sum(losses) / 2 for losses in zip(*(rank["losses"] for rank in ranks), strict=True)],
        rel=1e-5,
    )


@pytest.mark.parametrize("mode", [{}, DP, DDP, FSDP], ids=["single", "dp", "ddp", "fsdp"])
def test_two_micro_batches_train_like_one_batch_of_twice_the_size(
    train: Train, mode: dict[str, Any]
) -> None:
    work = {"model": "mlp", "batch_per_device": 8, **mode}
    once, twice = train(**work), train(**work, accumulate=2)
    for one, two in zip(once, twice, strict=True):
        assert difference(two["weights"], one["weights"]) < 1e-5
        assert two["losses"] == pytest.approx(one["losses"], rel=1e-5)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("model", ["mlp", "tiny-cnn", "resnet18"])
def test_fsdp_trains_to_the_weights_of_ddp(train: Train, model: str, accumulate: int) -> None:
    """Also with BatchNorm: each rank averages over its own images in both."""
    work = {"model": model, "batch_per_device": 8, "accumulate": accumulate, "image_size": 32}
    ddp, fsdp = train(**work, **DDP), train(**work, **FSDP)
    for one, other in zip(ddp, fsdp, strict=True):
        assert difference(other["weights"], one["weights"]) < 1e-5
        assert other["losses"] == pytest.approx(one["losses"], rel=1e-5)
    if model != "mlp":
        assert difference(fsdp[0]["buffers"], ddp[0]["buffers"]) < 1e-5


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_each_rank_of_fsdp_has_its_part_of_the_optimizers_state(
    train: Train, optimizer: str
) -> None:
    work = {"model": "mlp", "optimizer": optimizer}
    ddp, fsdp = train(**work, **DDP), train(**work, **FSDP)
    assert difference(fsdp[0]["weights"], ddp[0]["weights"]) < 1e-5
    kept = [rank["state_bytes"] for rank in fsdp]
    assert sum(kept) == pytest.approx(ddp[0]["state_bytes"], rel=0.01)
    assert max(kept) < 0.51 * ddp[0]["state_bytes"]


def test_accumulated_batches_are_not_exchanged_but_for_the_last(train: Train) -> None:
    """With BatchNorm too all ranks end with the same weights: nothing was left out."""
    first, second = train(model="tiny-cnn", batch_per_device=8, accumulate=4, **DDP)
    assert first["weights"] == second["weights"]


def test_zero_trains_to_the_same_weights_with_half_the_state(train: Train) -> None:
    for optimizer in ("sgd", "adam"):
        plain = train(model="mlp", optimizer=optimizer, **DDP)
        zero = train(model="mlp", optimizer=optimizer, ddp=DdpOptions(zero=True), **DDP)
        for one, other in zip(plain, zero, strict=True):
            assert difference(other["weights"], one["weights"]) < 1e-5
        kept = [rank["state_bytes"] for rank in zero]
        assert sum(kept) == pytest.approx(plain[0]["state_bytes"], rel=0.01)
        assert max(kept) < plain[0]["state_bytes"]


@pytest.mark.parametrize(("hook", "tolerance"), [("fp16", 1e-3), ("bf16", 1e-2), ("powersgd", 0.2)])
def test_a_comm_hook_trains_to_weights_that_are_close(
    train: Train, hook: Any, tolerance: float
) -> None:
    plain = train(model="mlp", **DDP)
    hooked = train(model="mlp", ddp=DdpOptions(comm_hook=hook), **DDP)
    assert hooked[0]["weights"] == hooked[1]["weights"]
    found = difference(hooked[0]["weights"], plain[0]["weights"])
    assert 0 < found < tolerance


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_the_optimizer_is_torchs_own(train: Train, optimizer: str) -> None:
    (found,) = train(model="tiny-cnn", optimizer=optimizer)
    expected = by_hand(optimizer, make_cpu_config(num_classes=10, steps=3))
    assert difference(found["weights"], expected) < 1e-5


def by_hand(optimizer: str, config: RunConfig) -> Numbers:
    """The weights after the same steps in plain torch."""
    from mgpubench.training.data.loader import open_feed
    from mgpubench.training.rank import make_part

    batches = open_feed(make_part(config, 0, Path("/tmp"), Path("none"))).batches
    torch.manual_seed(config.seed)
    torch.set_num_threads(1)
    model = TrainableModel(tiny_cnn(10), "fp32").train()
    updates: torch.optim.Optimizer
    if optimizer == "sgd":
        updates = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=1e-4)
    else:
        kind = torch.optim.Adam if optimizer == "adam" else torch.optim.AdamW
        updates = kind(model.parameters(), lr=0.001, weight_decay=1e-4)
    for images, labels in itertools.islice(batches, config.total_steps):
        updates.zero_grad()
        torch.nn.functional.cross_entropy(model(images)[0], labels).backward()
        updates.step()
    return {
        name: parameter.detach().double().flatten().tolist()
        for name, parameter in model.named_parameters()
    }


@pytest.mark.parametrize("mode", [{}, DP, DDP, FSDP], ids=["single", "dp", "ddp", "fsdp"])
@pytest.mark.parametrize(
    ("precision", "weights", "tolerance"),
    [
        ("amp-bf16", "torch.float32", 0.02),
        ("amp-fp16", "torch.float32", 0.01),
        ("bf16", "torch.bfloat16", 0.05),
        ("fp16", "torch.float16", 0.02),
    ],
)
def test_other_precisions_come_close_to_fp32(
    train: Train, mode: dict[str, Any], precision: str, weights: str, tolerance: float
) -> None:
    """The model itself checks that matrix products have the type, in every replica."""
    (reference, *_), (found, *_) = (
        train(model="tiny-cnn", precision=each, **mode) for each in ("fp32", precision)
    )
    assert found["types"] == [weights]
    assert found["losses"] != reference["losses"]
    assert found["losses"] == pytest.approx(reference["losses"], rel=tolerance)


@pytest.mark.parametrize("precision", ["bf16", "fp16", "amp-fp16", "amp-bf16"])
def test_a_product_of_another_type_is_found(precision: Any) -> None:
    model = TrainableModel(mlp(10), "fp32")
    other = TrainableModel(mlp(10), precision)
    # What a wrapper does that loses the type, as DataParallel does with autocast around it.
    model.autocast_dtype, model._weight_dtype = other.autocast_dtype, other._weight_dtype
    model._autocast = TrainableModel(mlp(10), "fp32")._autocast  # type: ignore[method-assign]
    images = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    with (
        pytest.raises(RuntimeError, match=r"run in torch\.\w+ instead of|must have the same dtype"),
        torch.autocast("cpu", dtype=torch.bfloat16 if "fp16" in precision else torch.float16),
    ):
        model(images)


def test_ranks_do_not_draw_the_same_dropout_mask(train: Train) -> None:
    first, second = train(model="tests.trained:dropping", **DDP)
    (again, _) = train(model="tests.trained:dropping", **DDP)
    (single,) = train(model="tests.trained:dropping")
    assert len(first["masks"]) == 4
    assert all(a != b for a, b in zip(first["masks"], second["masks"], strict=True))
    assert first["masks"] == again["masks"] == single["masks"]


def test_weights_are_the_same_on_all_ranks_from_the_start(train: Train) -> None:
    single = train(model="tiny-cnn", steps=1, warmup_steps=0, optimizer="sgd")
    ranks = train(model="tiny-cnn", steps=1, warmup_steps=0, batch_per_device=2, **DDP)
    # BatchNorm's biases begin as 0, and after one step they are of the size of the learning rate.
    assert ranks[0]["weights"] == ranks[1]["weights"]
    convolution = "model.0.weight"
    assert ranks[0]["weights"][convolution] == pytest.approx(
        single[0]["weights"][convolution], abs=0.05
    )


def measured(supervisor: Supervisor, **changes: Any) -> tuple[RunConfig, list[RankRecord]]:
    config = make_cpu_config(precision="amp-fp16", num_classes=10, **changes)
    return config, launch_run(supervisor, config, lambda steps: None)


@pytest.mark.parametrize(
    ("function", "skipped", "is_finite"),
    [("overflows_first", 1, True), ("overflows_last", 1, True), ("overflows_always", 4, False)],
)
@pytest.mark.parametrize("mode", [{}, DDP, FSDP], ids=["single", "ddp", "fsdp"])
def test_steps_that_the_scaler_skips_are_counted_and_do_not_spoil_the_loss(
    supervisor: Supervisor, function: str, skipped: int, is_finite: bool, mode: dict[str, Any]
) -> None:
    """Of the steps 1 (warm-up) and 2 to 5 (measured); the first case also skips the warm-up."""
    config, ranks = measured(supervisor, model=f"tests.trained:{function}", **mode)
    assert [rank.skipped_steps for rank in ranks] == [skipped] * config.world_size
    assert summarize(config, ranks).skipped_steps == skipped
    assert all((rank.final_loss < 1e9) == is_finite for rank in ranks)


def test_without_a_scaler_no_count_is_made_up(supervisor: Supervisor) -> None:
    config = make_cpu_config()
    ranks = launch_run(supervisor, config, lambda steps: None)
    assert summarize(config, ranks).skipped_steps is None
