"""An exchange of states: coordinator to the tasks of a stage, task to task, task to coordinator."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpa.execution.states import StatePart
from dpa.protocol.wire.messages import Message
from dpa.protocol.wire.metrics import TaskStats


@dataclass(frozen=True)
class BeginExchange(Message):
    """The exchange that ends an epoch begins: each task extracts the states that a table gives to others, sends them
    there and merges what it receives.

    Attributes:
        epoch: its number; those of a stage ascend.
        version: of the routing table that says who owns a key: the newest, which stays until the exchange is over.
        last: whether the stage has processed all its records: after this exchange its tasks finish. Else they close
            windows, publish what they have, or both.
        transfer: whether states move at all; False if every state already is with its owner.
        closes: windows that end by this event time are closed, in microseconds, and records of them are late from then
            on; None: none are.
        publishes: the numbers of the stage's outputs to which it publishes results of the epoch.
    """

    epoch: int
    version: int
    last: bool = False
    transfer: bool = True
    closes: int | None = None
    publishes: tuple[int, ...] = (0,)


@dataclass(frozen=True, eq=False)
class StateTransfer(Message):
    """The states that the sender extracted for the receiver; None if there were none. One from each task of a stage to
    each other in an exchange."""

    epoch: int
    part: StatePart | None


@dataclass(frozen=True)
class Published(Message):
    """A task has closed its windows and staged its share of the results of an epoch, where it was asked to.

    Attributes:
        staged: what the sink of each output gave for it, by the number of the output, if it had rows.
        seconds: time that the sender's user code took for it.
        stats: its statistics, with the records that it has made of the closed windows.
        rows: of the first output that is published by epoch.
    """

    epoch: int
    staged: Mapping[int, Any]
    states: int
    seconds: float
    stats: TaskStats | None = None
    rows: int = 0
