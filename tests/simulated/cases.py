"""What is done on the pretended devices. Each case answers with plain facts, see `server`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mgpubench.config.run_config import RunConfig
from mgpubench.runners import dp, single
from mgpubench.training.devices import Part
from mgpubench.training.loop import measure
from mgpubench.training.step import AUXILIARY_WEIGHT, TrainStep
from mgpubench.training.technique import Wrapped, nothing
from mgpubench.training.torch_settings import set_up_process
from mgpubench.training.trainable import build_model
from tests.conftest import make_cpu_config
from tests.simulated.accelerator import devices
from tests.simulated.faults import FAULTS
from tests.simulated.models import CLASSES

LAYERS = (nn.Conv2d, nn.Linear)

NOTHING = 1e-6
"""The gradient of what BatchNorm takes away again is 0, but for rounding."""

Facts = dict[str, Any]
Batch = tuple[Tensor, Tensor]


@dataclass
class Observed:
    """One step as it was seen from outside."""

    logits: list[Tensor] = field(default_factory=list)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    buffers: dict[str, Tensor] = field(default_factory=dict)
    replicas: list[Facts] = field(default_factory=list)

    def difference_from(self, other: Observed) -> dict[str, float]:
        """The largest difference of each kind, relative to the largest value of a tensor."""
        assert self.gradients.keys() == other.gradients.keys()
        assert self.buffers.keys() == other.buffers.keys()
        pairs = {
            "logits": list(zip(self.logits, other.logits, strict=True)),
            "gradients": [(self.gradients[name], other.gradients[name]) for name in self.gradients],
            "buffers": [(self.buffers[name], other.buffers[name]) for name in self.buffers],
        }
        return {
            kind: max((_difference(*pair) for pair in found), default=0.0)
            for kind, found in pairs.items()
        }


def step(
    model: str,
    on: Sequence[int],
    batch: int,
    fault: str = "",
    **changes: Any,
) -> Facts:
    """One step of runners/dp against the same parts of the batch, one by one, on the CPU."""
    config = _config(model, len(on), **changes)
    images = _batch(config, batch)
    with FAULTS[fault]():
        found = _observe(dp.run, _part(config, devices(on)), images)
    expected = _one_by_one(config, images, len(on))
    return {
        "differences": found.difference_from(expected),
        "smallest_gradient": min(float(g.abs().max()) for g in found.gradients.values()),
        "replicas": sorted(found.replicas, key=lambda replica: replica["first"]),
    }


def step_of_one(model: str, batch: int) -> Facts:
    """Two devices against runners/single on one, with the whole batch: no BatchNorm, please."""
    images = _batch(_config(model, 2), batch)
    two = _observe(dp.run, _part(_config(model, 2), devices([0, 1])), images)
    one = _observe(single.run, _part(_config(model, 1), devices([0])), images)
    return {"differences": two.difference_from(one)}


def against_cpu_replicas(model: str, num_devices: int, batch: int) -> Facts:
    """One step of torch's DataParallel against one of our replicas on a CPU."""
    config = _config(model, num_devices)
    images = _batch(config, batch)
    torchs = _observe(dp.run, _part(config, devices(range(num_devices))), images)
    ours = _observe(dp.run, _part(config, (torch.device("cpu"),) * num_devices), images)
    return {"differences": torchs.difference_from(ours)}


def whole_run(model: str, num_devices: int) -> Facts:
    """The training loop, unchanged, on the pretended devices and on CPU replicas."""
    config = _config(model, num_devices, steps=3, warmup_steps=2)
    places = (devices(range(num_devices)), (torch.device("cpu"),) * num_devices)
    records = []
    for place in places:
        part = _part(config, place)
        set_up_process(part)
        records.append(dp.run(part, measure))
    return {
        "losses": [record.final_loss for record in records],
        "samples": records[0].samples,
        "num_step_times": len(records[0].step_times_s),
    }


def _config(model: str, num_devices: int, **changes: Any) -> RunConfig:
    values: dict[str, Any] = {"num_classes": CLASSES, "batch_per_device": 4, "mode": "dp"}
    return make_cpu_config(model=model, num_devices=num_devices, **{**values, **changes})


def _part(config: RunConfig, places: tuple[torch.device, ...]) -> Part:
    return Part(
        config=config,
        rank=0,
        device_numbers=range(len(places)),
        devices=places,
        store=Path("unused"),
        listing=Path("unused"),
        losses=Path("unused"),
        on_step=nothing,
        on_progress=nothing,
    )


def _batch(config: RunConfig, batch: int) -> Batch:
    generator = torch.Generator().manual_seed(7)
    shape = (batch, 3, config.image_size, config.image_size)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    images[:, 0, 0, 0] = torch.arange(batch)  # tells where a replica's part begins
    return images, torch.randint(0, CLASSES, (batch,), generator=generator)


def _observe(run: Callable[..., Any], part: Part, batch: Batch) -> Observed:
    """One step of a runner."""
    seen = Observed()

    def work(part: Part, wrapped: Wrapped) -> None:
        _watch_replicas(wrapped.plain, seen.replicas)
        call = wrapped.model.forward

        def forward(*inputs: Any) -> Any:
            outputs = call(*inputs)
            seen.logits.extend(_numbers(each) for each in outputs)
            return outputs

        wrapped.model.forward = forward  # type: ignore[method-assign]
        TrainStep(wrapped, part)(iter([batch]))
        _keep_state(wrapped.plain, seen)

    set_up_process(part)
    run(part, work)
    return seen


def _watch_replicas(model: nn.Module, replicas: list[Facts]) -> None:
    """Note what each replica gets and is. The hooks are copied with the module."""
    by_thread: dict[int, Facts] = {}  # each replica has a thread

    def note(replica: nn.Module, inputs: Any) -> None:
        (images,) = inputs
        facts: Facts = {
            "device": str(images.device),
            "samples": len(images),
            "first": int(images[0, 0, 0, 0]),
            **_weights_of(replica),
            "types": [],
        }
        by_thread[threading.get_ident()] = facts
        replicas.append(facts)

    def note_type(layer: nn.Module, inputs: Any, output: Tensor) -> None:
        types = by_thread.get(threading.get_ident(), {}).get("types", [])
        if (name := str(output.dtype)) not in types:
            types.append(name)

    model.register_forward_pre_hook(note)
    for layer in model.modules():
        if isinstance(layer, LAYERS):
            layer.register_forward_hook(note_type)


def _weights_of(model: nn.Module) -> Facts:
    weights = [layer.weight for layer in model.modules() if isinstance(layer, LAYERS)]
    return {
        "weights_on": sorted({str(weight.device) for weight in weights}),
        "channels_last": all(
            weight.is_contiguous(memory_format=torch.channels_last)
            for weight in weights
            if weight.dim() == 4
        ),
    }


def _one_by_one(config: RunConfig, batch: Batch, num_parts: int) -> Observed:
    """What DataParallel has to give: each part of the batch on its own, on one device.

    Buffers are those that the first part leaves. The gradients are those of the mean loss.
    """
    part = _part(config, (torch.device("cpu"),))
    set_up_process(part)
    model, (images, labels) = build_model(part), batch
    outputs = []
    for number, some in enumerate(images.chunk(num_parts)):
        buffers = dict(model.named_buffers(remove_duplicate=False))
        lent = {name: buffer.clone() for name, buffer in buffers.items()} if number else buffers
        outputs.append(functional_call(model, lent, (some,), tie_weights=False))
    logits = [torch.cat(parts) for parts in zip(*outputs, strict=True)]
    losses = [nn.functional.cross_entropy(each, labels) for each in logits]
    torch.stack([losses[0], *(AUXILIARY_WEIGHT * loss for loss in losses[1:])]).sum().backward()
    seen = Observed(logits=[_numbers(each) for each in logits])
    _keep_state(model, seen)
    return seen


def _keep_state(model: nn.Module, seen: Observed) -> None:
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            seen.gradients[name] = _numbers(parameter.grad)
    # A buffer with two names becomes two when it moves to a device, as on CUDA.
    for name, buffer in model.named_buffers(remove_duplicate=False):
        seen.buffers[name] = _numbers(buffer)


def _numbers(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().clone()


def _difference(one: Tensor, other: Tensor) -> float:
    """The largest difference of two tensors, relative to the largest value."""
    assert one.shape == other.shape
    one, other = one.double(), other.double()
    return float((one - other).abs().max() / other.abs().max().clamp(min=NOTHING))
