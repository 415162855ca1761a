"""Started by others, once per GPU or once per machine: torchrun, and srun with several tasks.

They say which machines there are. On each machine one of the processes that they start is the
agent, and the others wait until it has ended. Every run is still made by fresh processes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mgpubench.config.nodes import Nodes, parse_endpoint
from mgpubench.errors import RequestRefused

FIRST_PORT = 20_000
"""From here on the port of a session under Slurm is chosen, by the number of its job."""
PORTS = 10_000

STORE_PREFIX = "mgpubench/"
"""Of all our keys in torchrun's own store; then comes how often it has restarted its processes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """What a starter says about this process."""

    by: str
    """`torchrun` or `srun`."""
    local_rank: int
    """Its number among those of this machine; 0 is the agent."""
    num_local: int
    """Processes on this machine."""
    is_per_gpu: bool
    """True if each of these processes stands for a GPU."""
    num_nodes: int
    node_rank: int
    host: str
    """The first machine."""
    port: int
    store: str = ""
    """Prefix of our keys in the store that the starter serves; empty if it serves none."""
    key: str
    """The same for all of this machine's processes, and different from those of other starters."""

    def nodes(self, join_timeout_s: float, endpoint: str | None = None) -> Nodes | None:
        """The machines of the session; None if there is only this one.

        An endpoint takes the place of the one that the starter names, if it serves no store.
        """
        if self.num_nodes == 1:
            return None
        host, port = self.host, self.port
        if endpoint is not None and not self.store:
            host, port = parse_endpoint(endpoint)
        return Nodes(
            num_nodes=self.num_nodes,
            node_rank=self.node_rank,
            host=host,
            port=port,
            join_timeout_s=join_timeout_s,
            store=self.store,
        )


def find_starter(environ: Mapping[str, str], parent_pid: int) -> Started | None:
    """What has started this process and others like it; None if it was started alone.

    Raises:
        RequestRefused: under mpirun, which would start whole sessions.
    """
    if "TORCHELASTIC_RUN_ID" in environ:
        return _torchrun(environ, parent_pid)
    if "SLURM_PROCID" in environ and _number(environ, "SLURM_STEP_NUM_TASKS") > 1:
        return _srun(environ)
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        if _number(environ, name) > 1:
            raise RequestRefused(
                f"started by mpirun as one of {environ[name]} processes, each of which would run "
                "the whole benchmark",
                "Start it alone, under torchrun, with srun, or on each machine with --nnodes.",
            )
    return None


def _torchrun(environ: Mapping[str, str], parent_pid: int) -> Started:
    restarts = environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    serves = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    port = _number(environ, "MASTER_PORT")
    return Started(
        by="torchrun",
        local_rank=_number(environ, "LOCAL_RANK"),
        num_local=_number(environ, "LOCAL_WORLD_SIZE", 1),
        is_per_gpu=True,
        num_nodes=_number(environ, "GROUP_WORLD_SIZE", 1),
        node_rank=_number(environ, "GROUP_RANK"),
        host=environ.get("MASTER_ADDR", "localhost"),
        port=port,
        store=f"{STORE_PREFIX}{restarts}/" if serves else "",
        key=f"torchrun-{parent_pid}-{port}-{restarts}",
    )


def _srun(environ: Mapping[str, str]) -> Started:
    job, step = (_number(environ, f"SLURM_{name}_ID") for name in ("JOB", "STEP"))
    node = _number(environ, "SLURM_NODEID")
    hosts = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", "")
    if not hosts:
        raise RequestRefused(
            "started by srun as one of several tasks, and neither SLURM_STEP_NODELIST nor "
            "SLURM_JOB_NODELIST says on which machines",
            "Pass Slurm's variables into the container.",
        )
    tasks = tasks_per_node(environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    num_local = tasks[node] if node < len(tasks) else 1
    num_nodes = _number(environ, "SLURM_STEP_NUM_NODES", len(tasks))
    return Started(
        by="srun",
        local_rank=_number(environ, "SLURM_LOCALID"),
        num_local=num_local,
        is_per_gpu=num_local > 1,
        num_nodes=num_nodes,
        node_rank=node,
        host=first_host(hosts),
        port=FIRST_PORT + (job + step) % PORTS,
        key=f"srun-{job}-{step}-{node}-{environ.get('SLURM_RESTART_COUNT', '0')}",
    )


def _number(environ: Mapping[str, str], name: str, default: int = 0) -> int:
    text = environ.get(name, "")
    return int(text) if text.isdecimal() else default


def first_host(hosts: str) -> str:
    """The first name of Slurm's list: `node01` of `node[01-03,7],gpu5`.

    Slurm's scontrol expands such lists, and containers lack it.
    """
    end = re.search(r",(?![^\[]*\])", hosts)
    first = hosts[: end.start()] if end else hosts
    return re.sub(r"\[([^\]\-,]+)[^\]]*\]", r"\1", first)


def tasks_per_node(text: str) -> list[int]:
    """Slurm's numbers of tasks, one for each machine: `2(x3),1` is 2, 2, 2, 1."""
    counts: list[int] = []
    for match in re.finditer(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(match.group(1))] * int(match.group(2) or 1)
    return counts


def own_omp_num_threads(environ: Mapping[str, str], parent_environ: Mapping[str, str]) -> bool:
    """True if OMP_NUM_THREADS is the user's own, and not the 1 that torchrun sets."""
    is_torchruns = environ.get("OMP_NUM_THREADS") == "1" and "TORCHELASTIC_RUN_ID" in environ
    return not is_torchruns or "OMP_NUM_THREADS" in parent_environ


def environment_of(pid: int) -> dict[str, str]:
    """The environment with which a process was started; empty if it cannot be read."""
    try:
        content = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.decode(errors="replace").partition("=") for entry in content.split(b"\0"))
    return {name: value for name, _, value in pairs if name}
