"""The document session.json: what it holds, and how it is read back to resume a session."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mgpubench import __version__
from mgpubench.config.plan import Plan
from mgpubench.config.request import Request
from mgpubench.config.run_config import DdpOptions, RunConfig
from mgpubench.errors import RequestRefused
from mgpubench.machine.ask import program_output
from mgpubench.machine.environment import recorded_environment
from mgpubench.machine.system import Survey
from mgpubench.results.schema import SCHEMA_VERSION
from mgpubench.results.session_folder import DIGEST, SESSION_JSON, digest_of
from mgpubench.session.prepare import Workload
from mgpubench.training.data.listing import ImageListing

MADE_BY = ("mgpubench_version", "mgpubench_commit", "schema_version")


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedSession:
    """What session.json says about a session. Only what telemetry cost is added at its end."""

    id: str
    """The session's own id, even if its folder was renamed."""
    folder: Path
    document: dict[str, Any]
    """All of session.json but its digest."""
    request: Request
    plan: Plan

    @property
    def is_training(self) -> bool:
        """True if `mgpubench train` made it, and not `run`."""
        return "options" in self.document


def installed_part(survey: Survey) -> dict[str, object]:
    """The part of session.json that must be the same when a session is resumed."""
    return {
        "machine": survey.machine and asdict(survey.machine),
        "environment": recorded_environment(survey.environment),
        "torch": survey.build and asdict(survey.build),
    }


def trained_part(workload: Workload) -> dict[str, object]:
    """The part that must be the same too, but is known only after the preflight."""
    return {
        "datasets": [dataset_part(listing) for listing in workload.listings.values()],
        "models": {name: asdict(facts) for name, facts in workload.models.items()},
    }


def differences(name: str, old: object, new: object) -> Iterator[tuple[str, object, object]]:
    """The fields in which two parts of a document differ, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            field = f"{name}.{key}" if name else key
            yield from differences(field, old.get(key), new.get(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(f"{name}[{number}]", *pair)
    elif old != new:
        yield name, old, new


def dataset_part(listing: ImageListing) -> dict[str, object]:
    """What tells one folder of images from another."""
    return {
        "samples": len(listing.samples),
        "classes": len(listing.classes),
        "digest": listing.digest,
        "name": listing.name,
    }


def called_part(request: Request, plan: Plan, argv: Sequence[str]) -> dict[str, object]:
    """The part that says what was called, and with which mgpubench."""
    return {
        "mgpubench_version": __version__,
        "mgpubench_commit": own_commit(),
        "argv": list(argv),
        "request": asdict(request),
        "plan": [asdict(config) for config in plan.runs],
        "notices": list(plan.notices),
        "order_seed": plan.order_seed,
    }


def own_commit() -> str:
    """The git commit of this program, with `-dirty` if files differ; empty if it is installed."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return ""
    command = ("git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12")
    return program_output(*command).strip()


def load_session(folder: Path) -> SavedSession:
    """Read session.json back.

    Raises:
        RequestRefused: if there is none, if it was edited, or if another mgpubench wrote it.
    """
    document = _read_document(folder / SESSION_JSON)
    _check_maker(folder, document)
    if document.pop(DIGEST, "") != digest_of(document):
        raise RequestRefused(
            f"--resume {folder}: {SESSION_JSON} is not as mgpubench wrote it",
            "Undo what was edited in it, or start a new session.",
        )
    if document.get("command") == "comm":
        raise RequestRefused(
            f"--resume {folder} is a session of mgpubench comm, which cannot be resumed",
            "Start a new one: it is done in minutes.",
        )
    return SavedSession(
        id=document["session_id"],
        folder=folder,
        document=document,
        request=_request_from(document["request"]),
        plan=Plan(
            runs=tuple(_config_from(run) for run in document["plan"]),
            notices=tuple(document["notices"]),
            order_seed=document["order_seed"],
        ),
    )


def _request_from(values: dict[str, Any]) -> Request:
    variants = tuple(map(_request_from, values["variants"]))
    return Request(**{**_with_tuples(values, ("modes", "gpus")), "variants": variants})


def _config_from(values: dict[str, Any]) -> RunConfig:
    return RunConfig(**_with_tuples(values, ("device_indices", "devices_per_node")))


def _with_tuples(values: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Fields as they were before JSON turned tuples into lists, and options into an object."""
    tuples = {name: None if values[name] is None else tuple(values[name]) for name in names}
    env = tuple((name, value) for name, value in values["env"])
    return {**values, **tuples, "env": env, "ddp": DdpOptions(**values["ddp"])}


def _check_maker(folder: Path, document: Mapping[str, Any]) -> None:
    then = tuple(document.get(name) for name in MADE_BY)
    now = (__version__, own_commit(), SCHEMA_VERSION)
    if then != now:
        version, commit, schema = then
        raise RequestRefused(
            f"--resume {folder}: mgpubench {version} (commit {commit or 'unknown'}, schema "
            f"{schema}) made this session, and this is {now[0]} (commit {now[1] or 'unknown'}, "
            f"schema {now[2]}); the rest of it would not be equal work",
            "Resume it with the version that made it, or start a new session.",
        )


def _read_document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or "it is not JSON"
        raise RequestRefused(
            f"--resume {path.parent}: {path} cannot be read: {reason}",
            "Give the folder of a session, such as results/20260101T120000Z-abc123.",
        ) from error
    if not isinstance(document, dict):
        raise RequestRefused(f"--resume {path.parent}: {path} is not the file of a session")
    return document
