"""`--variant` and `--aa`: what they refuse, and what their workers really get."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mgpubench.cli import cli
from mgpubench.results.read import read_runs
from mgpubench.results.schema import RunRecord
from tests.conftest import Here
from tests.processes import Command

TINY = (
    *("run", "--device", "cpu", "--model", "tiny-cnn", "--image-size", 32, "-b", 4),
    *("--warmup-steps", 1, "--steps", 4, "--rounds", 1),
)
Run = Callable[..., Here]


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that a test writes goes into its own folder."""
    monkeypatch.chdir(tmp_path)


# Refused before torch is imported.


def two(first: str, second: str = "b:") -> tuple[str, ...]:
    return ("--variant", first, "--variant", second)


REFUSALS: list[tuple[tuple[str, ...], str]] = [
    (two(""), "--variant '' has no name before a colon"),
    (two(":"), "--variant ':' has no name before a colon"),
    (two(": -b 8"), "--variant ': -b 8' has no name before a colon"),
    (two("-b 8"), "--variant '-b 8' has no name before a colon"),
    (two("two words: -b 8"), "--variant 'two words': a name has letters, digits and . _ + -"),
    (two("a;b:"), "--variant 'a;b': a name has letters, digits and . _ + -"),
    (two("ddp: -b 8"), "--variant ddp: the name of a mode cannot be the name of a variant"),
    (two("a: --bucket-size 50"), "--variant a: a variant cannot have --bucket-size"),
    *(
        (two(f"a: {option} {value}".rstrip()), f"--variant a: a variant cannot have {option}")
        for option, value in (
            *(("--rounds", "3"), ("--out", "x"), ("--seed", "1"), ("--mode", "dp")),
            *(("-m", "dp"), ("--gpus", "2"), ("--device", "cpu"), ("--timeout", "9")),
            *(("--until", "decided"), ("--aa", ""), ("--smoke", ""), ("--dry-run", "")),
            *(("--variant", "c:"), ("--cool-down", "1"), ("--help", ""), ("-v", "")),
        )
    ),
    (("-b", "8", *two("a: -b 16")), "--variant a sets --batch-per-gpu, which is also"),
    (
        ("--batch-per-gpu", "8", *two("b:", "a: -b 16")),
        "--variant a sets --batch-per-gpu, which is also given beside the variants",
    ),
    (("--static-graph", *two("a: --static-graph")), "--variant a sets --static-graph, which is"),
    (two("a: --bucket-cap-mb much"), "--variant a: Invalid value for '--bucket-cap-mb': 'much'"),
    (two("a: --precision fp8"), "--variant a: Invalid value for '--precision': 'fp8' is not"),
    (two("a: --steps 0"), "--steps is 0, and must be at least 1"),
    (two("a: -b"), "--variant a: Option '-b' requires an argument"),
    (two("a: 50"), "--variant a: Got unexpected extra argument (50)"),
    (two("a: --model 'x"), "--variant a: No closing quotation"),
    (two("a: --env OMP_WAIT_POLICY"), "--variant a: --env 'OMP_WAIT_POLICY' is not NAME=VALUE"),
    (two("a: --env =1"), "--variant a: --env '=1' is not NAME=VALUE"),
    (two("a: --env 1X=1"), "--variant a: --env '1X=1' is not NAME=VALUE"),
    *(
        (two(f"a: --env {name}=1"), f"--variant a: --env {name} has no effect, since")
        for name in (
            *("RANK", "WORLD_SIZE", "MASTER_ADDR", "CUDA_VISIBLE_DEVICES", "GLOO_SOCKET_IFNAME"),
            *("NCCL_SOCKET_IFNAME", "MGPUBENCH_PRELOAD", "NVIDIA_TF32_OVERRIDE", "SLURM_PROCID"),
        )
    ),
    (two("a:", "a: -b 8"), "two variants have the name a"),
    (("--variant", "a:"), "there is only one --variant, a, and nothing to compare it with"),
    (("--aa", *two("a:")), "--aa and --variant exclude each other"),
    (("--mode", "dp", *two("a: --static-graph")), "--static-graph: only for ddp, which --mode dp"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), REFUSALS, ids=str)
def test_a_variant_that_cannot_be_is_refused_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    for more in ((), ("--dry-run",)):
        result = invoke("run", *arguments, *more)
        assert result.exit_code == 2
        error, *hint = result.stderr.splitlines()
        assert error.startswith(f"error: {message}")
        assert [line.partition(" ")[0] for line in hint] in ([], ["hint:"])
        assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_refusals_and_plans_of_variants_import_no_torch() -> None:
    lines = [["run", *arguments] for arguments, _ in REFUSALS]
    code = f"""
import sys
from click.testing import CliRunner
from mgpubench.cli import cli
for line in {lines!r}:
    assert CliRunner().invoke(cli, line).exit_code == 2, line
plan = ["run", "--gpus", "2", "--dry-run", "--variant", "a:", "--variant", "b: -b 8"]
result = CliRunner().invoke(cli, plan)
assert result.exit_code == 0, result.output
assert not {{"torch", "torchvision"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)


def test_the_plan_shows_which_variant_runs_when() -> None:
    result = invoke(
        *("run", "--gpus", 2, "--mode", "dp,ddp", "--rounds", 2, "--seed", 1, "--dry-run"),
        *two("small: -b 8", "large: -b 32 --bucket-cap-mb 50"),
    )
    assert result.exit_code == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines()[4:]]
    assert len(rows) == 8
    kinds = {("small", "dp", "8"), ("small", "ddp", "8"), ("large", "dp", "32")}
    for number in ("1", "2"):
        found = {(row[2], row[3], row[5]) for row in rows if row[1] == number}
        assert found == kinds | {("large", "ddp", "32")}


def test_an_option_that_all_variants_share_stands_beside_them() -> None:
    plan = ("run", "--gpus", 2, "--mode", "ddp", "--rounds", 1, "--dry-run", "-b", 16)
    result = invoke(*plan, *two("a: --static-graph"))
    assert result.exit_code == 0, result.stderr
    assert [line.split()[5] for line in result.stdout.splitlines()[4:]] == ["16", "16"]


# A real session in which one variant sets environment variables.

NETS = '''"""Notes the variables with which its process was started: those that libraries read."""

from pathlib import Path

from torch import nn


def small():
    names = (b"MALLOC_ARENA_MAX=", b"OMP_WAIT_POLICY=")
    own = Path("/proc/self/environ").read_bytes().split(b"\\0")
    with open("seen.txt", "a") as file:
        print(*sorted(line.decode() for line in own if line.startswith(names)), file=file)
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 7))
'''

WITH_ENV = "arena: --env MALLOC_ARENA_MAX=1 --env OMP_WAIT_POLICY=PASSIVE"


@dataclass(frozen=True)
class Session:
    """What a run left behind."""

    out: str
    err: str
    cwd: Path
    folder: Path
    records: list[RunRecord]
    servers_at_start: int
    """Fork servers when the folder of the session was made."""
    most_servers: int
    """Most fork servers at the same time."""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Two variants of an own model, of which one sets variables. No process is left of it."""
    cwd = tmp_path_factory.mktemp("variants")
    (cwd / "nets.py").write_text(NETS)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OMP_WAIT_POLICY", raising=False)  # the tests set it for all others
        command = Command(
            *("run", "--device", "cpu", "--model", "nets:small", "-b", 4, "--mode", "single"),
            *("--image-size", 32, "--warmup-steps", 1, "--steps", 40, "--rounds", 2),
            *("--out", "out", *two("default:", WITH_ENV)),
            cwd=cwd,
            env={"KMP_BLOCKTIME": "7"},
        )
    at_start, most = 0, 0
    while command.popen.poll() is None:
        has_begun = (cwd / "out").exists()
        servers = [
            process
            for process in command.family()
            if process.parent_pid == command.popen.pid and "forkserver" in process.command
        ]
        most = max(most, len(servers))
        if has_begun:
            at_start = at_start or len(servers)
    assert command.wait() == 0, command.err
    command.assert_none_left()
    (folder,) = (cwd / "out").iterdir()
    records = read_runs(folder / "runs.csv").records
    return Session(command.out, command.err, cwd, folder, records, at_start, most)


def test_only_the_workers_of_a_variant_get_its_variables(session: Session) -> None:
    seen = (session.cwd / "seen.txt").read_text().splitlines()
    # The first one is the check before the runs.
    assert seen[0] == ""
    wanted = {"default": "", "arena": "MALLOC_ARENA_MAX=1 OMP_WAIT_POLICY=PASSIVE"}
    assert seen[1:] == [wanted[record.variant] for record in session.records]
    assert len(seen) == 5


def test_there_is_a_fork_server_for_each_environment_before_the_first_run(session: Session) -> None:
    """Loading torch for a variant must not be a part of its first run."""
    assert (session.servers_at_start, session.most_servers) == (2, 2)


def test_rows_say_which_variant_they_are_of(session: Session) -> None:
    found = sorted((r.round, r.variant_number, r.variant, r.options) for r in session.records)
    options = "env:MALLOC_ARENA_MAX=1;env:OMP_WAIT_POLICY=PASSIVE"
    assert found == [
        (number, *kind) for number in (1, 2) for kind in ((1, "default", ""), (2, "arena", options))
    ]


def test_what_a_variant_sets_is_not_in_the_digest_of_the_environment(session: Session) -> None:
    (digest,) = {record.environment for record in session.records}
    assert re.fullmatch("[0-9a-f]{8}", digest)  # of KMP_BLOCKTIME
    document = json.loads((session.folder / "session.json").read_text())
    assert document["environment"]["KMP_BLOCKTIME"] == "7"
    assert not {"MALLOC_ARENA_MAX", "OMP_WAIT_POLICY"} & set(document["environment"])


def test_variants_are_compared_in_one_table(session: Session) -> None:
    result = invoke("compare", session.folder, "--format", "json")
    first, second = json.loads(result.stdout)
    assert first["group"] == second["group"]
    assert first["group"]["variants"] == "arena | default"
    assert (first["variant"], first["versus_baseline"]) == ("default", None)
    versus = second["versus_baseline"]
    assert (second["variant"], versus["baseline"]) == ("arena", "default")
    assert (versus["pairs"], versus["paired"], versus["verdict"]) == (2, True, "undecided")
    assert "single arena against default on 1 device: " in session.out


def test_a_variant_can_be_the_baseline(session: Session) -> None:
    result = invoke("compare", session.folder, "--baseline", "arena", "--format", "json")
    first, second = json.loads(result.stdout)
    assert first["versus_baseline"]["baseline"] == "arena"
    assert second["versus_baseline"] is None


def test_rounds_can_be_added_to_a_session_of_variants(session: Session) -> None:
    result = invoke("run", "--resume", session.folder, "--rounds", 3, "--dry-run")
    assert result.exit_code == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines()[4:]]
    assert [row[:2] for row in rows] == [["5", "3"], ["6", "3"]]
    assert {row[2] for row in rows} == {"default", "arena"}


# Real sessions with the shared workers.


def records_of(command: Here, cwd: Path) -> list[RunRecord]:
    assert command.exit_code == 0, command.err
    (path,) = cwd.glob("out/*/runs.csv")
    return read_runs(path).records


def test_variants_of_different_work_are_in_one_table(run_here: Run, tmp_path: Path) -> None:
    options = ("run", "--smoke", "--mode", "single", "--out", "out")
    command = run_here(
        *(*options, *two("small: -b 2", "large: -b 16")),
        cwd=tmp_path,
    )
    records = records_of(command, tmp_path)
    sizes = {record.variant: record.batch_per_device for record in records}
    assert sizes == {"small": 2, "large": 16}
    rows = json.loads(invoke("compare", "out", "--format", "json").stdout)
    assert [row["variant"] for row in rows] == ["small", "large"]
    assert rows[0]["group"]["batch_per_device"] is None
    assert (
        rows[0]["group"]["variants"] == "large (batch_per_device=16) | small (batch_per_device=2)"
    )
    assert rows[1]["versus_baseline"]["pairs"] == 1


def test_an_aa_test_ends_with_the_noise_floor(run_here: Run, tmp_path: Path) -> None:
    command = run_here(
        *TINY, "--rounds", 5, "--mode", "single", "--aa", "--out", "out", cwd=tmp_path
    )
    records = records_of(command, tmp_path)
    assert sorted((record.variant, record.round) for record in records) == [
        (name, number) for name in ("aa-1", "aa-2") for number in range(1, 6)
    ]
    (sentence,) = (line for line in command.out.splitlines() if line.startswith("noise floor"))
    assert re.fullmatch(
        r"noise floor of single on 1 device: 5 rounds find a difference of \d+\.\d % in 80 of 100 "
        "cases, and a smaller one more rarely",
        sentence,
    )
    assert "single aa-2 against aa-1 on 1 device: " in command.out
    again = invoke("compare", "out")
    assert sentence in again.stdout


def test_too_few_rounds_have_no_noise_floor(run_here: Run, tmp_path: Path) -> None:
    command = run_here(*TINY, "--mode", "single", "--aa", "--out", "out", cwd=tmp_path)
    assert command.exit_code == 0, command.err
    assert "noise floor" not in command.out
    assert "at least 5 rounds are needed to tell" in command.out
