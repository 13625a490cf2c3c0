"""Results of a stage: those by epoch, and the shares with which it ends."""

import math
from collections.abc import Collection, Sequence

import pyarrow as pa

from dpa.errors import ProtocolError
from dpa.execution.schemas import agreed
from dpa.measure.latency import LatencySketch
from dpa.protocol.graph import Publishing, Stage
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.instructions import Commit
from dpa.protocol.wire.messages.end import Finished
from dpa.protocol.wire.messages.exchange import Published
from dpa.protocol.wire.messages.members import Left
from dpa.protocol.wire.metrics import AggregationStats


class EpochOutput:
    """An output of a stage that is published by epoch.

    Attributes:
        has_closed: whether windows that have been closed may not be published.
    """

    def __init__(self, number: int, how: Publishing, *, has_closed: bool) -> None:
        self.number, self.how, self.has_closed = number, how, has_closed
        self._processed = 0
        self._is_committing = False
        self._due_at = 0.0

    @property
    def due_at(self) -> float:
        """The moment for which it waits; infinite where it waits for checkpoints, or is not published by epoch."""
        return math.inf if self.how.with_checkpoints else self._due_at

    def wait(self, now: float, held: float = 0.0) -> None:
        # Sources continue for at least as long as they were held, however short the interval is.
        self._due_at = now + max(self.how.every, held)

    def is_due(self, now: float, processed: int, *, with_checkpoint: bool) -> bool:
        """Whether it is time, or would be if a checkpoint were made now."""
        if self._is_committing or not self.how.is_by_epoch:
            return False
        is_time = with_checkpoint if self.how.with_checkpoints else now >= self._due_at
        return is_time and (self.how.closed or self.lacks(processed))

    def lacks(self, processed: int) -> bool:
        """Whether there is more to publish once this number of records is processed."""
        return self.has_closed or processed > self._processed

    def begin(self, processed: int) -> None:
        self._processed, self.has_closed = processed, False

    def publish(self, now: float, held: float) -> None:
        """All shares are staged; sources were held for some seconds."""
        self.wait(now, held)
        self._is_committing = not self.how.with_checkpoints

    def committed(self) -> None:
        self._is_committing = False


class EpochResults:
    """Every time at the end of an epoch: all shares are of the same rows of the input.

    Attributes:
        epoch: the newest epoch whose results are published, or being published; 0 before the first.
        newest_rows: rows of that epoch in the first output by epoch; None if that output does not publish it.
        outputs: of the stage, by number.
    """

    def __init__(self, stage: Stage, epoch: int = 0) -> None:
        self.epoch = epoch
        self.newest_rows: int | None = None
        has_closed = stage.reached.closed is not None
        self.outputs = [EpochOutput(number, how, has_closed=has_closed) for number, how in enumerate(stage.publishing)]
        self._first = next((each for each in self.outputs if each.how.is_by_epoch), None)
        self._publishing: Sequence[EpochOutput] = ()
        self._stage = stage.name
        self._at = 0.0
        self._tasks: Sequence[int] = ()
        self._shares: dict[int, Published] = {}
        self._stats = AggregationStats(rows=stage.published)

    @property
    def stats(self) -> AggregationStats | None:
        """Of complete epochs; None if no output is published by epoch."""
        return None if self._first is None else self._stats

    @property
    def rows(self) -> int:
        return self._stats.rows

    @property
    def is_complete(self) -> bool:
        return self._shares.keys() >= {*self._tasks}

    def start(self, now: float) -> None:
        for output in self.outputs:
            output.wait(now)

    def begin(
        self, epoch: int, at: float, tasks: Sequence[int], processed: int, outputs: Sequence[EpochOutput]
    ) -> None:
        """These tasks are to close their windows, and to publish in some outputs what comes of the rows read by `at`,
        in seconds since the stream began."""
        self.epoch, self._at, self._tasks, self._shares = epoch, at, tasks, {}
        self._publishing = outputs
        for output in outputs:
            output.begin(processed)

    def note(self, sender: Address, share: Published) -> None:
        """A task's share is staged; ProtocolError if it cannot come."""
        if share.epoch != self.epoch or sender.index in self._shares or sender.index not in self._tasks:
            raise ProtocolError(f"{sender} has published an unexpected share of epoch {share.epoch}")
        self._shares[sender.index] = share

    def commits(self, now: float, held: float) -> list[Commit]:
        """What shows them to readers, as all shares have come; sources were held for some seconds."""
        for output in self._publishing:
            output.publish(now, held)
        shares = [self._shares[index] for index in self._tasks]
        rows = sum(share.rows for share in shares)
        self.newest_rows = rows if self._first in self._publishing else None
        self._stats = AggregationStats(
            self._stats.epochs + 1,
            self._stats.seconds + sum(share.seconds for share in shares),
            self._stats.states + sum(share.states for share in shares),
            self._stats.rows + rows,
        )
        found = {output.number: [share.staged.get(output.number) for share in shares] for output in self._publishing}
        return [
            Commit(self._stage, self.epoch, self._at, tuple(each for each in staged if each is not None), number)
            for number, staged in found.items()
        ]


class StageEnd:
    """What tasks say of their shares when these are finished, or when they leave.

    Attributes:
        last_version: of the stage's last table; None: more may come.
        latency: seconds from source to processed of all records of these tasks.
        stage_latency: the same from emitted to processed.
    """

    def __init__(self) -> None:
        self.last_version: int | None = None
        self.latency = LatencySketch()
        self.stage_latency = LatencySketch()
        self._shares: dict[int, Finished] = {}

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
