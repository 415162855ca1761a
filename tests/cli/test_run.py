"""`mgpubench run`: what it refuses, what it would do, and what it writes on a CPU."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mgpubench.cli import cli
from mgpubench.config.plan import make_plan
from mgpubench.config.request import Request
from mgpubench.config.run_config import DdpOptions
from mgpubench.machine.host import assumed_machine
from tests.conftest import Here
from tests.processes import Command, mgpubench

TINY = (
    *("run", "--device", "cpu", "--model", "tiny-cnn", "--image-size", 64, "-b", 4),
    *("--warmup-steps", 1, "--steps", 4, "--rounds", 1),
)
Start = Callable[..., Command]
Run = Callable[..., Here]
Row = dict[str, str]


def read_csv(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def assert_refused(text: str) -> str:
    """The error of a command that prints it in one line, and perhaps a hint in another."""
    error, *hint = text.splitlines()
    assert error.startswith("error: ")
    assert [line.partition(" ")[0] for line in hint] in ([], ["hint:"])
    return error.removeprefix("error: ")


# Refused before torch is imported.


def invoke(*arguments: object, **env: str) -> Result:
    return CliRunner(env=env).invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that a test writes goes into its own folder."""
    monkeypatch.chdir(tmp_path)


REFUSALS = [
    ("-b 8 --global-batch 16", "--batch-per-gpu 8 and --global-batch 16 exclude each other"),
    ("--gpus 0", "--gpus takes numbers of GPUs, at least 1, not 0"),
    ("--mode dp --gpus 8 --global-batch 9", "9 cannot be shared equally by 8 devices"),
    ("--mode ddp --gpus 8 --global-batch 9", "9 cannot be shared equally by 8 devices"),
    ("--mode dp --gpus 8 --global-batch 4", "4 cannot be shared equally by 8 devices"),
    ("--device cpu --precision tf32", "--precision tf32 needs an NVIDIA GPU"),
    ("--device cpu --oversubscribe", "--oversubscribe puts several replicas on one GPU"),
    ("--steps 0", "--steps is 0, and must be at least 1"),
    ("--steps -1", "--steps is -1, and must be at least 1"),
    ("--timeout nan", "--timeout is nan, and must be above 0 and at most 2592000 seconds"),
    ("--data missing", "--data missing does not exist"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSALS)
def test_what_is_impossible_is_refused_in_one_line(
    tmp_path: Path, arguments: str, message: str
) -> None:
    result = invoke("run", *arguments.split())
    assert result.exit_code == 2
    assert message in assert_refused(result.stderr)
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--mode dpp", "'dpp' is not one of single, dp, ddp, fsdp, deepspeed, all"),
        ("--gpus two", "'two' is not a list of numbers such as 1,2,4"),
        ("--device tpu", "'tpu' is not one of 'auto', 'cuda', 'cpu'"),
        ("--precision fp8", "'fp8' is not one of 'fp32', 'tf32', 'amp-bf16'"),
        ("--steps many", "'many' is not a valid integer"),
        ("--batch-size 8", "No such option"),
    ],
)
def test_a_bad_value_is_refused_with_clicks_own_message(
    tmp_path: Path, arguments: str, message: str
) -> None:
    result = invoke("run", *arguments.split())
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.startswith("Usage: ")
    assert list(tmp_path.iterdir()) == []


def test_refusals_and_dry_runs_import_no_torch(tmp_path: Path) -> None:
    lines = [["run", *arguments.split()] for arguments, _ in REFUSALS]
    code = f"""
import sys
from click.testing import CliRunner
from mgpubench.cli import cli
from mgpubench.config.plan import make_plan
from mgpubench.config.request import Request
from mgpubench.config.run_config import DdpOptions
from mgpubench.machine.host import assumed_machine
for line in {lines!r}:
    assert CliRunner().invoke(cli, line).exit_code == 2, line
result = CliRunner().invoke(cli, "run --mode dp --gpus 8 --global-batch 16 --dry-run".split())
assert result.exit_code == 0, result.output
assert not {{"torch", "torchvision"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}, "mpirun"),
    ],
)
def test_a_launcher_that_starts_several_copies_is_refused_by_name(
    env: dict[str, str], name: str
) -> None:
    """C33; for --dry-run too, which would be printed by every process."""
    for arguments in (TINY, (*TINY, "--dry-run")):
        result = invoke(*arguments, **env)
        assert result.exit_code == 2
        assert name in assert_refused(result.stderr)


def test_verbose_shows_where_an_error_came_from() -> None:
    result = invoke("run", "--steps", 0, "--verbose")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1] == "error: --steps is 0, and must be at least 1"


def test_a_flat_folder_is_refused_with_an_example(tmp_path: Path) -> None:
    """C47."""
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "a.jpg").touch()
    result = invoke(*TINY, "--data", "flat")
    assert result.exit_code == 2
    assert assert_refused(result.stderr) == "--data flat has no class folders"
    assert "FOLDER/<class>/<image>.jpg" in result.stderr


def test_an_out_that_is_a_file_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """C07."""
    (tmp_path / "file").write_text("precious")
    for out in ("file", "file/below"):
        result = invoke(*TINY, "--out", out)
        assert result.exit_code == 2
        assert f"results cannot be written to {out}" in assert_refused(result.stderr)
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.skipif(
    not shutil.which("setpriv") or os.getuid() != 0, reason="needs setpriv and root"
)
def test_an_out_that_may_not_be_written_is_refused_before_anything_starts() -> None:
    """C07: root may write everywhere, so another user must try."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        done = subprocess.run(
            [
                *("setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-m", "mgpubench"),
                *map(str, TINY),
                *("--out", f"{folder}/sub/results"),
            ],
            cwd="/",
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert done.returncode == 2
        assert assert_refused(done.stderr) == (
            f"results cannot be written to {folder}/sub/results: {folder} is not writable"
        )
        assert os.listdir(folder) == []


# The plan.


def test_a_dry_run_shows_runs_order_batches_and_steps(tmp_path: Path) -> None:
    options = ("--gpus", "2,4", "-b", 8, "--rounds", 2, "--seed", 1, "--steps", 30)
    result = invoke("run", "--dry-run", *options)
    assert result.exit_code == 0
    assert result.stderr == ""
    title, _, header, _, *table = result.stdout.splitlines()
    assert title == (
        "10 runs of resnet50, 224 px, synthetic, weak scaling: 20 warm-up and 30 measured steps"
    )
    assert header.split() == ["run", "round", "mode", "devices", "device", "batch", "steps"]
    rows = [line.split() for line in table]
    assert [(row[0], row[1]) for row in rows] == [
        (str(place), "1" if place <= 5 else "2") for place in range(1, 11)
    ]
    configurations = {
        ("single", "1", "8", "8", "50"),
        ("dp", "2", "8", "16", "50"),
        ("dp", "4", "8", "32", "50"),
        ("ddp", "2", "8", "16", "50"),
        ("ddp", "4", "8", "32", "50"),
    }
    assert {tuple(row[2:]) for row in rows[:5]} == configurations
    assert {tuple(row[2:]) for row in rows[5:]} == configurations
    assert invoke("run", "--dry-run", *options).stdout == result.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("global_batch", "exit_code"), [(16, 0), (9, 2), (4, 2)])
def test_a_dry_run_needs_no_gpus(global_batch: int, exit_code: int) -> None:
    """C15."""
    arguments = ("--mode", "dp", "--gpus", 8, "--global-batch", global_batch, "--dry-run")
    result = invoke("run", *arguments)
    assert result.exit_code == exit_code
    if exit_code:
        assert f"{global_batch} cannot be shared equally by 8 devices" in result.stderr
    else:
        assert result.stderr == ""
        assert result.stdout.splitlines()[-1].split()[2:] == ["dp", "8", "2", "16", "120"]


def test_a_dry_run_names_what_it_leaves_out() -> None:
    result = invoke("run", "--dry-run", "--gpus", 1)
    assert result.exit_code == 0
    (note,) = result.stderr.splitlines()
    assert note.startswith("note: dp is left out on one device")


def test_an_option_of_ddp_arrives_with_all_its_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[Request] = []
    monkeypatch.setattr(
        import_module("mgpubench.cli.run"),
        "show_plan",
        lambda request, *more: requests.append(request),
    )
    options = ("--bucket-cap-mb", "25.1234567", "--static-graph", "--gpus", 2, "--rounds", 1)
    assert invoke("run", *options, "--dry-run").exit_code == 0
    (request,) = requests
    runs = {run.mode: run for run in make_plan(request, assumed_machine(2)).runs}
    assert runs["ddp"].ddp == DdpOptions(bucket_cap_mb=25.1234567, static_graph=True)
    assert runs["ddp"].ddp.changed == {"bucket_cap_mb": 25.1234567, "static_graph": True}
    assert runs["ddp"].options == "bucket_cap_mb=25.1234567;static_graph=true"
    assert runs["dp"].ddp == DdpOptions()
    assert runs["dp"].options == ""


def test_a_dry_run_looks_at_the_images(photos: Callable[..., Path]) -> None:
    result = invoke(*TINY, "--dry-run", "--data", photos(cat=2, dog=1), "--mode", "ddp")
    assert result.exit_code == 2
    assert "has 3 images, and one step takes 8" in assert_refused(result.stderr)


# Real runs. Each takes seconds, so one session serves many tests.


@dataclass(frozen=True)
class Session:
    """What a run left behind."""

    out: str
    err: str
    folder: Path
    rows: list[Row]
    steps: list[Row]

    def row(self, mode: str) -> Row:
        (row,) = (row for row in self.rows if row["mode"] == mode)
        return row


def session_of(command: Command | Here, root: Path) -> Session:
    """The only session below a folder, of a command that succeeded."""
    assert command.wait() == 0, command.err
    (folder,) = root.iterdir()
    return Session(
        command.out,
        command.err,
        folder,
        read_csv(folder / "runs.csv"),
        read_csv(folder / "steps.csv"),
    )


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """All modes on two CPU replicas."""
    cwd = tmp_path_factory.mktemp("session")
    command = mgpubench(*TINY, "--mode", "all", "--gpus", 2, "--out", "out", cwd=cwd)
    return session_of(command, cwd / "out")


def test_there_is_one_row_for_each_run(session: Session) -> None:
    """C01: and not one for each rank."""
    assert sorted(row["mode"] for row in session.rows) == ["ddp", "dp", "single"]
    assert sorted(row["position"] for row in session.rows) == ["1", "2", "3"]
    assert {row["status"] for row in session.rows} == {"ok"}
    assert {row["round"] for row in session.rows} == {"1"}


@pytest.mark.parametrize(("mode", "devices"), [("single", 1), ("dp", 2), ("ddp", 2)])
def test_samples_and_throughput_are_of_all_devices(
    session: Session, mode: str, devices: int
) -> None:
    """C01."""
    row = session.row(mode)
    assert row["num_devices"] == str(devices)
    assert row["batch_per_device"] == "4"
    assert row["global_batch"] == str(4 * devices)
    assert row["samples"] == str(4 * devices * 4)
    throughput = float(row["throughput_samples_per_s"])
    assert throughput == pytest.approx(16 * devices / float(row["window_s"]), rel=1e-9)
    per_device = float(row["throughput_per_device_samples_per_s"])
    assert per_device == pytest.approx(throughput / devices, rel=1e-9)


@pytest.mark.parametrize(
    ("mode", "effective_mode", "world_size", "backend"),
    [("single", "single", "1", ""), ("dp", "cpu-replicas", "1", ""), ("ddp", "ddp", "2", "gloo")],
)
def test_a_row_says_how_it_really_ran(
    session: Session, mode: str, effective_mode: str, world_size: str, backend: str
) -> None:
    """C05, C23."""
    row = session.row(mode)
    assert row["effective_mode"] == effective_mode
    assert row["world_size"] == world_size
    assert row["backend"] == backend
    assert row["device_type"] == "cpu"
    assert row["findings"].split(";")[0] == "cpu-smoke"
    assert row["peak_memory_bytes"] == row["step_time_p95_s"] == ""


def test_a_row_is_complete(session: Session) -> None:
    row = session.row("ddp")
    expected = {
        "schema_version": "1",
        "session_id": session.folder.name,
        "num_nodes": "1",
        "model": "tiny-cnn",
        "data": "synthetic",
        "dataset_samples": "",
        "dataset_digest": "",
        "loader_workers": "",
        "image_size": "64",
        "precision": "fp32",
        "channels_last": "false",
        "compiled": "false",
        "scaling": "weak",
        "warmup_steps": "1",
        "steps": "4",
        "seed": "0",
        "error": "",
        "options": "",
        "variant": "",
        "variant_number": "",
        "sitting": "1",
        "method_version": "2",
        "rounds_added": "",
        "step_time_change": "",
    }
    assert {name: row[name] for name in expected} == expected
    assert re.fullmatch("none|[0-9a-f]{8}", row["environment"])
    assert row["device_names"].startswith("2x ")
    assert int(row["num_parameters"]) * 4 == int(row["parameter_bytes"])
    assert len(row["machine"]) == 8
    assert row["torch_version"]


def test_the_measured_steps_of_the_slowest_rank_sum_to_the_window(session: Session) -> None:
    for row in session.rows:
        sums = [
            sum(float(step["step_time_s"]) for step in steps if step["phase"] == "measured")
            for steps in steps_by_rank(session, row).values()
        ]
        assert max(sums) == pytest.approx(float(row["window_s"]), rel=0.01)


def test_every_step_of_every_rank_is_written(session: Session) -> None:
    for row in session.rows:
        ranks = steps_by_rank(session, row)
        assert sorted(ranks) == [str(rank) for rank in range(int(row["world_size"]))]
        for steps in ranks.values():
            assert [step["step"] for step in steps] == ["1", "2", "3", "4", "5"]
            assert [step["phase"] for step in steps] == ["warmup"] + 4 * ["measured"]
            samples = int(row["global_batch"]) // len(ranks)
            assert {step["samples"] for step in steps} == {str(samples)}


def steps_by_rank(session: Session, row: Row) -> dict[str, list[Row]]:
    ranks: dict[str, list[Row]] = {}
    for step in session.steps:
        if step["run_id"] == row["run_id"]:
            ranks.setdefault(step["rank"], []).append(step)
    return ranks


def test_the_tables_say_whose_figures_they_show(session: Session) -> None:
    lines = session.out.splitlines()
    assert "total" in lines[1]
    assert "samples/s" in lines[2]
    assert "per device" in lines[2]
    assert "CPU rows are smoke tests of the tool, not a forecast for GPUs." in lines
    assert "dp (cpu-replicas)" in session.out


def test_the_last_lines_name_the_folder_and_the_command(session: Session) -> None:
    path = f"out/{session.folder.name}"
    assert session.err.splitlines()[-2:] == [
        f"results: {path}",
        f"compare: mgpubench compare {path}",
    ]


def test_a_finding_is_printed_once(session: Session) -> None:
    assert session.err.count("[cpu-smoke]") == 1


def test_a_pipe_gets_no_escape_codes(session: Session) -> None:
    """C65."""
    for text in (session.out, session.err):
        assert "\x1b" not in text
        assert "\r" not in text
    busy = ("note: the load average", "warning: ")  # of a machine with other work
    assert len([line for line in session.err.splitlines() if not line.startswith(busy)]) < 8


def test_session_json_holds_request_order_and_machine(session: Session) -> None:
    document = json.loads((session.folder / "session.json").read_text())
    assert document["schema_version"] == 1
    assert document["session_id"] == session.folder.name
    assert document["argv"][:2] == ["run", "--device"]
    assert document["request"]["gpus"] == [2]
    assert [(run["position"], run["mode"]) for run in document["plan"]] == [
        (int(row["position"]), row["mode"]) for row in session.rows
    ]
    assert document["machine"]["torch_version"] == session.rows[0]["torch_version"]
    assert "environ" not in document


def test_a_session_can_be_resumed_until_session_json_is_edited(
    session: Session, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(session.folder, folder)
    result = invoke("run", "--resume", "copy", "--dry-run")
    assert (result.exit_code, result.stderr) == (0, "note: nothing is missing in copy\n")
    path = folder / "session.json"
    path.write_text(path.read_text().replace('"steps": 4', '"steps": 5'))
    for more in (("--dry-run",), ()):
        refusal = invoke("run", "--resume", "copy", *more)
        assert refusal.exit_code == 2
        assert assert_refused(refusal.stderr) == (
            "--resume copy: session.json is not as mgpubench wrote it"
        )


@pytest.fixture(scope="module")
def one_step(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """One step on one device, in a folder with a difficult name, with colours."""
    cwd = tmp_path_factory.mktemp("one-step")
    command = mgpubench(
        *(*TINY, "--mode", "dp,ddp", "--gpus", 1, "--steps", 1, "--out", "res \u00e4/my out"),
        cwd=cwd,
        env={"FORCE_COLOR": "1"},
    )
    return session_of(command, cwd / "res \u00e4" / "my out")


def test_a_path_with_spaces_and_umlauts_is_taken_literally(one_step: Session) -> None:
    """C07."""
    name = one_step.folder.name
    assert f"results: res \u00e4/my out/{name}" in one_step.err
    assert f"compare: mgpubench compare 'res \u00e4/my out/{name}'" in one_step.err


@pytest.mark.parametrize(("mode", "effective_mode"), [("dp", "passthrough"), ("ddp", "ddp")])
def test_one_device_and_one_step(one_step: Session, mode: str, effective_mode: str) -> None:
    """C01, C23, C50."""
    row = one_step.row(mode)
    assert row["effective_mode"] == effective_mode
    assert (row["num_devices"], row["world_size"], row["samples"]) == ("1", "1", "4")
    assert row["throughput_samples_per_s"] == row["throughput_per_device_samples_per_s"]
    assert float(row["throughput_samples_per_s"]) > 0
    assert row["step_time_p95_s"] == row["step_time_p99_s"] == ""
    assert row["step_time_median_s"] == row["step_time_max_s"] != ""


def test_dp_on_one_device_has_a_note(one_step: Session) -> None:
    """C23."""
    assert "note: dp on one device is a bare pass-through to the module" in one_step.err
    assert "dp-passthrough" in one_step.row("dp")["findings"].split(";")


def test_nothing_unknown_is_written_as_nan(session: Session, one_step: Session) -> None:
    for text in (session.out, one_step.out):
        assert "nan" not in text.lower().split()
    for name in ("runs.csv", "steps.csv"):
        for found in (session, one_step):
            cells = {
                cell.lower()
                for row in read_csv(found.folder / name)
                for column, cell in row.items()
                if column != "environment"  # where `none` means that no variable is set
            }
            assert not {"nan", "inf", "-inf", "none"} & cells


def test_colours_in_a_pipe_move_no_cursor(one_step: Session) -> None:
    """C65."""
    for text in (one_step.out, one_step.err):
        assert "\r" not in text
        for code in ("\x1b[?25l", "\x1b[1A", "\x1b[2K"):
            assert code not in text


def test_auto_chooses_the_cpu_and_says_why(start: Start, tmp_path: Path) -> None:
    """C05, C34."""
    options = ("--mode", "single", "--warmup-steps", 1, "--steps", 2, "--rounds", 1)
    command = start("run", "--device", "auto", *options, CUDA_VISIBLE_DEVICES="-1")
    found = session_of(command, tmp_path / "results")
    assert found.row("single")["device_type"] == "cpu"
    assert found.row("single")["model"] == "tiny-cnn"
    (line,) = (line for line in found.err.splitlines() if "no usable GPU" in line)
    reason = line.partition("(")[2].partition("; CUDA_VISIBLE_DEVICES=-1)")[0]
    assert len(reason) > 10
    assert "running on the CPU, with the --smoke values" in line


def refused(command: Command | Here, folder: Path) -> str:
    """The message of a command that was refused and wrote nothing."""
    assert command.wait() == 2
    message = assert_refused(command.err)
    assert command.out == ""
    assert not (folder / "out").exists()
    assert not (folder / "results").exists()
    return message


def test_missing_gpus_are_refused(start: Start, tmp_path: Path) -> None:
    """C05, C34."""
    message = refused(start("run", "--gpus", 2, CUDA_VISIBLE_DEVICES="-1"), tmp_path)
    assert message.startswith("--gpus 2 needs GPUs and 0 are usable: ")
    assert message.endswith("; CUDA_VISIBLE_DEVICES=-1")


@pytest.mark.parametrize(
    ("options", "needed"), [(("--mode", "single"), 4), (("--mode", "ddp", "-b", 8), 16)]
)
def test_too_few_images_are_refused(
    run_here: Run,
    tmp_path: Path,
    photos: Callable[..., Path],
    options: tuple[object, ...],
    needed: int,
) -> None:
    """C06."""
    root = photos(cat=2, dog=1)
    command = run_here(*TINY, "--out", "out", "--gpus", 2, "--data", root, *options, cwd=tmp_path)
    message = refused(command, tmp_path)
    assert message == f"--data {root} has 3 images, and one step takes {needed}"


@pytest.mark.parametrize(("cat", "dog", "batch"), [(4, 3, 1), (5, 4, 2)])
def test_images_that_ranks_and_batch_do_not_divide(
    run_here: Run, tmp_path: Path, photos: Callable[..., Path], cat: int, dog: int, batch: int
) -> None:
    """C20: five steps cross the end of an epoch, and both ranks make all of them."""
    command = run_here(
        *(*TINY, "--mode", "ddp", "--gpus", 2, "-b", batch),
        *("--data", photos(cat, dog), "--out", "out"),
        cwd=tmp_path,
    )
    found = session_of(command, tmp_path / "out")
    row = found.row("ddp")
    assert row["data"] == "imagefolder:photos"
    assert row["dataset_samples"] == str(cat + dog)
    assert int(row["samples"]) == int(row["global_batch"]) * 4 == 2 * batch * 4
    assert {rank: len(steps) for rank, steps in steps_by_rank(found, row).items()} == {
        "0": 5, "1": 5,
    }  # fmt: skip


def test_a_class_without_images_has_one_note(
    run_here: Run, tmp_path: Path, photos: Callable[..., Path]
) -> None:
    """C27."""
    root = photos(cat=8, dog=0)
    command = run_here(*TINY, "--mode", "single", "--data", root, "--out", "out", cwd=tmp_path)
    found = session_of(command, tmp_path / "out")
    assert found.row("single")["dataset_samples"] == "8"
    (line,) = (line for line in found.err.splitlines() if "dog" in line)
    assert line == f"note: class folder {root / 'dog'} has no images; it keeps its number"


@pytest.fixture
def broken_torch(tmp_path: Path) -> dict[str, str]:
    """The environment in which `import torch` fails."""
    package = tmp_path / "broken" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('raise ImportError("libcudart.so.99 is missing")')
    return {"PYTHONPATH": str(tmp_path / "broken")}


def test_help_works_with_a_broken_torch(start: Start, broken_torch: dict[str, str]) -> None:
    """C70."""
    command = start("--help", **broken_torch)
    assert command.wait() == 0
    assert command.err == ""


def test_compare_works_with_a_broken_torch(
    start: Start, broken_torch: dict[str, str], session: Session
) -> None:
    """C70."""
    command = start("compare", session.folder, **broken_torch)
    assert command.wait() == 0
    assert command.err == ""
    assert "cpu-replicas" in command.out


def test_a_broken_torch_ends_a_run_with_one_line(
    start: Start, tmp_path: Path, broken_torch: dict[str, str]
) -> None:
    """C70."""
    command = start(*TINY, "--mode", "single", "--out", "out", **broken_torch)
    assert command.wait() == 1
    message = assert_refused(command.err)
    assert message == "torch cannot be imported: libcudart.so.99 is missing"
    assert not (tmp_path / "out").exists()


def test_a_model_with_auxiliary_losses_trains_in_ddp(run_here: Run, tmp_path: Path) -> None:
    """C52: every parameter gets a gradient, so no search for unused ones is needed."""
    options = ("--model", "googlenet", "--image-size", 96, "-b", 2, "--steps", 3)
    command = run_here(*TINY, *options, "--mode", "ddp", "--gpus", 2, cwd=tmp_path)
    assert command.wait(100) == 0, command.err
