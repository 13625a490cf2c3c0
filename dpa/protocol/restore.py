"""A job that begins with a cut of an earlier one: the same graph, with what was not read for input, and the tables that
were the newest.

Counters, versions and numbers of tasks begin again. What was learned about the keys is in the tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from dpa.balance.adaptive.first_table import FirstTable
from dpa.balance.options import AdaptiveOptions
from dpa.measure.load import KeySample
from dpa.protocol.graph import Graph, Stage
from dpa.protocol.wire.cut import Cut
from dpa.routing.assignment import Assignment, KeySplit, Single
from dpa.routing.table import RoutingTable

S = TypeVar("S")


def continued(graph: Graph, cut: Cut) -> Graph:
    """The graph as it goes on behind a cut."""
    stages = [
        replace(stage, splits=cut.sources[stage.name].rest, tasks=cut.sources[stage.name].tasks)
        if stage.name in cut.sources
        else _with_table(stage, cut.operators[stage.name].table)
        for stage in graph.stages
    ]
    return replace(graph, stages=tuple(stages))


def begins_with(stage: Stage, snapshots: Sequence[S], index: int) -> tuple[Sequence[S], RoutingTable | None]:
    """The snapshots, of a stage's tasks in order, with which a task of it begins, and the table that says which of
    their states are the task's; None: all are, as a grouping that goes by no table sends it the same keys again."""
    if stage.grouping.is_ring:
        return snapshots, stage.first_table()
    return snapshots[index : index + 1], None


def _with_table(stage: Stage, table: RoutingTable) -> Stage:
    """A stage with as many tasks as it had. Its keys belong to those that had them, if its policy goes by tables that
    are no rings; else they belong to those whom the ring gives them, and what was learned is learned again."""
    stage = replace(stage, tasks=len(table.members))
    if not (stage.grouping.is_ring and isinstance(stage.balance, AdaptiveOptions)):
        return replace(stage, first=None)
    return replace(stage, first=FirstTable(renumbered(table), KeySample.empty(), {}))


def renumbered(table: RoutingTable) -> RoutingTable:
    """The same table as the first of a stage whose tasks have no gaps in their numbers."""
    number = {member: index for index, member in enumerate(table.members)}
    used, assigned = np.unique(table.assigned, return_inverse=True)
    return RoutingTable(
        0,
        table.positions,
        assigned.astype(np.int32),
        tuple(_renumbered(table.assignments[code], number) for code in used.tolist()),
        len(number),
        table.seed,
    )


def _renumbered(assignment: Assignment, number: Mapping[int, int]) -> Assignment:
    if isinstance(assignment, KeySplit):
        return replace(assignment, reducers=tuple(number[each] for each in assignment.reducers), since=0)
    return Single(number[assignment.reducer])
