"""Evaluation: how many images a model classifies correctly, each image exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from mgpubench.training.data.folder import EvaluationDataset
from mgpubench.training.data.listing import load_samples
from mgpubench.training.devices import Part
from mgpubench.training.sharding import whole_model
from mgpubench.training.technique import Wrapped

MAX_CLASSES_WITHOUT_TOP5 = 5
"""With so few classes the five likeliest ones are all of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """Images evaluated, on all ranks together."""

    samples: int
    top1: int
    """Images whose class was the likeliest."""
    top5: int | None
    """Images whose class was among the five likeliest; None with five classes or fewer."""
    unreadable: int
    """Images that could not be read, and are in no other count."""

    def shares(self) -> dict[str, Any]:
        """The figures of an evaluation under the names of their columns; unknown is None."""
        known = self.samples > 0
        return {
            "eval_samples": self.samples,
            "top1": self.top1 / self.samples if known else None,
            "top5": self.top5 / self.samples if known and self.top5 is not None else None,
        }


def evaluation_batches(part: Part, listing: Path) -> Iterator[tuple[Tensor, Tensor]]:
    """The images that this rank evaluates: every `world_size`-th one, beginning with its own."""
    config = part.config
    samples = load_samples(listing)
    own = range(part.rank, len(samples), config.world_size)
    loader: DataLoader[tuple[Tensor, int]] = DataLoader(
        Subset(EvaluationDataset(samples, config.image_size), list(own)),
        batch_size=part.micro_batch,
        num_workers=config.workers_per_rank,
        pin_memory=part.device.type == "cuda",
        multiprocessing_context="fork" if config.workers_per_rank else None,
    )
    yield from loader


def evaluate(
    part: Part, wrapped: Wrapped, batches: Iterator[tuple[Tensor, Tensor]], num_classes: int
) -> Counts:
    """Count correct answers of the model, as it is without its wrapper.

    Running statistics are those of rank 0 on all ranks. Ranks may have different numbers of images,
    so nothing is exchanged between them until all are done, and shared out weights are gathered
    first.
    """
    wrapped.share_buffers()
    model = whole_model(part, wrapped)
    model.eval()
    totals = torch.zeros(4, dtype=torch.int64, device=part.device)
    with torch.no_grad():
        for images, labels in batches:
            totals += _count(model(images.to(part.device))[0], labels.to(part.device))
            part.on_progress()
    model.train()
    samples, top1, top5, unreadable = map(int, wrapped.sum_over_ranks(totals))
    return Counts(
        samples=samples,
        top1=top1,
        top5=top5 if num_classes > MAX_CLASSES_WITHOUT_TOP5 else None,
        unreadable=unreadable,
    )


def _count(logits: Tensor, labels: Tensor) -> Tensor:
    """Images, correct ones, those within the first five, and unreadable ones (label -1)."""
    readable = labels >= 0
    likeliest = logits.topk(min(5, logits.shape[1]), dim=1).indices
    hits = likeliest.eq(labels.unsqueeze(1)) & readable.unsqueeze(1)
    counts = (readable.sum(), hits[:, 0].sum(), hits.sum(), (~readable).sum())
    return torch.stack(counts).to(torch.int64)
