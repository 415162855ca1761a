"""The fault matrix: what the user sees of each fault, and how soon.

Each case is one run that goes wrong, in this process except for its workers, so that all cases
share one cold start of torch.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from tests.conftest import Here
from tests.faults.cases import ENDLESS, IMAGES, TINY, Fault, Hurt, Scene, each_mode
from tests.faults.conftest import rows, statuses
from tests.processes import wait_until

pytestmark = pytest.mark.faults


def model(function: str) -> tuple[str, ...]:
    return ("--model", f"tests.hurtmodels:{function}")


def send(signum: signal.Signals) -> Hurt:
    return lambda scene: os.kill(scene.ranks[-1].pid, signum)


def stop_for_a_second(scene: Scene) -> None:
    os.kill(scene.ranks[-1].pid, signal.SIGSTOP)
    time.sleep(1)
    os.kill(scene.ranks[-1].pid, signal.SIGCONT)


def kill_a_loader_worker(scene: Scene) -> None:
    wait_until(scene.loader_workers, 20, "loader workers")
    os.kill(scene.loader_workers()[0].pid, signal.SIGKILL)


def spoil(content: bytes | None) -> Hurt:
    """Replace all images but the first by something else, or remove them."""

    def hurt(scene: Scene) -> None:
        for path in sorted(scene.photos.rglob("*.jpg"))[1:]:
            if content is None:
                path.unlink()
            else:
                path.write_bytes(content)

    return hurt


def spoil_one(photos: Path, content: bytes) -> None:
    (photos / "dog" / "0.jpg").write_bytes(content)


def remove_the_session(scene: Scene) -> None:
    shutil.rmtree(scene.out)


PEERLESS = r"error: {mode} x\d: rank \d"
FAULTS = (
    Fault(
        "the model raises in forward",
        rf"{PEERLESS}: ValueError: wrong in forward",
        options=model("raises_in_forward"),
    ),
    Fault(
        "the model raises in backward",
        rf"{PEERLESS}: ValueError: wrong in backward",
        options=model("raises_in_backward"),
    ),
    Fault(
        "the model raises on rank 1 only",
        r"error: ddp x2: rank 1: ValueError: wrong on rank 1",
        modes=("ddp",),
        options=model("raises_on_rank_1"),
    ),
    Fault(
        "the model returns nonsense in the middle of a run",
        rf"{PEERLESS}: TypeError: it returns a NoneType instead of a tensor",
        options=model("returns_nonsense"),
    ),
    Fault(
        "a rank exits with code 0 and leaves no record",
        rf"{PEERLESS} \(pid \d+\) exited with code 0 without leaving a record",
        options=model("exits_silently"),
    ),
    Fault(
        "a rank is killed (SIGKILL)",
        rf"{PEERLESS} \(pid \d+\) was killed by signal 9 \(SIGKILL\)",
        options=ENDLESS,
        hurt=send(signal.SIGKILL),
    ),
    Fault(
        "a rank crashes (SIGSEGV)",
        rf"{PEERLESS} \(pid \d+\) was killed by signal 11 \(SIGSEGV\)",
        options=ENDLESS,
        hurt=send(signal.SIGSEGV),
    ),
    Fault(
        "a rank stops and is never continued (SIGSTOP), with --timeout 8",
        r"error: {mode} x\d did not end within --timeout 8 s: \d of 5 steps done, .* a step; "
        r"the last one \d+ s ago: a rank has stopped or hangs",
        modes=("ddp",),
        options=(*model("stops"), "--timeout", 8),
    ),
    Fault(
        "the window cannot end within --timeout 20",
        r"error: {mode} x\d cannot end within --timeout 20 s: .* s a step",
        options=(*ENDLESS, "--timeout", 20),
    ),
    Fault(
        "a rank stops for a second (SIGSTOP, SIGCONT)",
        r"results: ",
        modes=("ddp",),
        options=("--steps", 400),
        hurt=stop_for_a_second,
        exit_code=0,
        statuses=("ok",),
        kept="all; the run goes on",
    ),
    Fault(
        "memory runs out (at a limit like that of ulimit -v)",
        rf"{PEERLESS}: \w+: out of memory: ",
        options=model("allocates_too_much"),
    ),
    Fault(
        "a loader worker is killed",
        rf"{PEERLESS}: RuntimeError: (a )?DataLoader worker .*(killed|exited unexpectedly)",
        modes=("single", "ddp"),
        options=(*IMAGES, *ENDLESS),
        hurt=kill_a_loader_worker,
    ),
    Fault(
        "a file that is not an image",
        rf"{PEERLESS}: UnreadableImage: cannot read image .*photos.*0\.jpg: it is not an image",
        options=(*IMAGES, *ENDLESS),
        prepare=lambda photos: spoil_one(photos, b"no image"),
    ),
    Fault(
        "an empty image",
        rf"{PEERLESS}: UnreadableImage: cannot read image .*photos.*0\.jpg: it is not an image",
        options=(*IMAGES, *ENDLESS),
        prepare=lambda photos: spoil_one(photos, b""),
    ),
    Fault(
        "a truncated image",
        rf"{PEERLESS}: UnreadableImage: cannot read image .*photos.*0\.jpg: ",
        options=(*IMAGES, *ENDLESS),
        prepare=lambda photos: spoil_one(photos, b"\xff\xd8\xff\xe0\x00\x10JFIF"),
    ),
    Fault(
        "an image that is too large to be decoded",
        rf"{PEERLESS}: UnreadableImage: .*photos.*big\.png.*179560000 pixels",
        modes=("single",),
        options=(*IMAGES, *ENDLESS),
        prepare=lambda photos: Image.new("1", (13_400, 13_400)).save(photos / "cat" / "big.png"),
    ),
    Fault(
        "a link to an image that does not exist",
        rf"{PEERLESS}: UnreadableImage: cannot read image .*photos.*gone\.jpg: .*No such file",
        modes=("single",),
        options=(*IMAGES, *ENDLESS),
        prepare=lambda photos: (photos / "dog" / "gone.jpg").symlink_to("nowhere.jpg"),
    ),
    Fault(
        "images are removed during the run",
        rf"{PEERLESS}: UnreadableImage: cannot read image .*photos.*\.jpg: .*No such file",
        modes=("single",),
        options=(*IMAGES, *ENDLESS),
        hurt=spoil(None),
    ),
    Fault(
        "images become empty during the run",
        rf"{PEERLESS}: UnreadableImage: cannot read image .*\.jpg: it is not an image",
        modes=("single",),
        options=(*IMAGES, *ENDLESS),
        hurt=spoil(b""),
    ),
    Fault(
        "images are cut short during the run",
        rf"{PEERLESS}: UnreadableImage: cannot read image .*\.jpg: ",
        modes=("ddp",),
        options=(*IMAGES, *ENDLESS),
        hurt=spoil(b"\xff\xd8\xff\xe0\x00\x10JFIF"),
    ),
    Fault(
        "the folder of the session is removed during the run",
        r"error: out/.*steps\.csv cannot be written: No such file or directory",
        modes=("single",),
        options=("--steps", 400),
        hurt=remove_the_session,
        statuses=(),
        kept="nothing: the folder was removed",
    ),
    Fault(
        "the loss is not finite",
        r"warning: {mode} x\d: the loss of rank 0 ended as nan: the speed is measured",
        options=model("loses_its_mind"),
        exit_code=0,
        statuses=("ok",),
        kept="all; the run has a finding",
    ),
)


@pytest.mark.parametrize(("fault", "mode"), each_mode(FAULTS))
def test_a_fault_is_named_and_ends_in_time(
    fault: Fault, mode: str, try_fault: Callable[[Fault, str], None]
) -> None:
    """C10, C58, C66, C72: the first cause is named, and not what the other ranks report."""
    try_fault(fault, mode)


def test_the_other_runs_of_the_plan_go_on(run_here: Callable[..., Here], tmp_path: Path) -> None:
    """The model fails on rank 1, which only DDP has."""
    command = run_here(*TINY, *model("raises_on_rank_1"), "--rounds", 2, cwd=tmp_path)
    assert command.exit_code == 1
    assert sorted((row["mode"], row["status"]) for row in rows(tmp_path)) == [
        *[("ddp", "failed")] * 2,
        *[("dp", "ok")] * 2,
        *[("single", "ok")] * 2,
    ]
    assert "error: 2 of 6 runs failed" in command.err
    assert "dp (cpu-replicas)" in command.out


def test_fail_fast_ends_the_session_at_the_first_failure(
    run_here: Callable[..., Here], tmp_path: Path
) -> None:
    options = (*model("raises_in_forward"), "--mode", "single", "--rounds", 3, "--fail-fast")
    command = run_here(*TINY, *options, cwd=tmp_path)
    assert command.exit_code == 1
    assert statuses(tmp_path) == ("failed",)
    assert (
        "note: --fail-fast: 2 runs left out; make the rest with: mgpubench run --resume"
        in command.err
    )
