"""DataParallel's phases on CPU replicas, so that its code path can be tested without GPUs.

On a CPU torch.nn.DataParallel ignores its devices and just calls the module. Here the same phases
(scatter, replicate, parallel apply, gather) really run, in threads that share the cores. This shows
that the tool works and that the gradients are right. It says nothing about the speed of GPUs, whose
backward passes, for example, run at the same time, and here in one thread.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from mgpubench.errors import RunFailed
from mgpubench.format import message_of


def wrap_on_cpu(module: nn.Module, num_replicas: int) -> nn.Module:
    """Replicas in threads. For one replica it is torch's DataParallel, which calls the module."""
    return nn.DataParallel(module) if num_replicas == 1 else CpuReplicas(module, num_replicas)


def _make_shell(module: nn.Module) -> nn.Module:
    """A copy of the module's structure, without numbers, which gets its tensors in every step.

    Raises:
        RunFailed: if the module cannot be copied, or cannot be given other tensors.
    """
    if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        raise _cannot_copy("it is a ScriptModule")
    try:
        return copy.deepcopy(module).to("meta")
    except MemoryError:
        raise
    # A user's model may contain anything.
    except Exception as error:
        raise _cannot_copy(f"{type(error).__name__}: {message_of(error)}") from error


def _cannot_copy(reason: str) -> RunFailed:
    return RunFailed(
        f"dp on a CPU cannot copy this model: {reason}",
        "On a CPU dp runs our own replicas, and on GPUs torch's. Leave dp out here: "
        "--mode single,ddp",
    )


class CpuReplicas(nn.DataParallel[nn.Module]):
    """A module run as several replicas, each on a part of the batch.

    These are DataParallel's own methods, overridden because torch's need an accelerator.
    """

    def __init__(self, module: nn.Module, num_replicas: int) -> None:
        super().__init__(module)
        self._shells = [_make_shell(module) for _ in range(num_replicas)]
        threads_each = max(1, torch.get_num_threads() // num_replicas)
        self._threads = ThreadPoolExecutor(
            num_replicas, initializer=torch.set_num_threads, initargs=(threads_each,)
        )

    def forward(self, *inputs: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        """Main and auxiliary logits of the whole batch, in its order."""
        chunks, _ = self.scatter(inputs, kwargs, self.device_ids)
        replicas = self.replicate(self.module, self.device_ids)
        return self.gather(self.parallel_apply(replicas, chunks, None), None)

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Sequence[Any]) -> Any:
        """Cut each input along dimension 0 into equal parts, one for each replica."""
        parts = [tensor.chunk(len(self._shells)) for tensor in inputs]
        return tuple(zip(*parts, strict=True)), ()

    def replicate(self, module: nn.Module, device_ids: Any) -> Any:
        """Differentiable clones of the parameters, so that gradients flow back and add up.

        Replica 0 uses the module's own buffers, as on a real first device: the running statistics
        of BatchNorm come only from its part of the batch.
        """
        return [self._lend(module, number) for number in range(len(self._shells))]

    def _lend(self, module: nn.Module, number: int) -> nn.Module:
        """A shell that keeps the tensors of this step until the next one.

        Not only for the forward pass: with checkpointing, backward runs parts of it again.
        """
        # One clone of each, even if a module has a tensor under several names.
        clones = {id(parameter): parameter.clone() for parameter in module.parameters()}
        for buffer in module.buffers():
            clones[id(buffer)] = buffer.clone() if number else buffer
        shell = self._shells[number]
        for part, own in zip(shell.modules(), module.modules(), strict=True):
            # Not as attributes: torch allows only leaves to be parameters.
            for lent, tensors in (
                (part._parameters, own._parameters),
                (part._buffers, own._buffers),
            ):
                for name, tensor in tensors.items():
                    lent[name] = None if tensor is None else clones[id(tensor)]  # type: ignore[assignment]
        return shell

    def parallel_apply(self, replicas: Any, inputs: Any, kwargs: Any) -> list[Any]:
        """Run every replica on its part, each in its own thread."""
        grad_enabled = torch.is_grad_enabled()  # thread-local, so it must be passed on

        def apply(replica: nn.Module, part: tuple[Tensor, ...]) -> Any:
            with torch.set_grad_enabled(grad_enabled):
                return replica(*part)

        return list(self._threads.map(apply, replicas, inputs))

    def gather(self, outputs: Any, output_device: Any) -> tuple[Tensor, ...]:
        """Join each output of the replicas along dimension 0."""
        return tuple(torch.cat(parts) for parts in zip(*outputs, strict=True))
