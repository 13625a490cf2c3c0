"""What a job has at a cut of the stream, and can begin with again, as if it had read no more of its input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.instructions import Commit, Instruction
from dpa.routing.table import RoutingTable
from dpa.sources.feed import Position
from dpa.sources.splits import Split
from dpa.tolerance import NONE_FAILED, Failed


@dataclass(frozen=True)
class ChannelTime:
    """The event time that a channel of a source has reached, in microseconds since 1970.

    Attributes:
        greatest: of the rows before the first that is not read; None: none of them has one.
        ahead: of later rows: the greatest before a split, by its number among the splits that are not read.
    """

    greatest: int | None = None
    ahead: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TimeReached:
    """The event time that a stage has reached, in microseconds since 1970.

    Attributes:
        watermark: rows that are still to come to it are not earlier; None: nothing is known.
        closed: its windows that end by then are closed, and records of them are late; None: none is.
        opens: the least end of its windows that are open; None: none is, or it has none.
        channels: of a source, those of its channels.
    """

    watermark: int | None = None
    closed: int | None = None
    opens: int | None = None
    channels: Mapping[str, ChannelTime] = field(default_factory=dict)


NOTHING_REACHED = TimeReached()


@dataclass(frozen=True, eq=False)
class SourceSnapshot:
    """What a source has read.

    Attributes:
        rest: what it has not read, in the order in which it is handed out.
        position: where the next poll of an open input continues; None: `rest` is all.
        given: what polls of its input have given, if that is kept.
    """

    rest: tuple[Split, ...]
    position: Position | None
    read: int
    tasks: int
    given: tuple[Split, ...] | None = None
    reached: TimeReached = NOTHING_REACHED


@dataclass(frozen=True, eq=False)
class OperatorSnapshot:
    """What an operator stage has made of all records of the rows that are read.

    Attributes:
        snapshots: of each task, by its number: what the driver's archive gave for it. In the order of the table's
            members, by which groupings that go by no table choose.
        published: rows of its result that were published by then.
        rounds: redistributions that each task's load has caused, where the policy counts them.
    """

    table: RoutingTable
    snapshots: Mapping[int, object]
    processed: int
    reached: TimeReached = NOTHING_REACHED
    published: int = 0
    rounds: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class JobSnapshot:
    """Of a whole job, as a checkpoint has it.

    Attributes:
        epoch: the one that ends with the cut, counted from the first.
        slot: of the store's chain, for which its snapshots are written.
        at: when it was begun, in seconds of the stream.
        seconds: that the sources waited for it.
        failed: what user code had failed on.
        staged: results of this epoch and earlier ones, to commit once the checkpoint is written.
    """

    epoch: int
    slot: int
    at: float
    seconds: float
    sources: Mapping[str, SourceSnapshot]
    operators: Mapping[str, OperatorSnapshot]
    failed: Failed = NONE_FAILED
    staged: tuple[Commit, ...] = ()

    @property
    def read(self) -> int:
        """Rows of the input that were read before it, since the job was begun, or begun again."""
        return sum(source.read for source in self.sources.values())

    def with_snapshots(self, written: Mapping[Address, object]) -> JobSnapshot:
        operators = {
            name: replace(cut, snapshots={index: written[Address(name, index)] for index in cut.table.members})
            for name, cut in self.operators.items()
        }
        return replace(self, operators=operators)


@dataclass(frozen=True, eq=False)
class WriteCheckpoint(Instruction):
    """Coordinator: write down a job whose tasks have written theirs, so that it can begin with that. Answered by
    `CheckpointWritten` or `CheckpointFailed`."""

    snapshot: JobSnapshot
