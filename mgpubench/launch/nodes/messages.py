"""What the machines tell each other, and the keys of the store under which they do.

hello/<k>      node k: who it is
plan           node 0: what will be run
ack/<k>        node k: what it has found out about models and data
cmd/<n>        node 0: run n starts
abort/<n>/<k>  node k: its part of run n has failed
done/<n>/<k>   node k: the results of its part, or how it failed
loss/<k>/<i>   node k: lines of loss of its ranks in a training, one message after the other
beat/<k>       node k: a number that rises twice a second
end            any node: the session ends, and why
bye/<k>        node k: it has read the end
pg/<n>/...     torch's own: the process group of run n
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass, is_dataclass
from pathlib import PurePath
from typing import Any

from mgpubench.errors import BenchError
from mgpubench.launch.cause import Exit
from mgpubench.launch.loss_lines import LossLine

PLAN = "plan"
END = "end"


def hello_key(node: int) -> str:
    """Where node k says who it is."""
    return f"hello/{node}"


def ack_key(node: int) -> str:
    """Where node k answers the plan."""
    return f"ack/{node}"


def command_key(run: int) -> str:
    """Where node 0 starts run n."""
    return f"cmd/{run}"


def abort_key(run: int, node: int) -> str:
    """Where node k says that its part of run n has failed."""
    return f"abort/{run}/{node}"


def done_key(run: int, node: int) -> str:
    """Where node k leaves the outcome of its part of run n."""
    return f"done/{run}/{node}"


def loss_key(node: int, number: int) -> str:
    """Where node k leaves lines of loss, for the i-th time."""
    return f"loss/{node}/{number}"


def is_read_once(key: str) -> bool:
    """True for a message to node 0 alone that may be large, or one of many."""
    return key.startswith(("done/", "loss/"))


def beat_key(node: int) -> str:
    """Where node k shows that it lives."""
    return f"beat/{node}"


def bye_key(node: int) -> str:
    """Where node k says that it has read the end."""
    return f"bye/{node}"


def group_of(run: int) -> str:
    """Prefix of the keys by which the ranks of run n meet."""
    return f"pg/{run}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Hello:
    """Who a node is."""

    host: str
    """Its name, for people; it is in no result file."""
    agreed: dict[str, Any]
    """What must be equal on all nodes."""
    facts: Any
    """What may differ, as the session wants it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """How a node's part of a run ended."""

    results: tuple[Any, ...] = ()
    """What its calls returned, in the order of their ranks."""
    exits: tuple[Exit, ...] = ()
    """How its ranks ended, if any has failed."""
    error: BenchError | None = None
    """Why it ended its ranks, if none had failed."""
    was_asked: bool = False
    """True if it ended them because another node's part had failed."""

    @property
    def has_failed(self) -> bool:
        """True if there are no results."""
        return bool(self.exits) or self.error is not None or self.was_asked


@dataclass(frozen=True, kw_only=True, slots=True)
class LossLines:
    """Lines of loss, each over all ranks of one machine."""

    lines: tuple[LossLine, ...]
    is_last: bool
    """True if that machine's ranks have ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """Why the session ends."""

    node: int
    reason: str
    """Empty if everything was done."""
    hint: str = ""
    exit_code: int = 0
    was_interrupted: bool = False


PLAIN_MODULES = ("pathlib", "pathlib._local")


class _Unpickler(pickle.Unpickler):
    """Makes objects of our own types only, since the store is open to the whole network."""

    def find_class(self, module: str, name: str) -> Any:
        """A dataclass or an error of this package, or a path."""
        found = None
        if module.partition(".")[0] == "mgpubench" or module in PLAIN_MODULES:
            found = super().find_class(module, name)
        if not (isinstance(found, type) and _may_be_sent(found)):
            raise pickle.UnpicklingError(f"{module}.{name} is not a type of mgpubench")
        return found


def _may_be_sent(kind: type) -> bool:
    # The type itself is asked where it is from: a name such as `subprocess.Popen` may lead from
    # one of our modules to a type that it has only imported.
    if kind.__module__ in PLAIN_MODULES:
        return issubclass(kind, PurePath)
    is_ours = kind.__module__.partition(".")[0] == "mgpubench"
    return is_ours and (is_dataclass(kind) or issubclass(kind, BenchError))


def encode(message: object) -> bytes:
    """A message as bytes."""
    return pickle.dumps(message)


def decode(content: bytes) -> Any:
    """A message from bytes.

    Raises:
        pickle.UnpicklingError: if it holds anything but plain values and our own types.
    """
    try:
        return _Unpickler(io.BytesIO(content)).load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # bytes that are no pickle may raise anything
        raise pickle.UnpicklingError(f"{type(error).__name__}: {error}") from error
