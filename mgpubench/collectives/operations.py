"""The operations, all with the same outline: what they send, what must come out, and the call.

Rank 0 is the root of those that have one. The sizes are those of nccl-tests: of the whole buffer,
of which scatter, gather, all-gather, reduce-scatter and all-to-all give or take one equal piece for
each rank. docs/collectives.md shows what moves where.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from mgpubench.collectives.pattern import Pattern
from mgpubench.config.comm_request import Operation

ROOT = 0
STALE = -1.0
"""What a result holds before the call. No operation yields it."""


class Exchange:
    """One operation on buffers of its own. In-place operations have a single buffer."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.rank = pattern.rank
        self.is_root = pattern.rank == ROOT
        # Any and not Tensor | None: each operation knows which ranks have them.
        self.sent: Any = self.make_sent()
        self.result: Any = self.make_result()

    def make_sent(self) -> Tensor | None:
        """The buffer that this rank gives; None if it gives nothing."""
        return self.pattern.empty_whole()

    def make_result(self) -> Tensor | None:
        """The buffer in which it finds the result; None if it has none."""
        buffer: Tensor | None = self.sent
        return buffer

    def content(self, call: int) -> Tensor:
        """What it gives in a call."""
        return self.pattern.whole(self.rank, call)

    def expected(self, call: int) -> Tensor:
        """What it must find as the result of a call."""
        raise NotImplementedError

    def start(self) -> None:
        """Make the call. On a GPU the stream waits for its end, and not the host."""
        raise NotImplementedError

    def refill(self, call: int) -> None:
        """Prepare the buffers for a call: a reduction has overwritten them."""
        if self.result is not None and self.result is not self.sent:
            self.result.fill_(STALE)
        if self.sent is not None:
            self.sent.copy_(self.content(call))


class Broadcast(Exchange):
    """Every rank gets the buffer of the root."""

    def expected(self, call: int) -> Tensor:
        """The root's numbers."""
        return self.pattern.whole(ROOT, call)

    def start(self) -> None:
        """In place."""
        dist.broadcast(self.sent, src=ROOT)


class Scatter(Exchange):
    """Every rank gets its piece of the buffer of the root."""

    def make_sent(self) -> Tensor | None:
        """Only the root gives something."""
        return self.pattern.empty_whole() if self.is_root else None

    def make_result(self) -> Tensor:
        """A piece."""
        return self.pattern.empty_piece()

    def expected(self, call: int) -> Tensor:
        """This rank's piece of the root's numbers."""
        return self.pattern.piece(self.rank, ROOT, call)

    def start(self) -> None:
        """From the root's pieces."""
        pieces = None if self.sent is None else list(self.sent.chunk(self.pattern.world_size))
        dist.scatter(self.result, pieces, src=ROOT)


class Gather(Exchange):
    """The root gets a piece from every rank."""

    def make_sent(self) -> Tensor:
        """A piece."""
        return self.pattern.empty_piece()

    def make_result(self) -> Tensor | None:
        """Only the root has a result."""
        return self.pattern.empty_whole() if self.is_root else None

    def content(self, call: int) -> Tensor:
        """This rank's piece of its own numbers."""
        return self.pattern.piece(self.rank, self.rank, call)

    def expected(self, call: int) -> Tensor:
        """The pieces of all ranks, in their order."""
        pieces = (self.pattern.piece(rank, rank, call) for rank in range(self.pattern.world_size))
        return torch.cat(tuple(pieces))

    def start(self) -> None:
        """Into the root's pieces."""
        pieces = None if self.result is None else list(self.result.chunk(self.pattern.world_size))
        dist.gather(self.sent, pieces, dst=ROOT)


class Reduce(Exchange):
    """The root gets the sum of all buffers. Those of the others are destroyed."""

    def make_result(self) -> Tensor | None:
        """Only the root has a result."""
        return self.sent if self.is_root else None

    def expected(self, call: int) -> Tensor:
        """The sum."""
        return self.pattern.sum(call)

    def start(self) -> None:
        """In place."""
        dist.reduce(self.sent, dst=ROOT)


class AllReduce(Exchange):
    """Every rank gets the sum of all buffers."""

    def expected(self, call: int) -> Tensor:
        """The sum."""
        return self.pattern.sum(call)

    def start(self) -> None:
        """In place."""
        dist.all_reduce(self.sent)


class AllGather(Gather):
    """Every rank gets a piece from every rank."""

    def make_result(self) -> Tensor:
        """The pieces of all ranks."""
        return self.pattern.empty_whole()

    def start(self) -> None:
        """From one buffer into another."""
        dist.all_gather_into_tensor(self.result, self.sent)


class ReduceScatter(Exchange):
    """Every rank gets its piece of the sum of all buffers."""

    def make_result(self) -> Tensor:
        """A piece."""
        return self.pattern.empty_piece()

    def expected(self, call: int) -> Tensor:
        """This rank's piece of the sum."""
        return self.pattern.piece_of(self.pattern.sum(call), self.rank)

    def start(self) -> None:
        """From one buffer into another."""
        dist.reduce_scatter_tensor(self.result, self.sent)


class AllToAll(Exchange):
    """Every rank gets its piece of every buffer."""

    def make_result(self) -> Tensor:
        """As many pieces as there are ranks."""
        return self.pattern.empty_whole()

    def expected(self, call: int) -> Tensor:
        """This rank's piece from each rank, in their order."""
        ranks = range(self.pattern.world_size)
        return torch.cat([self.pattern.piece(self.rank, rank, call) for rank in ranks])

    def start(self) -> None:
        """From one buffer into another."""
        dist.all_to_all_single(self.result, self.sent)


class SendRecv(Exchange):
    """Every rank sends its buffer to the next one, and receives that of the one before."""

    def make_result(self) -> Tensor:
        """A buffer of its own."""
        return self.pattern.empty_whole()

    def expected(self, call: int) -> Tensor:
        """The numbers of the rank before."""
        return self.pattern.whole(self._neighbour(-1), call)

    def start(self) -> None:
        """Both at once, or all ranks would wait for each other."""
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, self.sent, self._neighbour(1)),
                dist.P2POp(dist.irecv, self.result, self._neighbour(-1)),
            ]
        )
        for work in works:
            work.wait()

    def _neighbour(self, distance: int) -> int:
        return (self.rank + distance) % self.pattern.world_size


class Barrier(Exchange):
    """Every rank waits for all others."""

    def make_sent(self) -> None:
        """There is no buffer, and no result."""
        return

    def start(self) -> None:
        """Without data."""
        device = self.pattern.places.device
        dist.barrier(device_ids=None if device.type == "cpu" else [device.index])


EXCHANGES: dict[Operation, type[Exchange]] = {
    "broadcast": Broadcast,
    "scatter": Scatter,
    "gather": Gather,
    "reduce": Reduce,
    "all-reduce": AllReduce,
    "all-gather": AllGather,
    "reduce-scatter": ReduceScatter,
    "all-to-all": AllToAll,
    "send-recv": SendRecv,
    "barrier": Barrier,
}
