"""What the pages say is true: every command of the README runs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from mgpubench import __version__
from mgpubench.analysis.findings.catalogue import KINDS
from mgpubench.cli import cli
from mgpubench.config.plan import make_plan
from mgpubench.config.request import Request
from mgpubench.machine.host import assumed_machine
from mgpubench.machine.system import Survey
from mgpubench.results.comm import CommRecord
from mgpubench.results.read import read_runs
from mgpubench.results.schema import RunRecord, StepRecord
from mgpubench.results.session_folder import open_session
from mgpubench.results.telemetry import TelemetryRecord
from mgpubench.results.training import EpochRecord, LossRecord
from mgpubench.session.document import called_part
from tests.unit.machine.test_advice import SYSTEM

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "results" / "example"
README = (ROOT / "README.md").read_text(encoding="utf-8")
SET_UP = ("scripts/demo", "scripts/test")


def blocks(language: str) -> list[str]:
    """The fenced code blocks of the README in one language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


TRAINING = README.partition("<!-- training -->\n```console\n")[2].partition("```")[0].splitlines()

COMMANDS = [
    line for block in blocks("console") for line in block.splitlines() if line not in TRAINING
]


def make_session(results: Path, name: str) -> None:
    """A session with the runs of the published example, as this mgpubench would have made it."""
    text = (EXAMPLE / "runs.csv").read_text(encoding="utf-8")
    records = read_runs(EXAMPLE / "runs.csv").records
    rounds = max(record.round or 0 for record in records)
    request = Request(device="cpu", gpus=(2,), model=records[0].model, rounds=rounds)
    document = called_part(request, make_plan(request, assumed_machine(0)), ["run"])
    with open_session(results, document, datetime.now(UTC)) as session:
        runs_csv = text.replace(records[0].session_id, session.id)
        (session.folder / "runs.csv").write_text(runs_csv, encoding="utf-8")
    session.folder.rename(results / name)


def copy_session(results: Path, name: str) -> None:
    """The runs of the published example, as if they were those of another session."""
    records = read_runs(EXAMPLE / "runs.csv").records
    text = (EXAMPLE / "runs.csv").read_text(encoding="utf-8").replace(records[0].session_id, name)
    (results / name).mkdir()
    (results / name / "runs.csv").write_text(text, encoding="utf-8")


@pytest.fixture
def results(tmp_path: Path, photos: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder as the README assumes: with photographs, and with results of an earlier run."""
    photos(cat=500, dog=600)
    example = tmp_path / "results" / "example"
    example.mkdir(parents=True)
    for file in ("runs.csv", "session.json"):
        (example / file).write_bytes((EXAMPLE / file).read_bytes())
    # A session can be resumed only by the mgpubench that made it.
    make_session(tmp_path / "results", "20260101T000000Z-abcdef")
    for name in ("a1", "a2", "a3", "b1", "b2", "b3"):
        copy_session(tmp_path / "results", name)
    monkeypatch.chdir(tmp_path)
    # Asking torch takes seconds, and test_info does it.
    survey = Survey(
        system=SYSTEM,
        machine=None,
        build=None,
        torch_error="",
        environment={},
    )
    monkeypatch.setattr("mgpubench.session.comm._buckets", lambda *of_a_model: [8_196_000])
    monkeypatch.setattr(
        "mgpubench.session.prepare.survey_with_or_without_torch", lambda stop: survey
    )


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("mgpubench")])
@pytest.mark.usefixtures("results")
def test_commands_of_the_readme_run(command: str) -> None:
    """Runs that would need GPUs are only planned here, as if the GPUs were there."""
    arguments = shlex.split(command)[1:]
    if "--show-shards" in arguments:
        arguments += ["--device", "cpu", "--model", "tiny-cnn"]
    elif arguments[0] in ("run", "comm") and "--smoke" not in arguments:
        arguments.append("--dry-run")
        if not {"--gpus", "--resume"} & set(arguments):
            arguments += ["--gpus", "8"]
    result = CliRunner().invoke(cli, arguments)
    gate = (0, 1, 3) if "--fail-if-slower" in arguments else (0,)
    assert result.exit_code in gate, result.output
    if "--resume" in arguments and "--rounds" in arguments:
        assert result.stdout.startswith("21 runs of resnet18")
    elif "--resume" in arguments:
        assert result.stderr.startswith("note: nothing is missing in results/")


def test_the_commands_that_train_run_one_after_the_other(
    photos: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the README, but with a tiny model on the CPU, for two epochs."""
    photos(cat=30, dog=30)
    monkeypatch.chdir(tmp_path)
    small = [
        "--device",
        "cpu",
        "--gpus",
        "2",
        "--model",
        "tiny-cnn",
        "--image-size",
        "32",
        "-b",
        "4",
    ]
    extra = {"train": [*small, "--epochs", "1"], "evaluate": ["--device", "cpu"], "predict": []}
    extra["compare"] = []
    for command in TRAINING:
        arguments = shlex.split(command)[1:]
        if "--resume" in arguments:
            extra["train"] = ["--epochs", "2"]
        result = CliRunner().invoke(cli, [*arguments, *extra[arguments[0]]])
        assert result.exit_code == 0, result.output
        assert "cat" in result.stdout or "top-1" in result.stdout
        for folder in (tmp_path / "results").iterdir():
            folder.rename(tmp_path / "results" / "20260101T000000Z-fedcba")


def test_the_smoke_run_is_among_them() -> None:
    assert "mgpubench run --smoke" in COMMANDS


def test_every_other_command_is_a_script_that_ci_runs() -> None:
    others = [command for command in COMMANDS if not command.startswith("mgpubench")]
    assert others == list(SET_UP)
    ci = (ROOT / ".ci" / "run").read_text()
    assert all(re.search(rf"^{command}$", ci, re.MULTILINE) for command in others)


@pytest.mark.usefixtures("results")
def test_the_python_of_the_readme_runs() -> None:
    (code,) = blocks("python")
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "ddp" in answer.stdout


def test_the_published_example_can_be_compared() -> None:
    result = CliRunner().invoke(cli, ["compare", str(EXAMPLE)])
    assert result.exit_code == 0
    assert "resnet18, imagefolder:photos data, 64 px" in result.stdout


def test_the_changelog_begins_with_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(r"^## (\S+)", changelog, re.MULTILINE).group(1) == __version__  # type: ignore[union-attr]


def test_no_page_or_source_names_a_path_of_a_developers_machine() -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    pattern = re.compile(rb"/(home|Users|root)/\w")
    texts = [ROOT / name for name in tracked if not name.endswith("test_docs.py")]
    assert not [path for path in texts if path.is_file() and pattern.search(path.read_bytes())]


@pytest.mark.parametrize(
    ("file", "record"),
    [
        ("runs.csv", RunRecord),
        ("steps.csv", StepRecord),
        ("epochs.csv", EpochRecord),
        ("losses.csv", LossRecord),
        ("telemetry.csv", TelemetryRecord),
        ("comm.csv", CommRecord),
    ],
)
def test_every_column_is_explained_in_its_order(file: str, record: type) -> None:
    page = (ROOT / "docs" / "columns.md").read_text()
    (section,) = (text for text in page.split("\n## ") if text.startswith(f"{file}: "))
    columns = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert columns == [field.name for field in fields(record)]


def test_every_finding_is_explained_and_no_other() -> None:
    page = (ROOT / "docs" / "findings.md").read_text()
    assert re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE) == list(KINDS)


DEVICES = re.findall(
    r"^(?:CUDA_VISIBLE_DEVICES=\S* )?mgpubench (run .*)$",
    (ROOT / "docs" / "devices.md").read_text(),
    re.MULTILINE,
)


@pytest.mark.parametrize("command", DEVICES)
def test_commands_of_the_page_about_devices_are_possible(command: str) -> None:
    arguments = [word for word in shlex.split(command) if word != "--show-shards"]
    # A rest, and several replicas on a GPU that is not there, are not for a dry run.
    equal = ["92" if word == "90" and "4" in arguments else word for word in arguments]
    equal = [word for word in equal if word != "--oversubscribe"]
    result = CliRunner().invoke(cli, [*equal, "--dry-run"])
    assert result.exit_code == 0, result.output
