"""A job for the simulator: its graph, what its tasks do, and how long everything takes in virtual time; and what a run
gives back."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from dpa.execution.block import Block
from dpa.execution.snapshots import TaskSnapshot
from dpa.execution.spill.room import Room
from dpa.execution.states import Reduced
from dpa.protocol.graph import Graph
from dpa.protocol.restore import asked, continued
from dpa.protocol.task.delivery import Delivery
from dpa.protocol.task.user_code import StageTask
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.events import (
    CancelChange,
    Event,
    FailureKind,
    PollDone,
    Redistribute,
    Start,
    TaskDied,
    TaskRequest,
)
from dpa.protocol.wire.instructions import Answer, Poll
from dpa.protocol.wire.metrics import Snapshot
from dpa.protocol.wire.nodes import Placed
from dpa.protocol.wire.snapshots import JobSnapshot
from dpa.sources.feed import Position
from dpa.sources.splits import Split, channel_of
from experiments.simulation.checks.published import Finals

_SLOWEST = 40.0
"""How many times as long as others a slow message takes at the most: longer than a chain of many others."""


@dataclass(frozen=True)
class Network:
    """How messages travel.

    Attributes:
        min_delay, max_delay: between which each takes, in seconds.
        duplicates: how often one is delivered twice, 0 to 1.
        slow: how often one takes longer, up to 40 times, 0 to 1.
    """

    min_delay: float = 0.0005
    max_delay: float = 0.005
    duplicates: float = 0.0
    slow: float = 0.0

    @property
    def mean_delay(self) -> float:
        """How long one takes on average, in seconds."""
        return (self.min_delay + self.max_delay) / 2 * (1 + self.slow * (_SLOWEST - 1) / 2)

    def delay(self, draw: random.Random) -> float:
        """How long the next message takes, in seconds."""
        delay = draw.uniform(self.min_delay, self.max_delay)
        if self.slow and draw.random() < self.slow:
            delay *= draw.uniform(1, _SLOWEST)
        return delay


NETWORK = Network()


@dataclass(frozen=True)
class SimulatedJob:
    """A job for the simulator.

    Attributes:
        graph: its stages and edges.
        work: what the tasks of each stage do.
        step_seconds: virtual time in which a task of a stage makes one record.
        service_seconds: virtual time in which task `index` of a stage processes one record.
        ticks: how many ticks each task gets, `tick_seconds` apart on average; None: one every `tick_seconds`
            as long as the job runs.
        variation: by how much the durations of user code vary, relative to the mean: 0.2 is up to 20 % either way.
        work_of: how many records' worth of work a block is at a stage; by default as many as it has records.
        slowness: the factor by which a task of a stage, by number, takes longer for the records that it begins with at
            a virtual time, in seconds.
        cores: how many cores the tasks of a node share (`Hosts`); None: each task has one.
        placed: the node of each task, and how they are placed again; None: all are on one, and nobody measures.
        requests: what the coordinator and the load balancer are asked for, with the virtual times, in seconds.
        deaths: which tasks die, if they are there, with the virtual times, in seconds.
        write_seconds: the longest virtual time that it takes to write a checkpoint.
        write_failures: how often one cannot be written, 0 to 1.
        begins_with: the snapshots of each stage with which the job begins; none but where it goes on behind a cut.
        before: its graph when it was cut.
        whole: its graph with all splits, where it has not all of them from the start.
        feeds: of each source whose input is open, all its splits; a poll finds some of those that come later.
        start_seconds: virtual time that it takes to start tasks that are to come while records flow.
        start_failures: how often tasks that are to come while records flow cannot be started, 0 to 1.
        lasting: virtual seconds from the begin of a piece of user code to its end, given the stage and the number of
            its task, when it begins, and the seconds that it takes; they are more where the task pauses. Messages reach
            it meanwhile, so its queue fills up.
        numbered: whether the value of each record is the number of its row in the input, so that its order is checked.
        due: the virtual time by which a source task has a number of its first records: it waits for them, and
            catches up where it was held back; by default all are there from the start.
        held: virtual seconds for which a message that one address sends another at a time is held on its way.
        deliveries: where the tasks of stages deliver their shares of results; by default they keep them.
        room: what each task has for its states; None: as much as they need.
        relays: through how many relays the coordinator and the tasks speak with each other.
        rounds: by stage, the redistributions that the load of each of its tasks had caused in a run that this one
            continues.
    """

    graph: Graph
    work: Mapping[str, StageTask]
    step_seconds: Callable[[str], float] = lambda stage: 0.0001
    service_seconds: Callable[[str, int], float] = lambda stage, index: 0.001
    network: Network = NETWORK
    ticks: int | None = 0
    tick_seconds: float = 0.25
    variation: float = 0.2
    work_of: Callable[[str, Block], float] = lambda stage, block: block.rows
    slowness: Callable[[str, int, float], float] = lambda stage, index, now: 1.0
    cores: int | None = None
    placed: Placed | None = None
    requests: tuple[tuple[float, TaskRequest | CancelChange | Redistribute], ...] = ()
    deaths: tuple[tuple[float, Address], ...] = ()
    write_seconds: float = 0.1
    write_failures: float = 0.0
    begins_with: Mapping[str, tuple[TaskSnapshot, ...]] = field(default_factory=dict)
    before: Graph | None = None
    whole: Graph | None = None
    feeds: Mapping[str, tuple[Split, ...]] = field(default_factory=dict)
    start_seconds: float = 0.0
    start_failures: float = 0.0
    lasting: Callable[[str, int, float, float], float] = lambda stage, index, begin, seconds: seconds
    numbered: bool = False
    due: Callable[[str, int, int], float] = lambda stage, index, records: 0.0
    held: Callable[[Address, Address, float], float] = lambda sender, receiver, now: 0.0
    deliveries: Mapping[str, Delivery] = field(default_factory=dict)
    room: Room | None = None
    relays: int = 0
    rounds: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def first_events(self) -> Iterator[tuple[float, Address, Event]]:
        """What comes by itself: when, in virtual seconds, to whom, and what."""
        yield 0.0, COORDINATOR, Start()
        for at, request in self.requests:
            yield at, BALANCER if isinstance(request, Redistribute) else COORDINATOR, request
        for at, task in self.deaths:
            yield at, task, TaskDied(task, FailureKind.DIED, "the simulated job has it die now")

    def polled(self, stage: str, position: Position, draw: random.Random) -> PollDone:
        """What a poll finds: a few splits, or none yet."""
        splits, start = self.feeds[stage], position.value
        stop = min(start + draw.randint(0, 2), len(splits))
        return PollDone(stage, splits[start:stop], Position(stop) if splits[stop:] else None)

    def lags(self, poll: Poll) -> PollDone:
        """How many rows a poll for the lag finds to have come after its position."""
        behind: Counter[str] = Counter()
        for split in self.feeds.get(poll.stage, ())[poll.position.value :]:
            behind[channel_of(split)] += split.rows
        return PollDone(poll.stage, (), poll.position, for_lag=True, behind=behind)


def behind(job: SimulatedJob, cut: JobSnapshot | None, graph: Graph | None = None) -> SimulatedJob:
    """The job as it goes on behind a cut of it, with snapshots as `SimulatedCluster` writes them; None: as it begins.
    Nobody dies, and nobody asks for anything. `graph`: its graph from then on, if that is another one."""
    job = replace(job, deaths=(), requests=())
    if cut is None:
        return job
    snapshots = {
        name: tuple(pickle.loads(cast(bytes, written)) for written in stage.snapshots.values())
        for name, stage in cut.operators.items()
    }
    graph = continued(graph or job.graph, cut, asked(*job.graph.stages))
    if graph.checkpoints is not None:
        graph = replace(graph, checkpoints=replace(graph.checkpoints, epoch=cut.epoch, staged=cut.staged))
    return replace(job, graph=graph, begins_with=snapshots, before=job.graph, whole=job.whole or job.graph)


@dataclass(frozen=True)
class SimulatedRun:
    """A finished simulated run.

    Attributes:
        shares: the result of each task of each queue-fed stage.
        snapshot: the statistics.
        seconds: the virtual time of the whole.
        steps: how many events there were.
        published: what each task of a stage published in each epoch of which it published partial results.
        answers: what became of the requests that somebody waits for, by their numbers.
        late: of each stage with windows, how many records came when theirs were closed.
        finals: of each stage that delivers rows of closed windows by epoch, those of each epoch, with those that
            checkpoints before the run had; of `LEFT` those that were staged, and that nothing has committed.
    """

    shares: Mapping[str, tuple[Reduced, ...]]
    snapshot: Snapshot
    seconds: float
    steps: int
    published: Mapping[str, tuple[tuple[Reduced, ...], ...]]
    answers: Mapping[int, Answer] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    finals: Finals = field(default_factory=dict)
