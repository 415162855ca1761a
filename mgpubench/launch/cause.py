"""Why a run failed: the one cause among all the errors that followed from it."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mgpubench.errors import BenchError, RunFailed
from mgpubench.format import format_count, format_size, shorten, signal_name
from mgpubench.launch.worker import Failure
from mgpubench.machine.host import SharedMemory, shared_memory

_PEER_TROUBLE = re.compile(
    r"closed by peer|reset by peer|broken pipe|socket closed|peer closed|remote process exited"
    r"|gloo/transport|ncclRemoteError|connection refused|Timed out waiting",
    re.IGNORECASE,
)
"""What a healthy rank says when another one is gone."""

UNSEEN_EXIT_CODE = 255
"""The exit code that multiprocessing gives to a process whose fork server is gone."""

_SHARED_MEMORY = re.compile(
    r"shared memory\(shm\).*No space left|shared memory object.*(No space left|Read-only)"
    r"|shared memory segment /dev/shm|failed to extend /dev/shm"
)
"""What torch, its loaders and NCCL say if /dev/shm is full or read-only.

Triton's messages about the shared memory of a GPU do not match.
"""

_SEMAPHORE = re.compile(r"Read-only file system|No space left on device")
"""What multiprocessing says then, when it makes its semaphores there (SemLock)."""

_BUS_ERROR = re.compile(r"killed by signal( 7\b|: Bus error)")
"""What torch says of a loader worker, and guesses that /dev/shm is too small."""

SMALL_SHARED_MEMORY_BYTES = 2**30
"""The loaders of a few GPUs may fill a /dev/shm of this size. A container has 64 MB."""

MORE_SHARED_MEMORY = "more shared memory: docker run --shm-size=8g, or --ipc=host."
SHARED_MEMORY_HINT = f"Use --workers-per-gpu 0, or {MORE_SHARED_MEMORY}"

OUT_OF_MEMORY_KILL_HINT = (
    "If you did not kill it, the kernel may have, because memory ran out: see dmesg."
)

_OUT_OF_MEMORY = re.compile(
    r"out of memory|can't allocate memory|cannot allocate memory|bad_alloc"
    r"|unable to allocate [\d.]+ .iB|STATUS_ALLOC_FAILED",
    re.IGNORECASE,
)
_MEMORY_ERRORS = ("OutOfMemoryError", "MemoryError", "_ArrayMemoryError")
"""Their messages may be empty."""

_HINTS = (
    (
        re.compile("Too many open files|received 0 items of ancdata"),
        "Raise the limit (ulimit -n 65536), or use fewer --workers-per-gpu.",
    ),
    (
        re.compile("Cannot copy out of meta tensor"),
        "The model has parameters without data (device='meta'): fill them before you return it.",
    ),
    (
        re.compile("File too large"),
        "Raise the limit on the size of files: ulimit -f unlimited.",
    ),
    (
        re.compile("in a format that Pillow cannot read"),
        "Convert it to JPEG or PNG, or use other images instead of such ones: --skip-bad-images.",
    ),
    (
        re.compile("cannot read image "),
        "Repair or remove it, or use other images instead of unreadable ones: --skip-bad-images.",
    ),
    (
        re.compile(r"none of the \d+ images of the folder can be read"),
        "Look at one of them: are these images at all?",
    ),
    (
        re.compile("Unable to find address for: lo"),
        "The loopback interface is down, and the ranks connect through it: ip link set lo up.",
    ),
    (
        re.compile(r"DataLoader worker.*killed by signal( 9\b|: Killed)"),
        OUT_OF_MEMORY_KILL_HINT,
    ),
    (
        re.compile(r"DataLoader worker.*(killed by signal|exited unexpectedly)"),
        "dmesg may say why. With --workers-per-gpu 0 the rank loads by itself, and shows more.",
    ),
    (
        # DistributedDataParallel says so in the second step if a parameter got no gradient.
        re.compile("Expected to have finished reduction in the prior iteration"),
        "Some parameters got no gradient; try --find-unused-parameters.",
    ),
    (
        # On one device this goes well, and so it does in the first replica of DataParallel.
        re.compile(
            r"in replica \d+ on device.*Expected all tensors to be on the same device", re.DOTALL
        ),
        "DataParallel copies only parameters and buffers: make each other tensor of the model a "
        "buffer (register_buffer), or leave dp out: --mode single,ddp",
    ),
    (
        # cuDNN and cuBLAS have no error of their own for a workspace that does not fit.
        re.compile(
            "unable to find an engine to execute"
            "|CUBLAS_STATUS_NOT_INITIALIZED|CUDNN_STATUS_INTERNAL_ERROR"
        ),
        "Often the GPU's memory is full: try {smaller}.",
    ),
)
"""Patterns of error messages with hints. The first one that matches is used; `{smaller}` is what
needs less memory."""

_CUDA_ERROR = re.compile(r"^(?:[\w.]+: )?((?:CUDA error: |NCCL error).*)", re.MULTILINE)
"""The line with the reason. The lines below it are about debugging."""

_NCCL_REASON = re.compile(r"^Last error:[ \t]*\n?(\S.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Exit:
    """How one worker ended by itself, before it was ended."""

    rank: int
    pid: int
    exit_code: int
    """If negative, minus the signal that killed it."""
    failure: Failure | None
    log: str
    """The last part of what the process printed."""


def find_cause(exits: Sequence[Exit], label: str, sizes: str = "") -> BenchError:
    """The error to show for a job whose workers ended like this.

    `sizes` names the options that decide how much memory it needs, with their values.

    A signal comes first: the killed rank left no record, and the errors of the others follow from
    it. Then comes an exit without a record, and then the earliest error. An error about a peer
    comes last. An abort comes just before that: NCCL's watchdog aborts a healthy rank that waits
    for a failed one. It also aborts a rank with a CUDA error, which may have left its record.
    """
    cause = min(exits, key=order_of)
    was_aborted = cause.exit_code == -signal.SIGABRT
    if cause.failure is not None and (was_aborted or cause.exit_code >= 0):
        return _raised(cause, cause.failure, label, sizes)
    return _killed(cause, label) if cause.exit_code < 0 else _silent(cause, label)


Explain = Callable[[Sequence[Exit], str], BenchError]
"""Finds the error to show for workers that have failed, and for the label of their job."""


class RanksFailed(BenchError):
    """Ranks of a run on several machines have failed on this one. Node 0 finds the cause."""

    def __init__(self, exits: Sequence[Exit], label: str) -> None:
        super().__init__(f"{label}: {format_count(len(exits), 'rank')} failed")
        self.exits = tuple(exits)


def order_of(an_exit: Exit) -> tuple[int, float]:
    """Sorts the exits of one machine: the cause comes first, and what followed from it last."""
    failure = an_exit.failure
    was_aborted = an_exit.exit_code == -signal.SIGABRT
    if an_exit.exit_code < 0 and not was_aborted:
        return 0, 0.0
    if failure is None:
        return (3 if was_aborted else 1), 0.0
    return (4 if _PEER_TROUBLE.search(failure.message) else 2), failure.at_s


def _killed(an_exit: Exit, label: str) -> RunFailed:
    number = -an_exit.exit_code
    hint = "--verbose shows what it printed last."
    if number == signal.SIGKILL:
        hint = OUT_OF_MEMORY_KILL_HINT
    if number == signal.SIGBUS and _is_small(shared_memory()):
        hint = f"/dev/shm may be full. {SHARED_MEMORY_HINT}"
    last_words = _CUDA_ERROR.search(an_exit.log) if number == signal.SIGABRT else None
    return RunFailed(
        f"{label}: rank {an_exit.rank} (pid {an_exit.pid}) was killed by signal {number} "
        f"({signal_name(number)})" + (f": {shorten(last_words.group(1))}" if last_words else ""),
        hint,
        an_exit.log,
    )


def _silent(an_exit: Exit, label: str) -> RunFailed:
    hint = "Something in the process called exit; --verbose shows what it printed."
    if an_exit.exit_code == UNSEEN_EXIT_CODE:
        hint = "How it ended is unknown: was the fork server killed that had started it?"
    return RunFailed(
        f"{label}: rank {an_exit.rank} (pid {an_exit.pid}) exited with code {an_exit.exit_code} "
        "without leaving a record",
        hint,
        an_exit.log,
    )


def _raised(an_exit: Exit, failure: Failure, label: str, sizes: str) -> BenchError:
    if failure.refusal is not None:
        return failure.refusal
    if _lacks_shared_memory(failure):
        return _no_shared_memory(an_exit, failure, label)
    words = [failure.error_type, shorten(_telling_line(failure.message))]
    smaller = f"less than {sizes}" if sizes else "a smaller --batch-per-gpu or --image-size"
    hint = next(
        (hint for pattern, hint in _HINTS if pattern.search(failure.message)),
        "Run again with --verbose for the traceback.",
    ).format(smaller=smaller)
    if _OUT_OF_MEMORY.search(failure.message) or failure.error_type in _MEMORY_ERRORS:
        words.insert(1, "out of memory")
        hint = f"Use {smaller}."
    error = ": ".join(word for word in words if word)
    return RunFailed(f"{label}: rank {an_exit.rank}: {error}", hint, failure.details)


def _lacks_shared_memory(failure: Failure) -> bool:
    made_semaphores = "SemLock" in failure.details and _SEMAPHORE.search(failure.message)
    if _SHARED_MEMORY.search(failure.message) or made_semaphores:
        return True
    return bool(_BUS_ERROR.search(failure.message)) and _is_small(shared_memory())


def _is_small(found: SharedMemory | None) -> bool:
    """True if loaders may have filled it, as far as it is known."""
    if found is None or found.size_bytes is None:
        return False
    return found.size_bytes < SMALL_SHARED_MEMORY_BYTES


def _no_shared_memory(an_exit: Exit, failure: Failure, label: str) -> RunFailed:
    found = shared_memory()
    if found is None:
        what = "is missing"
    elif found.is_writable:
        what = f"({format_size(found.size_bytes)}) is too small"
    else:
        what = "cannot be written"
    return RunFailed(
        f"{label}: rank {an_exit.rank}: /dev/shm {what}: {_telling_line(failure.message)}",
        f"Use {MORE_SHARED_MEMORY}" if "NCCL" in failure.message else SHARED_MEMORY_HINT,
        failure.details,
    )


def _telling_line(message: str) -> str:
    """The line that says what happened. In an error from a loader worker it is the last one."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if not lines:
        return ""
    if "NCCL error" in message and (reason := _NCCL_REASON.search(message)):
        return f"NCCL: {reason.group(1)}"
    if found := _CUDA_ERROR.search(message):
        return found.group(1)
    if "Original Traceback" in message:
        return re.sub(r"^([\w.]+\.\w+|\w+(Error|Exception)): ", "", lines[-1])
    # Not half of a sentence that continues on the next line.
    whole = re.match(r".*[.!?](?= )", lines[0]) if len(lines) > 1 else None
    return whole.group() if whole and lines[0][-1].isalpha() else lines[0]
