"""What happened between a few tasks of a simulated job: messages, user code at work, and steps to tell it by.

The simulator keeps what came to each machine, and when. Machines are deterministic, so new ones that get the same
events do the same again, and can be looked at meanwhile.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from dpa.errors import DpaError
from dpa.protocol.balancer.machine import load_balancer_of
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.machine import Machine
from dpa.protocol.machines import task_of
from dpa.protocol.task.operator import OperatorMachine
from dpa.protocol.task.record_queue import MigratingQueue
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import Event, TaskStarted, UserCodeDone
from dpa.protocol.wire.instructions import (
    ExtractRanges,
    InstallStates,
    Instruction,
    ProcessBlocks,
    Send,
    StartTasks,
    StopTasks,
)
from dpa.protocol.wire.messages import Message
from dpa.protocol.wire.messages.data import Push
from dpa.protocol.wire.messages.members import (
    ChangeMembers,
    Flush,
    Flushed,
    Left,
    MembersChanged,
    Unsubscribe,
    Unsubscribed,
)
from dpa.protocol.wire.messages.migration import Marker, PassedMarkers, RangeTransfer, Settled
from dpa.protocol.wire.messages.tables import CurrentTable, LoadReport, TableUpdate
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import SimulatedJob


class Kind(Enum):
    """What a message brings, or user code works on."""

    RECORDS = "records"
    STATES = "states"
    CONTROL = "control"


@dataclass(frozen=True, eq=False)
class Happening:
    """A machine has handled an event.

    Attributes:
        at: when, in virtual seconds.
        who: whose machine it is.
        event: what came to it.
        instructions: what it gave back.
        aside: records that it keeps aside from now on, because a hand-over is under way.
    """

    at: float
    who: Address
    event: Event
    instructions: tuple[Instruction, ...]
    aside: int

    def sends(self, kind: type[Message]) -> bool:
        """Whether a message of this kind is to be sent."""
        return any(isinstance(each, Send) and isinstance(each.envelope.message, kind) for each in self.instructions)

    def instructs(self, kind: type[Instruction]) -> bool:
        """Whether an instruction of this kind was given."""
        return any(isinstance(each, kind) for each in self.instructions)


@dataclass(frozen=True)
class StepRule:
    """Who takes a step of the story, and by which happening it is known."""

    who: Address
    is_taken: Callable[[Happening], bool]


@dataclass(frozen=True)
class Step:
    """A step of the story: who took it and when, in virtual seconds."""

    who: Address
    at: float


@dataclass(frozen=True)
class Arrow:
    """A message: when it was sent and when it was taken in, in virtual seconds."""

    sender: Address
    receiver: Address
    sent: float
    came: float
    kind: Kind
    label: str


@dataclass(frozen=True)
class Stretch:
    """The time, in virtual seconds, in which a task's user code works on something of a kind; None: in which the task
    keeps records aside."""

    who: Address
    start: float
    end: float
    kind: Kind | None


@dataclass(frozen=True)
class Story:
    """What a picture shows.

    Attributes:
        cast: those who take part, with their names, from left to right.
        steps: in the order in which they are told.
        lives: from when to when each task was there, in virtual seconds.
    """

    cast: Mapping[Address, str]
    steps: tuple[Step, ...]
    arrows: tuple[Arrow, ...]
    stretches: tuple[Stretch, ...]
    lives: Mapping[Address, tuple[float, float]]


def tell(job: SimulatedJob, seed: int, cast: Mapping[Address, str], rules: Iterable[StepRule]) -> Story:
    """Run a job, and tell what happened between those of the cast.

    Raises:
        DpaError: a step was not taken.
    """
    told = [happening for happening in happenings(job, seed) if happening.who in cast]
    return Story(
        cast,
        tuple(_step(number, rule, told) for number, rule in enumerate(rules, 1)),
        tuple(arrow for arrow in (*_arrows(told), *_orders(told)) if {arrow.sender, arrow.receiver} <= cast.keys()),
        (*_work(told), *_aside(told)),
        _lives(told),
    )


def happenings(job: SimulatedJob, seed: int) -> Iterator[Happening]:
    """Run a job, and let new machines handle the same events again."""
    cluster = SimulatedCluster(job, seed)
    cluster.run()
    machines: dict[Address, Machine] = {
        COORDINATOR: CoordinatorMachine(job.graph),
        BALANCER: load_balancer_of(job.graph),
    }
    stopped: set[Address] = set()
    for at, who, event in cluster.log:
        if who in stopped:
            continue
        machine = machines[who] = machines.get(who) or task_of(job.graph, who)
        instructions = tuple(machine.handle(event, at))
        for instruction in instructions:
            if isinstance(instruction, StopTasks):
                stopped |= set(instruction.addresses)
        yield Happening(at, who, event, instructions, _kept_aside(machine))


def _kept_aside(machine: Machine) -> int:
    has_some = isinstance(machine, OperatorMachine) and isinstance(machine.queue, MigratingQueue)
    return machine.queue.aside if has_some else 0


def _step(number: int, rule: StepRule, told: Iterable[Happening]) -> Step:
    taken = [happening.at for happening in told if happening.who == rule.who and rule.is_taken(happening)]
    if not taken:
        raise DpaError(f"in the run of this seed {rule.who} does not take step {number}")
    return Step(rule.who, taken[0])


# --- messages

_CONTROL: dict[type[Message], str] = {
    Marker: "marker",
    PassedMarkers: "marker",
    Settled: "settled",
    ChangeMembers: "change",
    MembersChanged: "changed",
    Flush: "flush",
    Flushed: "flushed",
    Left: "left",
    Unsubscribe: "unsubscribe",
    Unsubscribed: "unsubscribed",
}
"""What control messages are called; those that are missing here and in `_words` are not shown."""


def _words(message: Message) -> tuple[Kind, str, int | None] | None:
    """What a message brings: its kind, a word, and how much it is, where that is counted; None if it is not shown."""
    match message:
        case Push():
            return Kind.RECORDS, "forwarded" if message.hops else "records", message.block.rows
        case RangeTransfer(_, part):
            return Kind.STATES, "states", 0 if part is None else len(part.keys)
        case LoadReport(load):
            return Kind.CONTROL, "queued", load.queue
        case TableUpdate(_, change):
            return Kind.CONTROL, f"table {change.version}", None
        case CurrentTable(_, table):
            return Kind.CONTROL, f"table {table.version}", None
    word = _CONTROL.get(type(message))
    return None if word is None else (Kind.CONTROL, word, None)


def _arrows(told: Sequence[Happening]) -> Iterator[Arrow]:
    """The messages that are shown; like ones that are sent at once are one arrow. Those of a channel are taken in in
    the order in which they were sent."""
    came = {_number(each.event): each.at for each in told if isinstance(each.event, Envelope)}
    taken: defaultdict[tuple[Address, Address], float] = defaultdict(float)
    for happening in told:
        made: dict[tuple[Address, Address, Kind, str], tuple[float, int | None]] = {}
        for envelope in [each.envelope for each in happening.instructions if isinstance(each, Send)]:
            channel, words = (envelope.sender, envelope.receiver), _words(envelope.message)
            taken[channel] = max(taken[channel], came.get(_number(envelope), math.inf))
            if words is not None and taken[channel] < math.inf:
                kind, word, amount = words
                before = made.get((*channel, kind, word), (0.0, None))[1] or 0
                made[(*channel, kind, word)] = taken[channel], None if amount is None else before + amount
        for (sender, receiver, kind, word), (at, amount) in made.items():
            label = word if amount is None else f"{word}: {amount}"
            yield Arrow(sender, receiver, happening.at, at, kind, label)


def _number(envelope: Envelope) -> tuple[Address, Address, int]:
    return envelope.sender, envelope.receiver, envelope.seq


# --- tasks


def _births(told: Iterable[Happening]) -> dict[Address, float]:
    """When each task was up."""
    return {each.event.address: each.at for each in told if isinstance(each.event, TaskStarted)}


def _orders(told: Sequence[Happening]) -> Iterator[Arrow]:
    """The coordinator has tasks started and stopped."""
    births = _births(told)
    for happening in told:
        for instruction in happening.instructions:
            match instruction:
                case StartTasks(addresses):
                    for new in addresses:
                        yield Arrow(happening.who, new, happening.at, births[new], Kind.CONTROL, "start")
                case StopTasks(addresses):
                    for old in addresses:
                        yield Arrow(happening.who, old, happening.at, happening.at, Kind.CONTROL, "stop")


def _lives(told: Sequence[Happening]) -> dict[Address, tuple[float, float]]:
    """From when to when each task was there, or to the end of the job."""
    deaths = {arrow.receiver: arrow.came for arrow in _orders(told) if arrow.label == "stop"}
    return {task: (birth, deaths.get(task, told[-1].at)) for task, birth in _births(told).items()}


def _work(told: Iterable[Happening]) -> Iterator[Stretch]:
    """User code at work: one piece at a time in each task."""
    kinds = {ProcessBlocks: Kind.RECORDS, ExtractRanges: Kind.STATES, InstallStates: Kind.STATES}
    begun: dict[Address, tuple[float, Kind]] = {}
    for happening in told:
        if isinstance(happening.event, UserCodeDone) and happening.who in begun:
            start, kind = begun.pop(happening.who)
            yield Stretch(happening.who, start, happening.at, kind)
        for instruction in happening.instructions:
            if type(instruction) in kinds:
                begun[happening.who] = happening.at, kinds[type(instruction)]


def _aside(told: Iterable[Happening]) -> Iterator[Stretch]:
    """Records kept aside, from the first to the last."""
    since: dict[Address, float] = {}
    for happening in told:
        if happening.aside:
            since.setdefault(happening.who, happening.at)
        elif happening.who in since:
            yield Stretch(happening.who, since.pop(happening.who), happening.at, None)
