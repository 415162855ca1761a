"""One rank of a run of collectives, inside its worker process."""

from __future__ import annotations

import re
from pathlib import Path

import torch.distributed as dist

from mgpubench.collectives.measure import Bench
from mgpubench.collectives.operations import EXCHANGES
from mgpubench.collectives.pattern import make_pattern
from mgpubench.config.comm_plan import CommConfig
from mgpubench.config.comm_request import Operation
from mgpubench.config.run_config import RunConfig
from mgpubench.format import gist, message_of
from mgpubench.launch.block_times import BlockTimesWriter, SizeTimes
from mgpubench.training.process_group import process_group
from mgpubench.training.rank import make_part
from mgpubench.training.torch_settings import set_up_process

LACKS = re.compile(r"not (support|implement)|unsupported|has no attribute", re.IGNORECASE)
"""What torch says of an operation that a backend does not have."""

NO_LISTING = Path("none")


def measure_rank(config: CommConfig, rank: int, folder: Path) -> list[SizeTimes]:
    """Measure all sizes of a run, and report each one as soon as it is done.

    Raises:
        RunFailed: if a result is wrong.
    """
    part = make_part(config.run, rank, folder, NO_LISTING)
    set_up_process(part)
    reports = BlockTimesWriter(folder, rank)
    with process_group(part) as barrier:
        bench = Bench(config, part, barrier)
        if config.run.spin_up_s and config.warmup_calls:
            bench.spin_up(config.run.spin_up_s)
        measured = []
        for size_bytes in config.sizes:
            times_s = bench.measure(size_bytes)
            reports.write(size_bytes, times_s)
            measured.append((size_bytes, times_s))
        return measured


def find_lacking(
    run: RunConfig, rank: int, folder: Path, operations: tuple[Operation, ...]
) -> dict[Operation, str]:
    """The operations that the backend does not have on these devices, with its own words.

    All ranks try each one with the smallest buffers, and are refused before they exchange anything.
    """
    part = make_part(run, rank, folder, NO_LISTING)
    set_up_process(part)
    pattern = make_pattern(run.world_size, rank, run.world_size, part.device)
    lacking = {}
    with process_group(part):
        for operation in operations:
            try:
                EXCHANGES[operation](pattern).start()
            except (RuntimeError, AttributeError, dist.DistError) as error:
                if not LACKS.search(message_of(error)):
                    raise
                lacking[operation] = gist(message_of(error))
        part.synchronize()
    return lacking
