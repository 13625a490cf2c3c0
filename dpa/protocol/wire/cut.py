"""A cut of the stream: what a job can begin with again, as if it had read no more of its input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dpa.routing.table import RoutingTable
from dpa.sources.splits import Split


@dataclass(frozen=True, eq=False)
class SourceCut:
    """What a source has read.

    Attributes:
        rest: what it has not read, in the order in which it is handed out.
        read: rows that it has read.
        tasks: how many read it.
    """

    rest: tuple[Split, ...]
    read: int
    tasks: int


@dataclass(frozen=True, eq=False)
class OperatorCut:
    """What an operator stage has made of all records of the rows that are read.

    Attributes:
        table: its newest routing table.
        snapshots: of each task, by its number: what the driver's archive gave for it. In the order of the table's
            members, by which groupings that go by no table choose.
        processed: records that it has processed.
    """

    table: RoutingTable
    snapshots: Mapping[int, object]
    processed: int


@dataclass(frozen=True, eq=False)
class Cut:
    """A cut.

    Attributes:
        epoch: its number: the stretches of the input that it ends, from the first on.
        slot: of the store's chain, for which its snapshots are written.
        at: when it was begun, in seconds of the stream.
        seconds: that the sources waited for it.
        sources, operators: of each stage.
    """

    epoch: int
    slot: int
    at: float
    seconds: float
    sources: Mapping[str, SourceCut]
    operators: Mapping[str, OperatorCut]

    @property
    def read(self) -> int:
        """Rows of the input that were read before it, since the job was begun, or begun again."""
        return sum(source.read for source in self.sources.values())
