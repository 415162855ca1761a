"""One forward pass of each configuration, to see what every replica and rank gets. No session."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from mgpubench.config.plan import make_plan
from mgpubench.config.request import Request
from mgpubench.config.run_config import RunConfig
from mgpubench.config.types import MODES, MULTI_PROCESS_MODES
from mgpubench.errors import RunFailed
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Supervisor, open_supervisor
from mgpubench.results.shard import Shard, ShardedBatch
from mgpubench.session.prepare import ask_torch, list_data, preflight, save_listings
from mgpubench.session.workers import SHOW_RANK, RunOrder, preload_for


@dataclass(frozen=True, slots=True)
class Sharing:
    """How a configuration shares a batch."""

    config: RunConfig
    samples: int
    """Of the batch that was shared: a micro-batch of all devices."""
    shards: list[Shard]


def share_batches(request: Request, rest: int, stop: StopSignal) -> Iterator[Sharing | str]:
    """How each configuration shares a batch, or a line about why it cannot.

    `rest` images are cut off the batch, so that the devices cannot share it equally.

    Raises:
        BenchError: if the plan cannot be run.
    """
    listings = list_data(request, stop)
    with open_supervisor(stop, preload_for(request)) as supervisor:
        machine, _ = ask_torch(supervisor)
        classes = {folder: len(listing.classes) for folder, listing in listings.items()}
        plan = make_plan(request, machine, classes).with_first_round_only()
        yield from plan.notices
        facts = preflight(supervisor, plan, listings)
        save_listings(supervisor, listings)
        for config in sorted(plan.runs, key=_order):
            if rest and config.mode in MULTI_PROCESS_MODES:
                yield f"{config.label}: left out, since every rank takes an equal batch of its own"
                continue
            config = replace(config, num_classes=facts[config.model].num_classes)
            yield _share(supervisor, config, rest)


def _order(config: RunConfig) -> tuple[int, int, int]:
    return config.num_devices, MODES.index(config.mode), config.variant_number or 0


def _share(supervisor: Supervisor, config: RunConfig, rest: int) -> Sharing:
    samples = config.micro_batch_per_device * config.num_devices - rest
    job = RunOrder(config=config).job(supervisor, target=SHOW_RANK)

    def watch(elapsed_s: float) -> None:
        if elapsed_s > config.timeout_s:
            raise RunFailed(f"{config.label}: no answer within --timeout {config.timeout_s:g} s")

    calls = [(*call[:-1], ShardedBatch(call[-1], samples)) for call in job.calls]
    answers = supervisor.run(replace(job, calls=calls, watch=watch))
    return Sharing(config, samples, [shard for answer in answers for shard in answer])
