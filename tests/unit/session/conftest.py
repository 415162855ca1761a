"""A session folder that no run has been written to yet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mgpubench.config.machine_facts import Machine
from mgpubench.config.plan import make_plan
from mgpubench.config.request import Request
from mgpubench.config.run_config import DdpOptions
from mgpubench.results.session_folder import Session, open_session
from mgpubench.session.document import called_part

CONDITIONS: dict[str, Any] = {
    "machine": {"torch_version": "2.14.1", "gpus": [{"uuid": "GPU-1"}]},
    "environment": {"OMP_NUM_THREADS": "2"},
    "dataset": None,
    "model_facts": {"num_parameters": 7},
}
"""What must be the same when the session is resumed."""


@pytest.fixture
def request_of() -> Request:
    """Two modes in two rounds, with a seed, so that its plan is always the same."""
    ddp = DdpOptions(bucket_cap_mb=50.1, static_graph=True)
    return Request(gpus=(2,), modes=("dp", "ddp"), rounds=2, ddp=ddp, seed=3)


@pytest.fixture
def session(tmp_path: Path, machine: Callable[..., Machine], request_of: Request) -> Session:
    """A session of four runs, of which none has been made."""
    plan = make_plan(request_of, machine(2))
    document = {**called_part(request_of, plan, ["run"]), **CONDITIONS}
    with open_session(tmp_path, document, datetime.now(UTC)) as session:
        return session
