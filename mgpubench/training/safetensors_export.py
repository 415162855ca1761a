"""Writing the weights of a checkpoint as a safetensors file, for other programs."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from mgpubench.errors import RequestRefused
from mgpubench.results.whole_file import check_new_file, write_whole
from mgpubench.training.checkpoint import load


def export_safetensors(checkpoint: Path, file: Path) -> None:
    """Write the tensors of a checkpoint's model, with what it is of as metadata `about`.

    Raises:
        RequestRefused: if safetensors is not installed, if the checkpoint cannot be read, or if the
            file exists or cannot be written.
    """
    try:
        import safetensors.torch
    except ImportError as error:
        raise RequestRefused(
            "export needs the package safetensors, which is not installed",
            "Install it: pip install safetensors",
        ) from error
    check_new_file(file)
    content = load(checkpoint)
    # The format holds no two tensors in the same memory, which a model with tied weights has.
    tensors = {
        name: tensor.clone(memory_format=torch.contiguous_format)
        for name, tensor in content.model.items()
        if isinstance(tensor, Tensor)
    }
    about = {"format": "pt", "about": content.about.to_json()}
    try:
        with write_whole(file) as written:
            written.write(safetensors.torch.save(tensors, about))
    except OSError as error:
        raise RequestRefused(
            f"{file} cannot be written: {error.strerror}", "Name another file, or make room."
        ) from error
