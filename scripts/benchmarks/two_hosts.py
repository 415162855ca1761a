"""Several machines: two hosts with a link between them, against the tutorial's loop under torchrun.

The hosts are network namespaces of this machine, each with half of its cores, as in
scripts/two-hosts. They need root and `ip`.
"""

from __future__ import annotations

import csv
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from sides import compare_rates, cpu_config, in_turn, interval_of, report

from mgpubench.analysis.metrics import summarize
from mgpubench.config.request import Request
from mgpubench.launch.nodes.messages import Done, decode, encode
from mgpubench.results.csv_format import append_records
from mgpubench.results.rank_record import RankRecord
from mgpubench.results.session_folder import STEP_COLUMNS
from mgpubench.session.recorder import step_records

LINK = "link0"
"""The name of the interface on both hosts."""
ADDRESS, PORT = "10.71.84.1", "29500"
PAIRS = 10
STEPS, WARMUP_STEPS, BATCH, IMAGE_SIZE = 20, 3, 8, 64
MODEL = "shufflenet_v2_x0_5"
TUTORIAL = Path(__file__).parent / "tutorial_on_nodes.py"
WORK = (
    *("--device", "cpu", "--gpus", "1", "--mode", "ddp", "--model", MODEL),
    *("--image-size", str(IMAGE_SIZE), "--batch-per-gpu", str(BATCH)),
    *("--warmup-steps", str(WARMUP_STEPS)),
)


@dataclass(frozen=True)
class Hosts:
    """Two namespaces, each with its own cores."""

    names: tuple[str, str]
    cores: tuple[str, str]

    def start(self, commands: Sequence[Sequence[str]]) -> list[subprocess.Popen[str]]:
        """Start one command on each host."""
        return [
            subprocess.Popen(
                ("ip", "netns", "exec", name, "taskset", "-c", cores, *command),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": LINK},
            )
            for name, cores, command in zip(self.names, self.cores, commands, strict=True)
        ]

    def run(self, commands: Sequence[Sequence[str]]) -> list[str]:
        """Run one command on each host, and return what they print on stdout."""
        return _ended(self.start(commands))


def _ended(started: Sequence[subprocess.Popen[str]]) -> list[str]:
    try:
        answers = [process.communicate(timeout=120) for process in started]
    finally:
        for process in started:
            process.kill()
    for process, (_, errors) in zip(started, answers, strict=True):
        if process.returncode:
            raise RuntimeError(errors)
    return [out for out, _ in answers]


@contextmanager
def two_hosts(rate: str) -> Iterator[Hosts]:
    """Two namespaces with a link between them."""
    names = (f"bench-{os.getpid()}-0", f"bench-{os.getpid()}-1")
    cores = sorted(os.sched_getaffinity(0))
    half = (len(cores) + 1) // 2
    try:
        for name in names:
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip(*f"link add link0 netns {names[0]} type veth peer name link0 netns {names[1]}".split())
        for number, name in enumerate(names, 1):
            _ip("-n", name, "addr", "add", f"10.71.84.{number}/24", "dev", "link0")
            _ip("-n", name, "link", "set", "link0", "up")
            tbf = f"qdisc add dev link0 root tbf rate {rate} burst 256kb latency 50ms"
            subprocess.run(("tc", "-n", name, *tbf.split()), check=True)
        yield Hosts(names, (_joined(cores[:half]), _joined(cores[-half:])))
    finally:
        for name in names:
            subprocess.run(("ip", "netns", "del", name), check=False, capture_output=True)


def _ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True)


def _joined(cores: Sequence[int]) -> str:
    return ",".join(map(str, cores))


def our_commands(out: Path, *options: object) -> list[list[str]]:
    """A session on both hosts."""
    nodes = ("--nnodes", "2", "--rdzv-endpoint", f"{ADDRESS}:{PORT}")
    command = [*(sys.executable, "-m", "mgpubench", "run"), *WORK, "--no-telemetry", *nodes]
    command += ["--out", str(out), *map(str, options), "--node-rank"]
    return [[*command, "0"], [*command, "1"]]


def rows_in(out: Path) -> list[dict[str, str]]:
    """The rows that are there now."""
    rows: list[dict[str, str]] = []
    for table in out.glob("*/runs.csv"):
        with table.open(newline="") as file:
            rows += csv.DictReader(file)
    return rows


def our_rate(hosts: Hosts) -> float:
    """Samples/s of one run."""
    with tempfile.TemporaryDirectory() as out:
        hosts.run(our_commands(Path(out), "--rounds", 1, "--steps", STEPS))
        (row,) = rows_in(Path(out))
    return float(row["throughput_samples_per_s"])


def their_answer(hosts: Hosts) -> list[str]:
    """What the tutorial's rank 0 prints: samples/s, and the time of day at its first step."""
    torchrun = (
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"),
        *("--nproc-per-node", "1", "--master-addr", ADDRESS, "--master-port", PORT),
    )
    work = (str(TUTORIAL), *map(str, (MODEL, IMAGE_SIZE, BATCH, WARMUP_STEPS, STEPS)))
    return hosts.run([(*torchrun, "--node-rank", str(node), *work) for node in range(2)])[0].split()


def link() -> bool:
    """Throughput on the link, with an A/A comparison beside it."""
    if not _can_make_hosts():
        return False
    with two_hosts("200mbit") as hosts:

        def mine() -> float:
            return our_rate(hosts)

        result = compare_rates(mine, lambda: float(their_answer(hosts)[0]), PAIRS)
        equal = compare_rates(mine, mine, PAIRS)
    low, high = result.interval or (0.0, float("inf"))
    figure = (
        f"{result.ratio:.3f} x ({interval_of(result)}); "
        f"A/A {equal.ratio:.3f} ({interval_of(equal)})"
    )
    reached = low <= 1.03 and high >= 0.97
    return report("200 Mbit/s against torchrun", figure, "0.97 to 1.03 in the interval", reached)


def start() -> bool:
    """From the command to the first step, against torchrun; and from one round to the next."""
    if not _can_make_hosts():
        return False
    with two_hosts("1gbit") as hosts:
        pairs = [
            in_turn(lambda: our_start_s(hosts), lambda: their_start_s(hosts)) for _ in range(PAIRS)
        ]
        between_s = times_between_s(hosts)
    mine_s, theirs_s = (statistics.median(side) for side in zip(*pairs, strict=True))
    figure = f"{mine_s:.1f} s to the first step, {theirs_s:.1f} s under torchrun"
    reached = report("start on two hosts", figure, "at most torchrun's", mine_s <= theirs_s)
    median_s, longest_s = statistics.median(between_s), max(between_s)
    figure = f"{median_s:.2f} s between the steps of two rounds, {longest_s:.2f} at most"
    return report("the next round", figure, "at most 0.5 s", longest_s <= 0.5) and reached


def our_start_s(hosts: Hosts) -> float:
    """From the command to the first row, without the steps: some time more than to the first."""
    with tempfile.TemporaryDirectory() as out:
        began_s = time.monotonic()
        started = hosts.start(our_commands(Path(out), "--rounds", 1, "--steps", 1))
        while not rows_in(Path(out)) and started[0].poll() is None:
            time.sleep(0.01)
        lasted_s = time.monotonic() - began_s
        _ended(started)
        (row,) = rows_in(Path(out))
    return lasted_s - steps_s(row)


def steps_s(row: dict[str, str]) -> float:
    """Seconds in which a run did its steps."""
    return float(row["warmup_s"]) + float(row["window_s"])


def their_start_s(hosts: Hosts) -> float:
    """From the command to the first step, by the clock that both processes have."""
    began_s = time.time()
    return float(their_answer(hosts)[1]) - began_s


def times_between_s(hosts: Hosts) -> list[float]:
    """From each row to the next one, without the steps."""
    seen_s: list[float] = []
    with tempfile.TemporaryDirectory() as out:
        started = hosts.start(our_commands(Path(out), "--rounds", PAIRS + 1, "--steps", 1))
        while started[0].poll() is None:
            seen_s += [time.monotonic()] * (len(rows_in(Path(out))) - len(seen_s))
            time.sleep(0.01)
        _ended(started)
        rows = rows_in(Path(out))
    return [
        after_s - before_s - steps_s(row)
        for row, (before_s, after_s) in zip(rows[1:], pairwise(seen_s), strict=True)
    ]


def records() -> bool:
    """Taking over and writing the steps of 1,024 ranks on 128 machines."""
    ranks, machines, steps = 1024, 128, 1000
    config = replace(
        cpu_config(Request(smoke=True, modes=("ddp",))), num_devices=ranks, world_size=ranks
    )
    config = replace(config, warmup_steps=0, steps=steps)
    size = ranks // machines
    messages = [
        encode(Done(results=tuple(_record_of(rank, steps) for rank in range(start, start + size))))
        for start in range(0, ranks, size)
    ]
    began_s = time.perf_counter()
    of_ranks = [each for message in messages for each in decode(message).results]
    summarize(config, of_ranks, None)
    with tempfile.TemporaryDirectory() as out:
        path = Path(out) / "steps.csv"
        path.touch()
        append_records(path, STEP_COLUMNS, step_records("run", config, of_ranks))
    took_s = time.perf_counter() - began_s
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    figure = f"{took_s:.1f} s, and {peak_gib:.2f} GiB of this process"
    reached = took_s < 10 and peak_gib < 1
    return report("1,024,000 steps of 1,024 ranks", figure, "below 10 s and 1 GiB", reached)


def _record_of(rank: int, steps: int) -> RankRecord:
    times_s = [0.1 + 1e-6 * rank + 1e-7 * step for step in range(steps)]
    return RankRecord(
        rank=rank,
        samples=[4] * steps,
        step_times_s=times_s,
        data_waits_s=[0.001] * steps,
        window_s=sum(times_s),
        clock_span_s=sum(times_s),
        host_span_s=sum(times_s),
        peak_memory_bytes=[],
        final_loss=1.0,
    )


def _can_make_hosts() -> bool:
    if os.geteuid() == 0 and shutil.which("ip") and shutil.which("tc"):
        return True
    return report("two hosts", "not measured", "root, ip and tc", reached=False)
