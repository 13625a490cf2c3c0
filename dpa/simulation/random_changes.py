"""Random changes of the tasks of a simulated job while it runs, made of a seed alone: what it is asked for, what is
cancelled, and placements that follow the load."""

from __future__ import annotations

import random
from dataclasses import replace

from dpa.placement.model import Cluster, Node
from dpa.placement.online import OnlineOptions, OnlinePlacement
from dpa.protocol.events import CancelChange, MoveTasks, Rescale, TaskRequest
from dpa.protocol.graph import Graph
from dpa.protocol.nodes import Placed
from dpa.simulation.job import SimulatedJob

Requests = tuple[tuple[float, TaskRequest | CancelChange], ...]

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


def with_random_changes(job: SimulatedJob, seed: int) -> SimulatedJob:
    """The job with random requests, and now and then tasks that cannot be started, or take very long."""
    requests = _random_changes(seed, job.graph)
    start_seconds = random.Random(f"starts of {seed}").choice(_START_SECONDS)
    return replace(
        job,
        requests=(*requests, *_random_cancels(seed, requests)),
        start_failures=_FAILURES,
        start_seconds=start_seconds,
        ticks=None if start_seconds > 1 else job.ticks,
    )


def with_random_placement(job: SimulatedJob, seed: int) -> SimulatedJob:
    """The job on up to three nodes, unlike and partly reserved, with a placement that is looked at again and again."""
    draw = random.Random(f"placement of {seed}")
    nodes = tuple(
        Node(name, capacity=draw.choice([0.5, 1.0, 2.0]), reserved=draw.choice([0.0, 0.0, 0.2]))
        for name in _NODES[: draw.randint(1, len(_NODES))]
    )
    names = tuple(node.name for node in nodes)
    options = OnlineOptions(
        policy=draw.choice(["improve", "otd", "replan"]),
        seconds=draw.choice([0.01, 0.05, 0.3]),
        least_gain=draw.choice([0.0, 0.05]),
        fetch_seconds=draw.choice([0.0, 0.0, 0.1]),
        read_seconds=draw.choice([0.0, 0.0, 0.07]),
    )
    allocator = draw.choice(["even", "task_level", "top_down", "greedy_matching_improved", "pairwise"])
    online = OnlinePlacement(options, Cluster(nodes), names, allocator, draw.choice([1.01, 1.2]))
    homes = {stage.name: [draw.choice(names) for _ in range(stage.tasks)] for stage in job.graph.stages}
    return replace(
        job,
        placed=Placed(homes, online),
        cores=draw.choice([None, 1]),
        start_seconds=draw.choice(_START_SECONDS),
        start_failures=_FAILURES,
        ticks=None,
        tick_seconds=draw.choice([0.01, 0.02, 0.1]),
    )


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
