"""Results of a stage: those by epoch, and the shares with which it ends."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import pyarrow as pa

from dpa.errors import ProtocolError
from dpa.execution.schemas import agreed
from dpa.measure.latency import LatencySketch
from dpa.protocol.graph import Stage
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.instructions import Commit
from dpa.protocol.wire.messages.end import Finished
from dpa.protocol.wire.messages.exchange import Published
from dpa.protocol.wire.messages.members import Left
from dpa.protocol.wire.metrics import AggregationStats


class EpochResults:
    """Every time at the end of an epoch: all shares are of the same rows of the input.

    Attributes:
        epoch: the newest epoch of which they are published, or are to be; 0 before the first.
        newest_rows: that were published of it.
        has_closed: whether windows that have been closed may not be published.
    """

    def __init__(self, stage: Stage, epoch: int = 0) -> None:
        self.epoch, self.newest_rows = epoch, 0
        self.has_closed = stage.reached.closed is not None
        self._processed = 0
        self._stage = stage.name
        self._publishing = stage.publishing
        self._is_committing = False
        self._due_at = 0.0
        self._at = 0.0
        self._tasks: Sequence[int] = ()
        self._shares: dict[int, Published] = {}
        self._stats = AggregationStats(rows=stage.published)

    @property
    def stats(self) -> AggregationStats | None:
        """Of those that are complete; None if there are to be none."""
        return self._stats if self._publishing.is_by_epoch else None

    @property
    def rows(self) -> int:
        return self._stats.rows

    @property
    def is_complete(self) -> bool:
        return self._shares.keys() >= {*self._tasks}

    @property
    def due_at(self) -> float:
        """The moment for which they wait; infinite where they wait for checkpoints, or there are to be none."""
        return math.inf if self._publishing.with_checkpoints else self._due_at

    def wait(self, now: float, held: float = 0.0) -> None:
        """The stream begins, or results are complete, for which sources were held for some seconds."""
        # Sources continue for at least as long as they were held, however short the interval is.
        self._due_at = now + max(self._publishing.every, held)

    def are_due(self, now: float, *, with_checkpoint: bool) -> bool:
        """Whether it is time, or would be if a checkpoint were made now."""
        if self._is_committing or not self._publishing.is_by_epoch:
            return False
        return with_checkpoint if self._publishing.with_checkpoints else now >= self._due_at

    def lack(self, processed: int) -> bool:
        """Whether there is more to publish once this number of records is processed."""
        return self.has_closed or processed > self._processed

    def begin(self, epoch: int, at: float, tasks: Sequence[int], processed: int) -> None:
        """These tasks are to publish what comes of the rows read by `at`, in seconds since the stream began."""
        self.close(epoch, at, tasks, are_some=False)
        self._processed, self.has_closed = processed, False

    def close(self, epoch: int, at: float, tasks: Sequence[int], *, are_some: bool) -> None:
        """These tasks are to close their windows, if `are_some` that end, and to publish nothing."""
        self.epoch, self._at, self._tasks, self._shares = epoch, at, tasks, {}
        self.has_closed |= are_some

    def note(self, sender: Address, share: Published) -> None:
        """A task's share is staged; ProtocolError if it cannot come."""
        if share.epoch != self.epoch or sender.index in self._shares or sender.index not in self._tasks:
            raise ProtocolError(f"{sender} has published a share of epoch {share.epoch}, which nobody expects")
        self._shares[sender.index] = share

    def commit(self, now: float, held: float) -> Commit:
        """What shows them to readers, as all shares have come; sources were held for some seconds."""
        self.wait(now, held)
        self._is_committing = not self._publishing.with_checkpoints
        shares = [self._shares[index] for index in self._tasks]
        self.newest_rows = sum(share.rows for share in shares)
        self._stats = AggregationStats(
            self._stats.epochs + 1,
            self._stats.seconds + sum(share.seconds for share in shares),
            self._stats.states + sum(share.states for share in shares),
            self._stats.rows + self.newest_rows,
        )
        staged = tuple(share.staged for share in shares if share.staged is not None)
        return Commit(self._stage, self.epoch, self._at, staged)

    def committed(self) -> None:
        self._is_committing = False


class StageEnd:
    """What tasks say of their shares when these are finished, or when they leave.

    Attributes:
        last_version: of the stage's last table; None: more may come.
        latency: seconds from source to processed of all records of these tasks.
        stage_latency: the same from emitted to processed.
    """

    def __init__(self, stage: Stage) -> None:
        self.last_version: int | None = None
        self.latency = LatencySketch()
        self.stage_latency = LatencySketch()
        self._stage = stage
        self._shares: dict[int, Finished] = {}

    def moves_states(self, version: int) -> bool:
        """Whether a state may be elsewhere than with the owner of its key by the table of this version, the newest."""
        return not self._stage.migrates and (version > 0 or self._stage.moves_states)

    def finished(self, task: int, message: Finished) -> None:
        self.add_latencies(message)
        self._shares[task] = message

    def add_latencies(self, message: Finished | Left) -> None:
        self.latency.merge(message.latency)
        self.stage_latency.merge(message.stage_latency)

    def all_finished(self, members: Collection[int]) -> bool:
        return self._shares.keys() >= {*members}

    def schema(self, members: Collection[int]) -> pa.Schema | None:
        return agreed(self._shares[index].schema for index in members)

    def initial_load(self, members: Collection[int]) -> tuple[int, ...]:
        """Processed records by task, as the plain ring would give them; empty while that is not known."""
        loads = [share.initial_load for share in self._shares.values()]
        if not self.all_finished(members) or not all(loads):
            return ()
        return tuple(sum(load) for load in zip(*loads, strict=True))
