"""DataParallel's phases on CPU replicas, so that its code path can be tested without GPUs.

torch.nn.DataParallel ignores its devices on a CPU and just calls the module. Here the same phases
(scatter, replicate, parallel apply, gather) really run, in threads that share the cores. It shows
that the tool works and that the gradients are right; it says nothing about the speed of GPUs (for
one thing, their backward passes run side by side, and here in one thread).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mgpubench.errors import RunFailed
from mgpubench.format import told
from mgpubench.training.devices import Share

Lent = tuple[nn.Module, dict[str, Tensor]]
"""A replica: the structure of the module, and the tensors that it works with in this step."""


def wrap_on_cpu(module: nn.Module, share: Share) -> nn.Module:
    """Replicas in threads; for a single one torch's DataParallel, which just calls the module."""
    if len(share.devices) == 1:
        return nn.DataParallel(module)
    return CpuReplicas(module, len(share.devices))


def _make_shell(module: nn.Module) -> nn.Module:
    """One for each thread, since functional_call swaps a module's tensors in place.

    On the meta device: all that a shell needs is lent to it in every step.

    Raises:
        RunFailed: if the module cannot be copied, or its tensors cannot be swapped.
    """
    if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        raise _cannot_copy("it is a ScriptModule")
    try:
        return copy.deepcopy(module).to("meta")
    except MemoryError:
        raise
    # Whatever somebody's model has in it.
    except Exception as error:
        raise _cannot_copy(f"{type(error).__name__}: {told(error)}") from error


def _cannot_copy(reason: str) -> RunFailed:
    return RunFailed(
        f"dp on a CPU cannot copy this model: {reason}",
        "There dp runs replicas of our own, and on GPUs torch's; here leave it out: "
        "--mode single,ddp",
    )


class CpuReplicas(nn.DataParallel[nn.Module]):
    """A module run as several replicas, each on a part of the batch.

    The methods are DataParallel's own, overridden because torch's demand an accelerator.
    """

    def __init__(self, module: nn.Module, num_replicas: int) -> None:
        super().__init__(module)
        self._shells = [_make_shell(module) for _ in range(num_replicas)]
        threads_each = max(1, torch.get_num_threads() // num_replicas)
        self._threads = ThreadPoolExecutor(
            num_replicas, initializer=torch.set_num_threads, initargs=(threads_each,)
        )

    def forward(self, *inputs: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        """Logits of the whole batch, in its order, main and auxiliary."""
        chunks, _ = self.scatter(inputs, kwargs, self.device_ids)
        replicas = self.replicate(self.module, self.device_ids)
        return self.gather(self.parallel_apply(replicas, chunks, None), None)

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Sequence[Any]) -> Any:
        """Cut each input along dimension 0 into equal parts, one for each replica."""
        parts = [tensor.chunk(len(self._shells)) for tensor in inputs]
        return tuple(zip(*parts, strict=True)), ()

    def replicate(self, module: nn.Module, device_ids: Any) -> Any:
        """Differentiable clones of the parameters, so that gradients flow back and add up.

        Replica 0 works on the module's own buffers, as on a real first device: of the running
        statistics of BatchNorm only its part of the batch counts.
        """
        return [self._lend(module, number) for number in range(len(self._shells))]

    def _lend(self, module: nn.Module, number: int) -> Lent:
        # One clone of each, also where a module has a tensor under several names.
        clones = {id(parameter): parameter.clone() for parameter in module.parameters()}
        for buffer in module.buffers():
            clones[id(buffer)] = buffer.clone() if number else buffer
        names = (
            *module.named_parameters(remove_duplicate=False),
            *module.named_buffers(remove_duplicate=False),
        )
        return self._shells[number], {name: clones[id(tensor)] for name, tensor in names}

    def parallel_apply(self, replicas: Any, inputs: Any, kwargs: Any) -> list[Any]:
        """Run every replica on its part, each in its own thread."""
        grad_enabled = torch.is_grad_enabled()  # thread-local, so it must be handed on

        def apply(replica: Lent, part: tuple[Tensor, ...]) -> Any:
            with torch.set_grad_enabled(grad_enabled):
                return functional_call(*replica, part)

        return list(self._threads.map(apply, replicas, inputs))

    def gather(self, outputs: Any, output_device: Any) -> tuple[Tensor, ...]:
        """Join each output of the replicas along dimension 0."""
        return tuple(torch.cat(parts) for parts in zip(*outputs, strict=True))
