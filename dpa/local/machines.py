"""The state machines of one generation of a job in this process, their virtual clock, and the delivery of messages.

Messages arrive at once, in the order in which they were sent. A subclass says what user code, polls, checkpoints and
commits do; the simulator of `experiments` also overrides how long everything takes."""

import heapq
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from dpa.protocol.balancer.machine import load_balancer_of
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.graph import Graph
from dpa.protocol.machine import Machine
from dpa.protocol.task.machine import TaskMachine
from dpa.protocol.task.user_code import UserCode
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address, Present
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.epochs import EndedEpoch
from dpa.protocol.wire.events import Event, TasksGone, TaskStarted
from dpa.protocol.wire.instructions import (
    Answer,
    CancelStart,
    CloseSplit,
    Commit,
    Instruction,
    JobDone,
    JobFailed,
    LogEpoch,
    OpenResult,
    OpenSplit,
    Poll,
    Send,
    StartTasks,
    StopTasks,
)
from dpa.protocol.wire.snapshots import JobSnapshot, WriteCheckpoint

T = TypeVar("T")


class Agenda(Generic[T]):
    """Events to come, each for an address. Events of one moment come in the order in which they were added.

    Attributes:
        now: virtual time in seconds.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._order = itertools.count()
        self._entries: list[tuple[float, int, Address, T]] = []

    def __bool__(self) -> bool:
        return bool(self._entries)

    @property
    def next_at(self) -> float | None:
        return self._entries[0][0] if self._entries else None

    @property
    def events(self) -> list[T]:
        return [event for _, _, _, event in self._entries]

    def add(self, delay: float, address: Address, event: T) -> None:
        """Add an event that comes after `delay` seconds."""
        heapq.heappush(self._entries, (self.now + delay, next(self._order), address, event))

    def take(self) -> tuple[Address, T]:
        """Take the next event, whose time becomes `now`."""
        self.now, _, address, event = heapq.heappop(self._entries)
        return address, event

    def cancel(self, event: T) -> None:
        self._entries = [entry for entry in self._entries if entry[3] is not event]
        heapq.heapify(self._entries)


class LocalMachines(ABC):
    """The machines, and what becomes of their instructions.

    Attributes:
        coordinator, balancer, tasks, machines: the state machines, by address.
        user_code: of each task.
        steps: how many events there were.
        stopped: tasks that have left.
        failure: why the job has failed; None: it has not.
        is_finished: whether the coordinator says that all is done.
    """

    def __init__(
        self,
        graph: Graph,
        coordinator: CoordinatorMachine,
        make: Callable[[Address], TaskMachine],
        *,
        generation: int = 0,
        now: float = 0.0,
    ) -> None:
        """`make` makes the machine of a task; `now`: the virtual time at which the generation begins."""
        self.graph = graph
        self.generation = generation
        self.agenda: Agenda[Any] = Agenda(now)  # events, and what subclasses put there
        self.schedule = self.agenda.add
        self.coordinator = coordinator
        self.balancer = load_balancer_of(graph)
        self.tasks: dict[Address, TaskMachine] = {}
        self.machines: dict[Address, Machine] = {COORDINATOR: self.coordinator, BALANCER: self.balancer}
        self.user_code: dict[Address, UserCode] = {}
        self.steps = 0
        self.stopped: set[Address] = set()
        self.failure: str | None = None
        self.is_finished = False
        self._make = make
        for address in graph.addresses:
            self.join(address)
        self.coordinator.live_in(generation)
        self.balancer.live_in(generation)

    @property
    def clock(self) -> float:
        """Seconds of virtual time."""
        return self.agenda.now

    def join(self, address: Address) -> None:
        """Make the machine of a task."""
        self.machines[address] = self.tasks[address] = task = self._make(address)
        task.live_in(self.generation)

    def step(self) -> None:
        """Take the next event."""
        address, event = self.agenda.take()
        self.steps += 1
        self.handle(address, event)

    def handle(self, address: Address, event: Event) -> None:
        """Hand an event to the machine at an address, and carry out its instructions."""
        if address in self.machines and address not in self.stopped:
            for instruction in self.machines[address].handle(event, self.clock):
                self.execute(address, instruction)

    def execute(self, address: Address, instruction: Instruction) -> None:
        match instruction:
            case Send(envelope):
                self.send(envelope)
            case OpenSplit() | CloseSplit() | OpenResult():
                self.user_code[address].carry_out(instruction)
            case StartTasks(addresses, nodes):
                self.start(addresses, nodes)
            case CancelStart():
                self.cancel_start()
            case StopTasks(addresses, present):
                self.stop(addresses, present)
            case WriteCheckpoint() | Poll() | Commit() | LogEpoch() | Answer():
                self._tell(instruction)
            case JobDone():
                self.is_finished = True
            case JobFailed(reason):
                self.failure = reason
            case _:
                self.work(address, instruction)

    def _tell(self, instruction: WriteCheckpoint | Poll | Commit | LogEpoch | Answer) -> None:
        match instruction:
            case WriteCheckpoint(cut):
                self.write(cut)
            case Poll():
                self.poll(instruction)
            case Commit():
                self.commit(instruction)
            case LogEpoch(ended):
                self.log_epoch(ended)
            case Answer():
                self.answer(instruction)

    def send(self, envelope: Envelope) -> None:
        self.schedule(0.0, envelope.receiver, envelope)

    def start(self, addresses: tuple[Address, ...], nodes: tuple[str | None, ...]) -> None:
        """Start tasks, on these nodes if they matter. Those of the graph are there already."""
        for address in addresses:
            if address not in self.machines:
                self.join(address)
                self.begin(address)
            self.schedule(0.0, COORDINATOR, TaskStarted(address))

    def cancel_start(self) -> None:  # noqa: B027  (tasks start at once)
        """Give up the start of tasks that are not up yet."""

    def stop(self, addresses: tuple[Address, ...], present: Present) -> None:
        self.stopped |= set(addresses)
        for address in self.machines:
            if address not in self.stopped:
                self.schedule(0.0, address, TasksGone(present))

    def answer(self, answer: Answer) -> None:  # noqa: B027  (optional)
        """Keep an answer for who asked."""

    @abstractmethod
    def begin(self, address: Address) -> None:
        """Give a task that starts its user code, and what else it needs."""

    @abstractmethod
    def work(self, address: Address, instruction: Instruction) -> None:
        """Run user code, and schedule the event that answers the instruction."""

    @abstractmethod
    def poll(self, poll: Poll) -> None: ...

    @abstractmethod
    def write(self, cut: JobSnapshot) -> None:
        """Write a checkpoint."""

    @abstractmethod
    def commit(self, commit: Commit) -> None: ...

    @abstractmethod
    def log_epoch(self, ended: EndedEpoch) -> None: ...
