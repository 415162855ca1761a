"""Asking NVML in a thread of its own, because a call may hang in the driver and never return."""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue

from mgpubench.machine.nvml import GpuFigures, NvmlGpu, NvmlUnavailable, open_nvml

NO_ANSWER = "NVML does not answer"

LATE_ANSWER_S = 0.02
"""How long to wait for a thread that has already missed its time once."""


class GpuThread:
    """The figures of all GPUs, or the reason why there are none."""

    def __init__(self) -> None:
        self.why_none = ""
        """Why there are no figures of GPUs; empty if there are, or if nothing is known yet."""
        self._questions: SimpleQueue[None] = SimpleQueue()
        self._answers: SimpleQueue[list[GpuFigures] | str] = SimpleQueue()
        self._is_asked = False
        self._uuids: list[str] = []
        threading.Thread(target=self._work, name="nvml", daemon=True).start()

    def figures(self, timeout_s: float) -> list[GpuFigures]:
        """The figures now, or a late answer to an earlier question.

        If there is no answer in time, GPUs that have answered before have an error and no figures.
        """
        if self.why_none and self.why_none != NO_ANSWER:
            return []
        if self._is_asked:
            timeout_s = min(timeout_s, LATE_ANSWER_S)
        else:
            self._questions.put(None)
            self._is_asked = True
        try:
            answer = self._answers.get(timeout=timeout_s)
        except Empty:
            self.why_none = "" if self._uuids else NO_ANSWER
            return [GpuFigures(uuid=uuid, error=NO_ANSWER) for uuid in self._uuids]
        self._is_asked = False
        if isinstance(answer, str):
            self.why_none = answer
            return []
        self.why_none = ""
        self._uuids = [gpu.uuid for gpu in answer]
        return answer

    def _work(self) -> None:
        """Open NVML, which takes seconds without persistence mode, and answer each question."""
        self._questions.get()
        try:
            gpus = open_nvml()
        except NvmlUnavailable as error:
            self._answers.put(str(error))
            return
        self._answers.put(_ask(gpus))
        while True:
            self._questions.get()
            self._answers.put(_ask(gpus))


def _ask(gpus: list[NvmlGpu]) -> list[GpuFigures] | str:
    return [gpu.figures() for gpu in gpus] or "NVML sees no GPU"
