"""What is noted of the tasks of a simulated stage, and what is read from that: throughput, delays, and gaps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dpa.protocol.task.operator import OperatorMachine
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import Event, ProcessDone
from dpa.protocol.wire.instructions import Instruction, ProcessBlocks
from dpa.protocol.wire.messages.data import Push

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Quantum:
    """Records that a task worked on: from when until when, how many, and their source time, in seconds."""

    task: int
    begin: float
    end: float
    records: int
    read_at: float


@dataclass(frozen=True)
class Gap:
    """A time in which nobody worked on a task's keys, though it had records that waited."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.begin


@dataclass
class Course:
    """What the tasks of a stage did.

    Attributes:
        quanta: in the order in which they ended.
        arrivals: the moment, task and number of records that senders pushed, in order.
    """

    quanta: list[Quantum] = field(default_factory=list)
    arrivals: list[tuple[float, int, int]] = field(default_factory=list)

    def machine(self) -> type[OperatorMachine]:
        """A machine for each of the tasks, which takes these notes."""
        course = self

        class Noting(OperatorMachine):
            """Does what it does anyway."""

            _began = 0.0

            def handle(self, event: Event, now: float) -> list[Instruction]:
                task, working_on = self.address.index, self.working_on
                if isinstance(event, ProcessDone):
                    quanta = (Quantum(task, self._began, now, push.block.rows, push.read_at) for push in working_on)
                    course.quanta.extend(quanta)
                elif isinstance(event, Envelope) and isinstance(event.message, Push) and not event.message.hops:
                    course.arrivals.append((now, task, event.message.block.rows))
                instructions = super().handle(event, now)
                if any(isinstance(instruction, ProcessBlocks) for instruction in instructions):
                    self._began = now
                return instructions

        return Noting

    def rates(self, since: float, seconds: int) -> Floats:
        """Records processed in each second of a time, shape (seconds,)."""
        ends = np.array([quantum.end for quantum in self.quanta])
        bounds = since + np.arange(seconds + 1)
        return np.histogram(ends, bounds, weights=[quantum.records for quantum in self.quanta])[0]

    def delay(self, share: float, until: float) -> float:
        """The seconds from source to processed that this share of the records processed by then did not exceed."""
        chosen = [quantum for quantum in self.quanta if quantum.end < until]
        delays = np.array([quantum.end - quantum.read_at for quantum in chosen])
        order = np.argsort(delays)
        counts = np.cumsum(np.array([quantum.records for quantum in chosen])[order])
        return float(delays[order][np.searchsorted(counts, share * counts[-1])])

    def gaps(self, first_of: Mapping[int, int]) -> dict[int, list[Gap]]:
        """The gaps of each task with its successors; `first_of` has the first task of which each one has the keys."""
        waiting, work = defaultdict(list), defaultdict(list)
        for at, task, records in self.arrivals:
            waiting[first_of[task]].append((at, records))
        for quantum in self.quanta:
            first = first_of[quantum.task]
            waiting[first].append((quantum.end, -quantum.records))
            work[first].append((quantum.begin, quantum.end))
        return {first: _idle(changes, work[first]) for first, changes in waiting.items()}


def _idle(changes: Sequence[tuple[float, int]], work: Sequence[tuple[float, float]]) -> list[Gap]:
    """The times in which something waits and nothing is worked on.

    Args:
        changes: the moments at which the number of records that wait changes, and by how many.
        work: from when until when records were worked on.
    """
    steps = [(at, records, 0) for at, records in changes]
    steps += [(begin, 0, 1) for begin, _ in work]
    steps += [(end, 0, -1) for _, end in work]
    steps.sort(key=lambda step: step[0])
    gaps, waiting, working, since = [], 0, 0, None
    for place, (at, records, workers) in enumerate(steps):
        waiting, working = waiting + records, working + workers
        if place + 1 < len(steps) and steps[place + 1][0] == at:
            continue
        is_idle = waiting > 0 and not working
        if is_idle and since is None:
            since = at
        elif not is_idle and since is not None:
            gaps.append(Gap(since, at))
            since = None
    return gaps
