"""Random requests to change the tasks of a simulated job while it runs, made of a seed alone."""

from __future__ import annotations

import random

from dpa.protocol.events import MoveTasks, Rescale, TaskRequest
from dpa.protocol.graph import Graph

Requests = tuple[tuple[float, TaskRequest], ...]

_MOST_TASKS = 6

_TWICE = 0.05
"""How often a task is named twice, which is refused."""


def random_changes(seed: int, graph: Graph) -> Requests:
    """Up to six requests, each with its virtual time in seconds. Most of them name tasks that will be there."""
    draw = random.Random(f"changes of {seed}")
    members = {stage.name: list(range(stage.tasks)) for stage in graph.stages}
    numbers = {stage.name: stage.tasks for stage in graph.stages}
    pace, at = draw.choice([0.002, 0.02, 0.1]), 0.0
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
