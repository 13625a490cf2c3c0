"""Balancing: tasks and senders to the load balancer; routing tables from it to tasks and senders; decisions to the
coordinator."""

from dataclasses import dataclass

from dpa.balance.decision import Decision
from dpa.measure.load import Load, MeasuredKey, Offered
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.messages import Message
from dpa.routing.change import TableChange
from dpa.routing.table import RoutingTable


@dataclass(frozen=True)
class LoadReport(Message):
    """A task's load."""

    load: Load


@dataclass(frozen=True, eq=False)
class OfferedReport(Message):
    """What a task has offered a stage on one edge."""

    stage: str
    edge: int
    offered: Offered


@dataclass(frozen=True, eq=False)
class TableUpdate(Message):
    """The difference between a stage's next routing table and the one before it. `senders`: who emits records to the
    stage from now on; None: as before."""

    stage: str
    change: TableChange
    senders: tuple[Address, ...] | None = None


@dataclass(frozen=True, eq=False)
class CurrentTable(Message):
    """A stage's newest routing table, for a task that was started after the job; what follows are changes of it.
    `senders` as in `TableUpdate`, `closed` as in `ChangeMembers`."""

    stage: str
    table: RoutingTable
    senders: tuple[Address, ...]
    closed: int | None = None


@dataclass(frozen=True)
class DecisionReport(Message):
    """The decisions about a stage since the last report, in order, and its hottest keys now."""

    stage: str
    decisions: tuple[Decision, ...]
    hottest: tuple[MeasuredKey, ...] | None = None
