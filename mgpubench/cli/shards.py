"""`mgpubench run --show-shards`: who gets what of a batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import click

from mgpubench.config.request import Request
from mgpubench.errors import RequestRefused
from mgpubench.format import plain


def show_shards(make: Callable[[Mapping[str, Any]], Request], given: Mapping[str, Any]) -> None:
    """Print what every replica and rank gets of one batch. Nothing is measured or written.

    A global batch that the devices cannot share equally is shared as the technique does it.
    """
    from mgpubench.launch.signals import StopSignal
    from mgpubench.report.shards import print_shards
    from mgpubench.session.shards import share_batches

    request, rest = _evened(make, given)
    lines = []
    with StopSignal().installed() as stop:
        for each in share_batches(request, rest, stop):
            if isinstance(each, str):
                click.echo(f"note: {plain(each)}", err=True)
            else:
                label = " ".join(part for part in (each.config.label, each.config.variant) if part)
                lines += [(label, each.samples, shard) for shard in each.shards]
    print_shards(lines)


def _evened(
    make: Callable[[Mapping[str, Any]], Request], given: Mapping[str, Any]
) -> tuple[Request, int]:
    """The request with the next larger global batch that all devices can share, and the rest."""
    counts, wanted = given["gpus"], given["global_batch"]
    if wanted is None or not counts or min(counts) < 1 or wanted < 1:
        return make(given), 0
    step = math.lcm(*counts)
    rest = -wanted % step
    if rest and (len(counts) > 1 or given["accumulate"] > 1):
        raise RequestRefused(
            f"--global-batch {wanted} leaves a rest",
            "Look at a rest with one number in --gpus, and without --accumulate.",
        )
    return make({**given, "global_batch": wanted + rest}), rest
