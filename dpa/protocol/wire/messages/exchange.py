"""An exchange of states: coordinator to the tasks of a stage, task to task, task to coordinator."""

from __future__ import annotations

from dataclasses import dataclass

from dpa.execution.states import StatePart
from dpa.protocol.wire.messages import Message


@dataclass(frozen=True)
class BeginExchange(Message):
    """Exchange number `number`, from 1, begins: each task extracts the states that a table gives to others, sends them
    there and merges what it receives.

    Attributes:
        version: of the routing table that says who owns a key. A round of aggregation goes by table 0, which all tasks
            know; the last exchange by the last table.
        last: whether the stage has processed all its records: after this exchange its tasks finish.
        transfer: whether states move at all; False if every state already is with its owner.
    """

    number: int
    version: int
    last: bool = False
    transfer: bool = True


@dataclass(frozen=True, eq=False)
class StateTransfer(Message):
    """The states that the sender extracted for the receiver; None if there were none. One from each task of a stage to
    each other in an exchange."""

    number: int
    part: StatePart | None


@dataclass(frozen=True)
class RoundDone(Message):
    """A task's share of a round of aggregation is complete.

    Attributes:
        number: of the exchange.
        rows: keys that were published.
        states: states that the sender handed over.
        seconds: time that the sender's user code spent in the round.
    """

    number: int
    rows: int
    states: int
    seconds: float
