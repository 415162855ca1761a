"""What a training begins with reaches machines that have no folder in common with rank 0's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mgpubench.config.run_config import RunConfig
from mgpubench.launch.supervisor import Job, Supervisor
from tests.sent import SOURCE


@pytest.mark.parametrize("size", [0, 999, 2000, 2501])
def test_every_rank_reads_rank_0s_file(
    supervisor: Supervisor, cpu_config: Callable[..., RunConfig], size: int
) -> None:
    """Three ranks on two machines: one writes the copy, and two read it."""
    content = bytes(number % 251 for number in range(size))
    config = cpu_config(mode="ddp", num_devices=3, devices_per_node=(1, 2))
    folder = supervisor.make_folder()
    (folder / SOURCE).write_bytes(content)
    job = Job(
        target="tests.sent:receive",
        calls=[(config, rank, folder) for rank in range(3)],
        folder=folder,
        label="send",
        watch=lambda elapsed_s: None,
        hide_gpus=True,
    )
    assert supervisor.run(job) == [content] * 3
