"""The digest of a model of the user's own: another one for other work, and not otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from torch import Tensor, nn

from mgpubench.training.models.architecture import digest_of


class Own(nn.Module):
    """A layer of somebody's own, with something to change."""

    def __init__(self, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, stride=stride)

    def forward(self, images: Tensor) -> Tensor:
        # A set of constants, which lies in another order in each process.
        kind = "deep" if images.dim() in {3, 4} else "flat"
        return self.conv(images).relu() if kind in {"deep", "other", "third"} else images


class Edited(Own):
    """The same parameters, and other work."""

    def forward(self, images: Tensor) -> Tensor:
        return self.conv(self.conv(images)).relu()


def test_a_model_that_was_edited_has_another_digest_though_its_size_is_the_same() -> None:
    # As if the class itself had been edited: its name says nothing.
    edited = type("Own", (nn.Module,), {**vars(Own), "forward": Edited.forward})
    conv = Own().conv
    assert repr(Own(stride=2)) != repr(Own())
    digests = {digest_of(Own()), digest_of(Own(stride=2)), digest_of(edited_like(edited, conv))}
    assert len(digests) == 3
    assert digest_of(Own()) == digest_of(Own())


def edited_like(kind: type, conv: nn.Module) -> nn.Module:
    model: nn.Module = kind.__new__(kind)
    nn.Module.__init__(model)
    model.conv = conv
    return model


def test_a_digest_is_the_same_in_every_process() -> None:
    code = "from tests.integration.test_architecture import *; print(digest_of(Own()))"
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.strip() == digest_of(Own())
