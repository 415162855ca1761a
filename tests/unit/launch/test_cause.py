"""The one cause among all the errors that followed from it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from mgpubench.errors import BenchError, RequestRefused, RunFailed
from mgpubench.launch.cause import Exit, find_cause
from mgpubench.launch.worker import Failure
from mgpubench.machine.host import SharedMemory
from tests.conftest import make_cpu_config

PEER = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer"


def raised(
    rank: int,
    message: str,
    at_s: float = 1.0,
    error_type: str = "RuntimeError",
    refusal: BenchError | None = None,
) -> Exit:
    """A rank that left its error behind."""
    failure = Failure(at_s, error_type, message, f"traceback of rank {rank}", refusal)
    return Exit(rank=rank, pid=100 + rank, exit_code=1, failure=failure, log="")


def ended(rank: int, exit_code: int) -> Exit:
    """A rank that left nothing but its output."""
    return Exit(rank, 100 + rank, exit_code, failure=None, log=f"output of rank {rank}")


def cause(*exits: Exit) -> BenchError:
    return find_cause(exits, "ddp x4")


def test_a_signal_comes_first() -> None:
    error = cause(raised(0, "first", at_s=0.1), ended(1, 3), ended(2, -9))
    assert error.message == "ddp x4: rank 2 (pid 102) was killed by signal 9 (SIGKILL)"
    assert "dmesg" in error.hint
    assert isinstance(error, RunFailed)
    assert error.details == "output of rank 2"
    assert error.exit_code == 1


def test_another_signal_has_no_hint_about_memory() -> None:
    error = cause(ended(0, -11))
    assert error.message == "ddp x4: rank 0 (pid 100) was killed by signal 11 (SIGSEGV)"
    assert error.hint == "--verbose shows what it printed last."


def test_a_signal_without_a_name_has_its_number() -> None:
    assert "was killed by signal 40 (" in cause(ended(0, -40)).message


@pytest.mark.parametrize("exit_code", [0, 3])
def test_an_exit_without_a_record_comes_before_errors(exit_code: int) -> None:
    error = cause(raised(0, "first", at_s=0.1), ended(1, exit_code))
    assert error.message == (
        f"ddp x4: rank 1 (pid 101) exited with code {exit_code} without leaving a record"
    )
    assert "--verbose" in error.hint
    assert isinstance(error, RunFailed)
    assert error.details == "output of rank 1"


def test_of_errors_the_earliest_counts() -> None:
    error = cause(raised(0, "echo", 2.0), raised(1, "cause", 1.0, "ValueError"))
    assert error.message == "ddp x4: rank 1: ValueError: cause"
    assert isinstance(error, RunFailed)
    assert error.details == "traceback of rank 1"


@pytest.mark.parametrize(
    "complaint",
    [
        PEER,
        "Connection reset by peer",
        "[Errno 32] Broken pipe",
        "NCCL error: ncclRemoteError: A call failed possibly due to a network error",
        "Timed out waiting 1800000ms for recv operation to complete",
        "connection refused",
    ],
)
def test_an_earlier_error_about_a_peer_is_only_an_echo(complaint: str) -> None:
    error = cause(raised(0, complaint, 1.0), raised(1, "cause", 5.0))
    assert error.message == "ddp x4: rank 1: RuntimeError: cause"


def test_an_error_about_a_peer_is_better_than_nothing() -> None:
    error = cause(raised(0, PEER, 2.0), raised(1, PEER, 1.0))
    assert error.message == f"ddp x4: rank 1: RuntimeError: {PEER}"


def test_an_error_in_a_loader_worker_is_reduced_to_its_last_line() -> None:
    message = """Caught RuntimeError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "worker.py", line 349, in _worker_loop
    data = fetcher.fetch(index)
RuntimeError: cannot read image photos/cat/0.jpg: it is not an image

"""
    assert cause(raised(0, message)).message == (
        "ddp x4: rank 0: RuntimeError: cannot read image photos/cat/0.jpg: it is not an image"
    )


def test_of_other_messages_the_first_line_is_shown() -> None:
    error = cause(raised(0, "\nwhat happened\nException raised from x at y.cpp:1\nframe #0"))
    assert error.message == "ddp x4: rank 0: RuntimeError: what happened"


NCCL = """NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, {kind} (run with \
NCCL_DEBUG=INFO for details), NCCL version 2.30.7
{kind}: what it is in general.
Last error:
{reason}
"""
DEVICE_ASSERT = """CUDA error: device-side assert triggered
Search for `cudaErrorAssert' in the documentation for more information.
CUDA kernel errors might be asynchronously reported at some other API call.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""


def test_nccls_own_reason_is_shown_where_there_is_one() -> None:
    reason = "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1c000"
    with_reason = NCCL.format(kind="ncclInvalidUsage", reason=reason)
    error = cause(raised(0, with_reason, error_type="DistBackendError"))
    assert error.message == f"ddp x4: rank 0: DistBackendError: NCCL: {reason}"
    without = NCCL.format(kind="ncclSystemError", reason="\nException raised from x at y.cpp:1")
    error = cause(raised(0, without, error_type="DistBackendError"))
    assert error.message.startswith("ddp x4: rank 0: DistBackendError: NCCL error in: ")


def test_another_last_error_is_not_nccls() -> None:
    error = cause(raised(0, "sync failed\nLast error: disk quota exceeded"))
    assert error.message == "ddp x4: rank 0: RuntimeError: sync failed"


def test_a_line_of_code_that_mentions_cuda_is_no_cuda_error() -> None:
    message = """Caught KeyError in replica 1.
Original Traceback (most recent call last):
    raise KeyError("CUDA error: expected")
KeyError: 'expected'
"""
    assert cause(raised(0, message, error_type="KeyError")).message == (
        "ddp x4: rank 0: KeyError: 'expected'"
    )


def test_a_folder_of_bad_images_has_a_hint() -> None:
    error = cause(raised(0, "none of the 20 images of the folder can be read"))
    assert "are these images at all?" in error.hint


def test_the_hint_for_nccl_does_not_mention_loader_workers() -> None:
    reason = "Error: failed to extend /dev/shm/nccl-8X to 9637892 bytes"
    error = failed(NCCL.format(kind="ncclSystemError", reason=reason))
    assert error.message.startswith("ddp x4: rank 0: /dev/shm (")
    assert reason in error.message
    assert "--shm-size" in error.hint
    assert "--workers-per-gpu" not in error.hint


@pytest.mark.parametrize(
    "wrap", ["{}", "Caught X in replica 1.\nOriginal Traceback (most):\nX: {}"]
)
def test_of_a_cuda_error_the_reason_is_shown_and_not_the_advice_below_it(wrap: str) -> None:
    error = cause(raised(0, wrap.format(DEVICE_ASSERT), error_type="AcceleratorError"))
    assert error.message == (
        "ddp x4: rank 0: AcceleratorError: CUDA error: device-side assert triggered"
    )


def test_of_a_rank_that_was_aborted_after_its_error_the_error_is_shown() -> None:
    """NCCL's watchdog ends a process with a CUDA error, perhaps before it has ended."""
    aborted = replace(raised(1, DEVICE_ASSERT, error_type="AcceleratorError"), exit_code=-6)
    error = cause(raised(0, PEER, 0.5), aborted, ended(2, -6))
    assert error.message == (
        "ddp x4: rank 1: AcceleratorError: CUDA error: device-side assert triggered"
    )


def test_of_a_rank_that_was_aborted_without_a_record_the_output_is_shown() -> None:
    aborted = replace(ended(1, -6), log=f"[rank1]: terminate called\n{DEVICE_ASSERT}frame #0")
    assert cause(aborted, raised(0, PEER)).message == (
        "ddp x4: rank 1 (pid 101) was killed by signal 6 (SIGABRT): "
        "CUDA error: device-side assert triggered"
    )


@pytest.mark.parametrize(
    "message",
    [
        "FIND was unable to find an engine to execute this computation",
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
    ],
)
def test_a_workspace_that_does_not_fit_has_a_hint(message: str) -> None:
    assert "--batch-per-gpu" in cause(raised(0, message)).hint


def test_an_error_without_a_message_is_named_by_its_type() -> None:
    assert cause(raised(0, "", error_type="KeyError")).message == "ddp x4: rank 0: KeyError"


@pytest.mark.parametrize(
    ("message", "error_type"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB.", "OutOfMemoryError"),
        ("anything", "OutOfMemoryError"),
        ("DefaultCPUAllocator: can't allocate memory: you tried", "RuntimeError"),
        ("std::bad_alloc", "MemoryError"),
        ("Unable to allocate 3.0 GiB for an array with shape (9, 9)", "_ArrayMemoryError"),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate", "RuntimeError"),
    ],
)
def test_out_of_memory_has_its_own_message_and_hint(message: str, error_type: str) -> None:
    error = cause(raised(0, message, error_type=error_type))
    assert error.message == f"ddp x4: rank 0: {error_type}: out of memory: {message}"
    assert error.hint == "Use a smaller --batch-per-gpu or --image-size."


def test_a_memory_error_without_a_message_is_named() -> None:
    error = cause(raised(0, "", error_type="MemoryError"))
    assert error.message == "ddp x4: rank 0: MemoryError: out of memory"


WRAPPED = """Caught {type} in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "loader.py", line 1, in work
{type}: {message}
"""


@pytest.mark.parametrize(
    ("error_type", "message", "words"),
    [
        ("UnreadableImage", "cannot read image photos/cat/0.jpg: no image", "--skip-bad-images"),
        ("OSError", "[Errno 24] Too many open files", "ulimit -n"),
        ("MemoryError", "", "--batch-per-gpu"),
        ("ValueError", "wrong", "--verbose"),
    ],
)
def test_an_error_in_a_loader_worker_has_the_hint_of_that_error(
    error_type: str, message: str, words: str
) -> None:
    wrapped = WRAPPED.format(type=error_type, message=message)
    assert words in cause(raised(0, wrapped, error_type=error_type)).hint


@pytest.mark.parametrize(
    "message",
    [
        "DataLoader worker (pid 7) is killed by signal: Killed. ",
        "a DataLoader worker was killed by signal 9 (SIGKILL)",
    ],
)
def test_a_loader_worker_that_was_killed_may_have_been_too_large(message: str) -> None:
    assert "dmesg" in cause(raised(0, message)).hint


def test_an_error_of_ours_is_raised_as_it_was() -> None:
    refusal = RequestRefused("--model x is not known", "Known: y.")
    assert cause(raised(0, str(refusal), refusal=refusal)) is refusal


def has_shared_memory(monkeypatch: pytest.MonkeyPatch, size_bytes: int | None) -> None:
    found = SharedMemory(size_bytes, size_bytes, is_writable=True)
    monkeypatch.setattr("mgpubench.launch.cause.shared_memory", lambda: found)


BUS_ERRORS = [
    "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's "
    "workers are out of shared memory. Please try to raise your shared memory limit.",
    "a DataLoader worker was killed by signal 7 (SIGBUS)",
]


@pytest.mark.parametrize("message", BUS_ERRORS)
def test_a_bus_error_points_to_shared_memory_where_that_is_small(
    monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    has_shared_memory(monkeypatch, 64 * 2**20)
    error = cause(ended(0, -7))
    assert "signal 7 (SIGBUS)" in error.message
    assert "/dev/shm may be full" in error.hint
    error = cause(raised(0, message))
    assert error.message.startswith("ddp x4: rank 0: /dev/shm (64 MB) is too small: ")


@pytest.mark.parametrize("size_bytes", [2**30, 23 * 2**30, None])
@pytest.mark.parametrize("message", BUS_ERRORS)
def test_a_bus_error_says_nothing_about_a_large_shared_memory(
    monkeypatch: pytest.MonkeyPatch, message: str, size_bytes: int | None
) -> None:
    """A file may have been truncated, or the memory be bad: nobody has seen which."""
    has_shared_memory(monkeypatch, size_bytes)
    for error in (cause(ended(0, -7)), cause(raised(0, message))):
        assert "SIGBUS" in error.message or "Bus error" in error.message
        assert "too small" not in error.message
        assert not re.search("shm|memory ran out", error.hint)


@pytest.mark.parametrize("signal_words", ["signal 11 (SIGSEGV)", "signal 6 (SIGABRT)"])
def test_a_loader_worker_that_crashed_was_not_out_of_memory(signal_words: str) -> None:
    error = cause(raised(0, f"a DataLoader worker was killed by {signal_words}"))
    assert signal_words in error.message
    assert "memory" not in error.hint


def test_the_hint_names_the_options_that_were_given_with_their_values() -> None:
    """With --global-batch, --batch-per-gpu is not the option to change."""
    exits = [raised(0, "CUDA out of memory.", error_type="OutOfMemoryError")]
    sizes = make_cpu_config(
        scaling="strong", num_devices=4, batch_per_device=16, accumulate=2, image_size=224
    ).sizes
    assert find_cause(exits, "dp x4", sizes).hint == (
        "Use less than --global-batch 64 or --image-size 224."
    )
    sizes = make_cpu_config(batch_per_device=16, accumulate=2, image_size=224).sizes
    hint = find_cause([raised(0, "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR")], "dp", sizes).hint
    assert "try less than --batch-per-gpu 8 or --image-size 224." in hint


def failed(message: str, details: str = "") -> BenchError:
    failure = Failure(1.0, "OSError", message, details, None)
    return cause(Exit(rank=0, pid=100, exit_code=1, failure=failure, log=""))


@pytest.mark.parametrize(
    ("message", "details"),
    [
        ("unable to allocate shared memory(shm) for file </t>: No space left on device (28)", ""),
        (
            "unable to open shared memory object </t>: No space left on device (28)",
            "",
        ),
        ("Error while creating shared memory segment /dev/shm/nccl-8X (size 9637888)", ""),
        ("[Errno 30] Read-only file system", "in SemLock.__init__"),
    ],
)
def test_errors_of_shared_memory_name_it_and_what_helps(message: str, details: str) -> None:
    """C12."""
    error = failed(message, details)
    assert error.message.startswith("ddp x4: rank 0: /dev/shm (")
    assert "--workers-per-gpu 0" in error.hint
    assert "--shm-size" in error.hint


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("out of resource: shared memory, Required: 147456, Hardware limit: 101376", "--verbose"),
        ("unable to open shared memory object </t>: Too many open files (24)", "ulimit -n"),
        ("[Errno 28] No space left on device", "--verbose"),
    ],
)
def test_what_only_sounds_like_it_is_something_else(message: str, words: str) -> None:
    error = failed(message)
    assert "/dev/shm" not in error.message
    assert words in error.hint


def test_a_parameter_without_gradient_gets_the_option_that_helps_as_a_hint() -> None:
    """C52."""
    words = "Expected to have finished reduction in the prior iteration before starting a new one."
    assert "--find-unused-parameters" in cause(raised(1, words)).hint


def test_a_parameter_without_data_has_a_hint() -> None:
    words = "Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() instead"
    assert "parameters without data" in cause(raised(0, words)).hint


def test_a_replica_with_a_tensor_left_behind_gets_a_hint_about_buffers() -> None:
    """Only in a replica: elsewhere the same words have another reason."""
    words = (
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 "
        "and cuda:1!"
    )
    replica = f"Caught RuntimeError in replica 1 on device 1.\nOriginal Traceback\n{words}"
    assert "register_buffer" in cause(raised(0, replica)).hint
    assert words in cause(raised(0, replica)).message
    assert "register_buffer" not in cause(raised(0, words)).hint
