"""The loss of a rank now and then, read without waiting for the device.

The sum stays on the device. At the end of a line it is copied to pinned memory, behind the work
that makes it, and an event marks the end of the copy. A later step finds the event done, and leaves
the line for the parent, which averages over the ranks: no collective is needed. On a CPU the sum is
there at once.
"""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from mgpubench.launch.loss_lines import LossLine, LossWriter
from mgpubench.training.devices import Part

NUM_COPIES = 64
"""Lines that may be on their way at once. A GPU is not so many steps behind the host: its queue
holds some 1,000 kernels."""


class LossLog:
    """Sums the loss of a rank, and leaves a line for the parent every so many steps."""

    def __init__(self, part: Part) -> None:
        on_cuda = part.device.type == "cuda"
        self._every = part.config.log_every
        self._writer = LossWriter(part.losses)
        self._sum = torch.zeros((), dtype=torch.float64, device=part.device)
        self._copies = torch.zeros(NUM_COPIES, dtype=torch.float64, pin_memory=on_cuda)
        self._events = [torch.cuda.Event() for _ in range(NUM_COPIES)] if on_cuda else []
        # CUDA creates an event at its first record, which must not happen inside the window.
        for event in self._events:
            event.record()
        self._pending: deque[tuple[int, int, int]] = deque()
        """Place of the copy, step and samples of each line that is on its way."""
        self._lines = self._steps = self._steps_before = self._samples = 0

    def after_step(self, loss_sum: Tensor, samples: int) -> None:
        """Add a step: the sum of the losses of its samples, on the device, and their number."""
        self._steps += 1
        self._samples += samples
        self._sum.add_(loss_sum)
        if self._steps - self._steps_before == self._every:
            self.end_line()
        self._leave_done()

    def end_line(self) -> None:
        """End the line here, if there was a step since the last one."""
        if self._steps == self._steps_before:
            return
        if len(self._pending) == NUM_COPIES:
            self._leave_first()
        place = self._lines % NUM_COPIES
        self._copies[place].copy_(self._sum, non_blocking=True)
        if self._events:
            self._events[place].record()
        self._sum.zero_()
        self._pending.append((place, self._steps, self._samples))
        self._lines += 1
        self._steps_before, self._samples = self._steps, 0

    def finish(self) -> None:
        """Wait for the lines that are on their way, and leave them."""
        while self._pending:
            self._leave_first()

    def _leave_done(self) -> None:
        """Leave the lines that have arrived, without waiting for others."""
        while self._pending and (not self._events or self._events[self._pending[0][0]].query()):
            self._leave_first()

    def _leave_first(self) -> None:
        place, step, samples = self._pending.popleft()
        if self._events:
            self._events[place].synchronize()
        self._writer.append(LossLine(step, samples, float(self._copies[place])))
