"""The end of a session on several machines: any node may end it, and gives the reason to all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator

from mgpubench.errors import BenchError, Interrupted
from mgpubench.launch.nodes.link import Link
from mgpubench.launch.nodes.messages import END, End, bye_key

SEE_NODE_0 = "Node 0 says which, and why."


@contextlib.contextmanager
def ending(
    link: Link, farewells: Collection[str] = (), failures: Callable[[], str] = str
) -> Iterator[None]:
    """At the end, send the reason to all nodes, and wait a little for their farewells.

    `failures` says what has failed if no error has ended the session; empty if nothing has.
    Whoever ended the session first is right: an end that is there is not written again.
    """
    try:
        yield
    except BaseException as error:
        _end(link, _reason(link.place.node, error), farewells)
        raise
    reason = failures()
    why = End(node=link.place.node, reason=reason, hint=SEE_NODE_0, exit_code=bool(reason))
    _end(link, why, farewells)


def _end(link: Link, why: End, farewells: Collection[str]) -> None:
    """End the session for all nodes, unless another one has ended it."""
    if link.has(END):
        link.put(bye_key(link.place.node), True)
    else:
        link.put(END, why)
    link.last_words([END, *farewells])


def _reason(node: int, error: BaseException) -> End:
    if not isinstance(error, BenchError):
        return End(node=node, reason=f"{type(error).__name__}: {error}", exit_code=1)
    is_signal = isinstance(error, Interrupted)
    return End(
        node=node,
        reason=error.message,
        hint=error.hint or f"See the output of node {node}.",
        exit_code=1 if is_signal else error.exit_code,
        was_interrupted=is_signal,
    )
