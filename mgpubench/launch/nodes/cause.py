"""Why a run on several machines failed: the one cause among what all of them saw."""

from __future__ import annotations

from collections.abc import Mapping

from mgpubench.errors import BenchError, RunFailed
from mgpubench.launch.cause import Explain, find_cause, order_of
from mgpubench.launch.nodes.messages import Done

OWN_ERROR = 2
"""Where `order_of` puts a rank's own error. An agent's, such as a time limit, stands beside it."""
WAS_ASKED = 5
"""After all that a rank can have seen."""


def find_cause_of_nodes(
    outcomes: Mapping[int, Done], label: str, explain: Explain = find_cause
) -> BenchError:
    """The error to show for a run whose parts ended like this, by node.

    The order of causes is that of one machine: a signal, an exit without a record, an error, and
    last an error about a peer. Within a machine the earliest error comes first. Clocks of different
    machines are not compared: of two equal causes that of the first node is taken.
    """
    node = min(outcomes, key=lambda number: (_rank_of(outcomes[number]), number))
    outcome = outcomes[node]
    if outcome.error is not None:
        return outcome.error
    if not outcome.exits:
        return RunFailed(f"{label}: node {node} ended its part without a reason")
    return explain(outcome.exits, f"{label}: node {node}")


def _rank_of(outcome: Done) -> float:
    if outcome.error is not None:
        return OWN_ERROR
    if outcome.exits:
        return min(map(order_of, outcome.exits))[0]
    return WAS_ASKED
