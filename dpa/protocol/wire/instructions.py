"""What machines have their drivers do: send a message, start or end a task, run user code, or answer somebody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpa.execution.block import Block
from dpa.execution.publishing import EmittedRows
from dpa.execution.states import StatePart
from dpa.protocol.wire.addresses import Address, Present
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.epochs import EndedEpoch
from dpa.routing.table import RoutingTable
from dpa.sources.feed import Position
from dpa.sources.splits import Split


class Instruction:
    """Base of all instructions. A task runs one piece of user code at a time; its end is an event."""


@dataclass(frozen=True, eq=False)
class Send(Instruction):
    """Deliver an envelope to its receiver, at any time and in any order."""

    envelope: Envelope


@dataclass(frozen=True)
class StartTasks(Instruction):
    """Coordinator: start these tasks; answered by a `TaskStarted` for each, or by one `StartFailed`. `nodes`: the node
    of each; None, or no nodes at all: the driver chooses."""

    addresses: tuple[Address, ...]
    nodes: tuple[str | None, ...] = ()


@dataclass(frozen=True)
class CancelStart(Instruction):
    """Coordinator: start these tasks no more. Where they are not up, the answer to `StartTasks` is a `StartFailed`, at
    once; else it is as it would have been."""

    addresses: tuple[Address, ...]


@dataclass(frozen=True)
class StopTasks(Instruction):
    """Coordinator: end these tasks, which have nothing any more, and give all others a `TasksGone`: which there are."""

    addresses: tuple[Address, ...]
    present: Present


@dataclass(frozen=True)
class Answer(Instruction):
    """Coordinator: answer a request with what became of it. `request`: its number; None: no caller waits. `refused`:
    whether nothing was changed."""

    request: int | None
    text: str
    refused: bool = False


@dataclass(frozen=True, eq=False)
class OpenSplit(Instruction):
    """Source: begin to read a split. No event answers it."""

    split: Split


@dataclass(frozen=True)
class CloseSplit(Instruction):
    """Source: read no further than to where the split has been read. Steps go on until all that has been read is made
    into records. No event answers it."""


@dataclass(frozen=True)
class OpenResult(Instruction):
    """Operator: begin to read the rows of the written share. No event answers it."""


@dataclass(frozen=True)
class NextStep(Instruction):
    """Make records of the next rows of what was opened last, of about `rows` of them at most; answered by `StepDone`.
    `read_at`: when these rows are taken to be read, in microseconds since 1970."""

    rows: int
    read_at: int = 0


@dataclass(frozen=True, eq=False)
class ProcessBlocks(Instruction):
    """Operator: process blocks, all their keys owned here by the table of this version; answered by `ProcessDone`.
    `closed`: records of windows that end by this event time, in microseconds, are late; None: none are."""

    blocks: tuple[Block, ...]
    version: int
    closed: int | None = None


@dataclass(frozen=True, eq=False)
class Extract(Instruction):
    """Operator: take out the states that the table gives to others; answered by `ExtractDone`."""

    table: RoutingTable


@dataclass(frozen=True, eq=False)
class ExtractRanges(Instruction):
    """Operator: take out states of the ranges that the table takes from this task, of about `most` keys, or what is
    left of them; answered by `RangesExtracted`."""

    table: RoutingTable
    most: int


@dataclass(frozen=True, eq=False)
class InstallStates(Instruction):
    """Operator: take in the states of ranges that others gave to this task; answered by `StatesInstalled`. Where
    `merges`, it may have states of their keys; else it has none. `rows`: of its share now, emitted by tasks that
    leave."""

    parts: tuple[StatePart, ...]
    rows: tuple[EmittedRows, ...] = ()
    merges: bool = False


@dataclass(frozen=True, eq=False)
class Publish(Instruction):
    """Operator: merge states that others extracted; then close windows, and stage what the task has for the outputs
    that it `publishes`, as its share of the results of an epoch. Answered by `PublishDone`. `closes`: the windows that
    end by this event time are closed, in microseconds; None: none are."""

    parts: tuple[StatePart, ...]
    epoch: int
    closes: int | None = None
    publishes: tuple[int, ...] = (0,)


@dataclass(frozen=True, eq=False)
class Finish(Instruction):
    """Operator: merge states that others extracted, and make this task's share of the result; answered by `FinishDone`.
    `ring_table`: the table by which to count the initial load; None: that is what was processed."""

    parts: tuple[StatePart, ...]
    ring_table: RoutingTable | None


@dataclass(frozen=True)
class Commit(Instruction):
    """Coordinator: all shares of a stage's results of an epoch are staged for an output; show them to readers, if the
    job publishes them. Answered by `Committed`. `at`: seconds from the beginning of the stream to the cut that ends the
    epoch. `staged`: what the sink gave for each task's share, in the order of the tasks. `output`: the number of the
    output among those of the stage."""

    stage: str
    epoch: int
    at: float
    staged: tuple[Any, ...]
    output: int = 0


@dataclass(frozen=True, eq=False)
class LogEpoch(Instruction):
    """Coordinator: an epoch has ended; note it in the job's log. No event answers it."""

    ended: EndedEpoch


@dataclass(frozen=True)
class Poll(Instruction):
    """Coordinator: look for more splits of a source whose input is open. Answered by `PollDone`, a while later if there
    are none yet. `for_lag`: give none, and say how far the position lags."""

    stage: str
    position: Position
    for_lag: bool = False


@dataclass(frozen=True)
class JobDone(Instruction):
    """Coordinator: the result is complete."""


@dataclass(frozen=True)
class JobFailed(Instruction):
    """Coordinator: the job cannot go on."""

    reason: str
