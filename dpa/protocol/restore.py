"""A job that continues from a cut: the same graph, with the unread input and the newest tables of the cut.

Its stages may have other numbers of tasks, groupings and policies than before: each state goes to the task that records
of its key go to now. Counters, versions and task numbers begin again. What was learned about the keys is in the tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TypeVar

import numpy as np

from dpa.balance.adaptive.rebalance import FirstTable
from dpa.balance.options import AdaptiveOptions, BalanceOptions
from dpa.measure.load import KeySample
from dpa.protocol.graph import Graph, Stage
from dpa.protocol.wire.snapshots import JobSnapshot, OperatorSnapshot
from dpa.routing.assignment import Assignment, KeySplit, Single
from dpa.routing.groupings.base import Grouping
from dpa.routing.groupings.options import RING
from dpa.routing.hashing import Hashes
from dpa.routing.members import MemberChange, with_members
from dpa.routing.table import Owners, RoutingTable

S = TypeVar("S")


@dataclass(frozen=True)
class AskedStage:
    """What a job asked for of a stage, if it matters to a job that continues from its cut.

    Attributes:
        grouping: the fields of its options.
        ring: the tokens of a routing table, their format, and the seed of hashes.
    """

    tasks: int
    grouping: Mapping[str, object]
    ring: tuple[int, str, int]


def asked(*stages: Stage) -> dict[str, AskedStage]:
    rings = [(of.balance.initial_tokens, of.balance.token_format, of.balance.hash_seed) for of in stages]
    return {of.name: AskedStage(of.tasks, asdict(of.grouping), ring) for of, ring in zip(stages, rings, strict=True)}


def continued(graph: Graph, cut: JobSnapshot, before: Mapping[str, AskedStage] | None = None) -> Graph:
    """The graph as it continues from a cut. A stage keeps its number of tasks at the cut, unless the job now asks for
    another number than `before`; None: it asks for the same."""
    before = before or asked(*graph.stages)
    stages = []
    for stage in graph.stages:
        is_as_before = stage.tasks == before[stage.name].tasks
        if (source := cut.sources.get(stage.name)) is not None:
            tasks = source.tasks if is_as_before else stage.tasks
            given = None if stage.input.given is None else source.given
            rest = replace(stage.input, splits=source.rest, position=source.position, given=given)
            stages.append(replace(stage, tasks=tasks, input=rest, reached=source.reached))
        else:
            operator = cut.operators[stage.name]
            tasks = len(operator.table.members) if is_as_before else stage.tasks
            begun = replace(stage, tasks=tasks, reached=operator.reached, published=operator.published)
            stages.append(_with_table(begun, operator, before[stage.name]))
    return replace(graph, stages=tuple(stages), tolerated=replace(graph.tolerated, before=cut.failed))


def begins_with(
    stage: Stage, snapshots: Sequence[S], index: int, before: AskedStage | None = None
) -> tuple[Sequence[S], RoutingTable | None]:
    """The snapshots that a task begins with, and the table that says which of their states are its own.

    Args:
        snapshots: of the stage's tasks, in order.
        before: what the job that was cut had asked for of the stage; None: the same.

    Returns:
        None for the table if all states are the task's: a grouping that goes by no table sends it the same keys again.
    """
    table = stage.first_table()
    if stage.grouping.is_ring:
        return snapshots, table
    is_as_before = len(snapshots) == stage.tasks and (before is None or before.grouping == asdict(stage.grouping))
    if is_as_before and not stage.scattered:
        return snapshots[index : index + 1], None
    if stage.grouping.splits_keys:  # states are merged with the owner by the table in the end, wherever they are
        return snapshots, table
    given = {field.name: getattr(table, field.name) for field in fields(table)}
    return snapshots, _GroupedTable(**given, keys=stage.grouping.create(table, 0))


@dataclass(frozen=True, eq=False)
class _GroupedTable(RoutingTable):
    """Gives each key to the task that a grouping other than the ring sends it to; `keys` does not split keys."""

    keys: Grouping | None = None

    def owners_of(self, hashes: Hashes) -> Owners:
        owners = None if self.keys is None else self.keys.owners_of(hashes)
        assert owners is not None
        return owners


def _with_table(stage: Stage, cut: OperatorSnapshot, before: AskedStage) -> Stage:
    # Keys stay with the tasks that had them if the ring has the same tokens, and the policy can go on from the table.
    # Else the plain ring gives them out, and the policy learns again. The table gains or loses tasks as the stage does.
    balance, table = stage.balance, cut.table
    by_ring = (
        stage.grouping.is_ring and before.grouping["kind"] == RING and asked(stage)[stage.name].ring == before.ring
    )
    found = _with_tasks(renumbered(table), stage.tasks, balance) if by_ring else None
    if found is None:
        return replace(stage, first=None, scattered=table.version > 0)
    rounds = {index: cut.rounds.get(member, 0) for index, member in enumerate(table.members[: stage.tasks])}
    return replace(stage, first=FirstTable(found, KeySample.empty(), {}, rounds))


def _with_tasks(table: RoutingTable, tasks: int, balance: BalanceOptions) -> RoutingTable | None:
    """The table with this number of tasks; None: the policy goes by rings, and the table is no ring."""
    change = MemberChange(joins=tuple(range(table.reducers, tasks)), leaves=table.members[tasks:])
    if not isinstance(balance, AdaptiveOptions):
        ring = balance.ring_of(table)
        return None if ring is None else renumbered(ring.change_members(change).snapshot(0))
    if len(table.members) == tasks:
        return table
    return renumbered(with_members(table, change, {joins: balance.positions(joins) for joins in change.joins}))


def renumbered(table: RoutingTable) -> RoutingTable:
    """The same table with version 0 and the tasks numbered from 0 without gaps."""
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
