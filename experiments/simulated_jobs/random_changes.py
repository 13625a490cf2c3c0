"""Random changes of the tasks of a simulated job while it runs, made of a seed alone: what it is asked for, what is
cancelled, senders that come while states move, tasks that die, and placements that follow the load."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

from dpa.placement.model import Cluster, Node, OnlineOptions
from dpa.placement.online import OnlinePlacement
from dpa.protocol.graph import CheckpointTimes, Graph
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import CancelChange, MoveTasks, Redistribute, Rescale, TaskRequest
from dpa.protocol.wire.nodes import Placed
from dpa.protocol.wire.snapshots import JobSnapshot
from dpa.sources.feed import Position
from experiments.otd.methods import METHODS, OTD
from experiments.placement.baselines import BASELINES
from experiments.simulated_jobs.pauses import Pauses
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import SimulatedJob, behind

Requests = tuple[tuple[float, TaskRequest | CancelChange | Redistribute], ...]

_MOST_TASKS = 6

_NODES = ("a", "b", "c")

_TWICE = 0.05
"""How often a task is named twice, which is refused."""

_FAILURES = 0.15
"""How often tasks cannot be started."""

_CANCELLED = 0.15
"""How often a request is followed by one to cancel the changes of its stage."""

_START_SECONDS = (0.0, 0.0, 0.01, 0.01, 0.05, 0.05, 300.0)
"""How long tasks take to start: the last, for longer than any job takes without them, and records may seem lost."""


_REDISTRIBUTED = 0.5
"""How often somebody asks for redistributions."""

_SOON_GONE = 0.3
"""How often a sender that has come is to leave before it has begun."""

_NEW_SENDERS = 0.25
"""How often, where states migrate, the changes are senders that come while they do."""

_MORE_LATENESS = 0.5
"""How often a job that begins again behind a cut asks for more lateness than before."""

_MOVED_EARLY = 0.6
"""How often, where a grouping goes by no ring, the changes are tasks of its stage that move at once."""


def with_random_changes(job: SimulatedJob, seed: int) -> SimulatedJob:
    """The job with random requests, and now and then tasks that cannot be started, or take very long."""
    draw = random.Random(f"new senders of {seed}")
    pairs = [
        (feeder.name, stage.name)
        for stage in job.graph.queue_fed()
        for feeder in job.graph.upstream(stage.name)
        if stage.migrates and feeder.why_fixed is None
    ]
    if pairs and draw.random() < _NEW_SENDERS:
        return _with_new_senders(job, draw, *draw.choice(pairs))
    without_ring = [
        stage.name for stage in job.graph.queue_fed() if not stage.grouping.is_ring and stage.why_fixed is None
    ]
    if without_ring and draw.random() < _MOVED_EARLY:
        stays = [name for name in without_ring if not job.graph[name].moves_states()]
        return _with_early_moves(job, draw, draw.choice(stays or without_ring))
    requests = _random_changes(seed, job.graph)
    start_seconds = random.Random(f"starts of {seed}").choice(_START_SECONDS)
    return replace(
        job,
        requests=(*requests, *_random_cancels(seed, requests), *_random_redistributions(seed, job)),
        start_failures=_FAILURES,
        start_seconds=start_seconds,
        ticks=None if start_seconds > 1 else job.ticks,
    )


def _with_early_moves(job: SimulatedJob, draw: random.Random, stage: str) -> SimulatedJob:
    """The job, of a stage of which some tasks move, one after the other, soon after the stream begins: most of what
    follows comes behind. One that is asked for before it begins is refused."""
    tasks, at = job.graph[stage].tasks, 0.0
    requests: list[tuple[float, TaskRequest]] = []
    for task in draw.sample(range(tasks), draw.randint(1, tasks)):
        at += draw.uniform(2, 10) * job.network.mean_delay
        requests.append((at, MoveTasks(len(requests), stage, (task,))))
    return replace(job, requests=tuple(requests))


def _with_new_senders(job: SimulatedJob, draw: random.Random, feeder: str, stage: str) -> SimulatedJob:
    """The job with tasks of the stage that are relieved of keys, and one more sender about then, several times. The
    relieved task pauses, so that the sender's records of these keys come to others before the states do."""
    hop, first, tasks = job.network.max_delay, job.graph[feeder].tasks, job.graph[stage].tasks
    requests: list[tuple[float, TaskRequest | Redistribute]] = []
    pauses: list[tuple[int, tuple[float, float]]] = []
    at = draw.uniform(4, 8) * hop
    for turn in range(draw.randint(2, 4)):
        relieved = draw.randrange(tasks)
        requests.append((at, Redistribute(stage, relieved)))
        comes = max(0.0, at + draw.uniform(-1, 2) * hop)
        requests.append((comes, Rescale(2 * turn, feeder, first + turn + 1)))
        if draw.random() < _SOON_GONE:
            requests.append((comes + hop, Rescale(2 * turn + 1, feeder, first)))
        pauses.append((relieved, (at, at + 0.02 + 10 * hop)))
        at += 0.02 + draw.uniform(10, 20) * hop
    of = {index: Pauses.of(interval for task, interval in pauses if task == index) for index in range(tasks)}
    return replace(
        job,
        requests=tuple(requests),
        lasting=lambda name, index, begin, seconds: (
            of[index].lasting(begin, seconds) if name == stage and index in of else seconds
        ),
    )


def with_open_inputs(job: SimulatedJob, seed: int) -> SimulatedJob:
    """The same job, in which a part of the input of each source comes later."""
    draw = random.Random(f"open inputs of {seed}")
    feeds = {stage.name: stage.input.splits for stage in job.graph.stages if job.graph.is_source(stage.name)}
    first = {name: draw.randint(0, len(splits)) for name, splits in feeds.items()}
    stages = tuple(
        replace(stage, input=replace(stage.input, splits=feeds[stage.name][:size], position=Position(size)))
        if (size := first.get(stage.name)) is not None
        else stage
        for stage in job.graph.stages
    )
    return replace(job, graph=replace(job.graph, stages=stages), feeds=feeds, whole=job.whole or job.graph)


def with_random_cuts(job: SimulatedJob, seed: int) -> SimulatedJob:
    """The job with checkpoints, some of which may not be written."""
    draw = random.Random(f"cuts of {seed}")
    return replace(
        job,
        graph=replace(job.graph, checkpoints=CheckpointTimes(draw.choice([0.001, 0.01, 0.03]))),
        write_seconds=draw.choice([0.0, 0.02]),
        write_failures=draw.choice([0.0, 0.0, 0.5]),
    )


def again(job: SimulatedJob, cluster: SimulatedCluster, seed: int) -> Iterator[SimulatedJob]:
    """The job as it goes on behind some of the cuts of a run, or from the start, where there are none. Some ask for
    more lateness from then on."""
    draw, later = random.Random(f"restores of {seed}"), random.Random(f"lateness behind cuts of {seed}")
    cuts = cluster.checkpoints
    if not cuts:
        yield behind(job, None)
    for cut in draw.sample(cuts, min(2, len(cuts))):
        asked = _with_more_lateness(job.graph, later) if later.random() < _MORE_LATENESS else None
        found = behind(job, cut, asked)
        yield replace(found, rounds=_continued(cluster.rounds[cut.epoch], cut, found.graph))


def _with_more_lateness(graph: Graph, draw: random.Random) -> Graph:
    """The graph whose windows take late records for some seconds of event time more."""
    stages = (
        stage
        if stage.windows is None
        else replace(
            stage, windows=replace(stage.windows, lateness=stage.windows.lateness + draw.randint(0, 30_000_000))
        )
        for stage in graph.stages
    )
    return replace(graph, stages=tuple(stages))


def _continued(rounds: Mapping[str, Mapping[int, int]], cut: JobSnapshot, graph: Graph) -> dict[str, dict[int, int]]:
    """Rounds by the numbers that tasks have behind a cut; none of stages whose tables begin anew."""
    return {
        name: {index: of.get(member, 0) for index, member in enumerate(cut.operators[name].table.members)}
        for name, of in rounds.items()
        if graph[name].first is not None
    }


def with_random_death(job: SimulatedJob, seed: int) -> SimulatedJob:
    """The job, of which a task dies, if it is there."""
    draw = random.Random(seed)
    victim = Address(draw.choice(job.graph.stages).name, draw.randint(0, 3))
    return replace(job, deaths=((draw.expovariate(20), victim),))


def with_random_placement(job: SimulatedJob, seed: int) -> SimulatedJob:
    """The job on up to three nodes, unlike and partly reserved, with a placement that is looked at again and again."""
    draw = random.Random(f"placement of {seed}")
    nodes = tuple(
        Node(name, capacity=draw.choice([0.5, 1.0, 2.0]), reserved=draw.choice([0.0, 0.0, 0.2]))
        for name in _NODES[: draw.randint(1, len(_NODES))]
    )
    names = tuple(node.name for node in nodes)
    options = OnlineOptions(
        policy=draw.choice(["improve", METHODS[OTD].policy, "replan"]), seconds=draw.choice([0.01, 0.05, 0.3])
    )
    for choices in (2, 3, 3):  # of options that were: seeds mean what they did
        draw.choice(range(choices))
    allocator = draw.choice(["even", "task_level", "top_down", "greedy_matching_improved", "greedy_matching"])
    allocator, tolerance = BASELINES.get(allocator, allocator), draw.choice([1.01, 1.2])
    online = OnlinePlacement(options, Cluster(nodes), names, allocator, tolerance)
    homes = {stage.name: [draw.choice(names) for _ in range(stage.tasks)] for stage in job.graph.stages}
    return replace(
        job,
        placed=Placed(homes, online),
        cores=draw.choice([None, 1]),
        start_seconds=draw.choice(_START_SECONDS),
        start_failures=_FAILURES,
        ticks=None,
        tick_seconds=max(draw.choice([0.01, 0.02, 0.1]), job.network.mean_delay / 2),
    )


def _random_redistributions(seed: int, job: SimulatedJob) -> Requests:
    """Some tasks of a stage are to be relieved whatever their load."""
    draw = random.Random(f"redistributions of {seed}")
    if draw.random() > _REDISTRIBUTED:
        return ()
    stages, until = list(job.graph.queue_fed())[-3:], 0.2 + 20 * job.network.max_delay
    times = sorted(draw.uniform(0, until) for _ in range(draw.randint(2, 12)))
    chosen = [(at, draw.choice(stages)) for at in times]
    return tuple((at, Redistribute(stage.name, draw.randrange(stage.tasks))) for at, stage in chosen)


def _random_cancels(seed: int, requests: Requests) -> Requests:
    """Some of the requests are cancelled later, with what else is asked for their stages."""
    draw = random.Random(f"cancels of {seed}")
    return tuple(
        (at + draw.choice([0.0, 0.01, 0.05]), CancelChange(len(requests) + number, request.stage))
        for number, (at, request) in enumerate(requests)
        if draw.random() < _CANCELLED
    )


def _random_changes(seed: int, graph: Graph) -> Requests:
    """Up to six requests, each with its virtual time in seconds. Most of them name tasks that will be there."""
    draw = random.Random(f"changes of {seed}")
    members = {stage.name: list(range(stage.tasks)) for stage in graph.stages}
    numbers = {stage.name: stage.tasks for stage in graph.stages}
    pace, at = draw.choice([0.002, 0.01, 0.05]), 0.0
    requests: list[tuple[float, TaskRequest]] = []
    for request in range(draw.randint(1, 6)):
        at += draw.expovariate(1 / pace)
        stage = draw.choice(graph.stages)
        there = members[stage.name]
        if draw.random() < 0.5:
            tasks = draw.randint(1, _MOST_TASKS)
            requests.append((at, Rescale(request, stage.name, tasks)))
            new = max(0, tasks - len(there))
            members[stage.name] = [*there[:tasks], *range(numbers[stage.name], numbers[stage.name] + new)]
        else:
            moved = draw.sample(there, draw.randint(1, len(there)))
            if draw.random() < _TWICE:
                requests.append((at, MoveTasks(request, stage.name, (*moved, moved[0]))))
                continue
            requests.append((at, MoveTasks(request, stage.name, tuple(moved))))
            new = len(moved)
            place = {old: numbers[stage.name] + turn for turn, old in enumerate(moved)}
            members[stage.name] = [place.get(task, task) for task in there]
        if stage.why_fixed is not None:
            members[stage.name], new = there, 0
        members[stage.name].sort()
        numbers[stage.name] += new
    return tuple(requests)
