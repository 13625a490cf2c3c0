"""Cuts in the simulator: whatever a job is at, what it makes of its input behind a cut and before it is what it makes
without one; and machines that cut wrongly on purpose are caught."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from wires import job_of

from dpa.balance._tokens import TokenOptions
from dpa.balance.options import DoublingOptions, HalvingOptions, NoBalancingOptions
from dpa.balance.policy import BalancedStage
from dpa.measure.skew import skew
from dpa.protocol.graph import MAPPER, REDUCER, CheckpointTimes
from dpa.protocol.wire.events import MoveTasks
from dpa.routing.groupings.options import GroupingOptions, KeyOptions, PartialKeyOptions, RingOptions, ShuffleOptions
from experiments.simulated_jobs.random_graphs import run_random_graph
from experiments.simulated_jobs.random_jobs import random_job, run_random_job
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import SimulatedJob, behind


@pytest.mark.parametrize("seed", range(10))
def test_a_graph_goes_on_behind_any_cut(seed: int) -> None:
    run_random_graph(seed, cuts=True)


@pytest.mark.parametrize("mode", [{}, {"migrates": True}, {"placed": True}], ids=lambda mode: next(iter(mode), "merge"))
def test_a_job_whose_tasks_come_and_go_goes_on_behind_any_cut(mode: dict[str, bool]) -> None:
    happened: Counter[str] = Counter()

    def note(cluster: SimulatedCluster) -> None:
        happened[str(cluster.coordinator.states()["cut"])] += 1
        happened["goes on behind a cut"] += any(stage.first is not None for stage in cluster.graph.stages)

    for seed in range(4):
        run_random_job(seed, changes=True, cuts=True, watch=note, **mode)
    assert min(happened.values()) >= 5, happened


@pytest.mark.parametrize("seed", [8, 12])
def test_a_task_that_took_the_place_of_another_keeps_its_keys_where_they_go_by_no_table(seed: int) -> None:
    made = random_job(seed)
    assert not made.job.graph[REDUCER].grouping.is_ring
    graph = replace(made.job.graph, checkpoints=CheckpointTimes(0.003))
    job = replace(made.job, graph=graph, requests=((0.001, MoveTasks(1, REDUCER, (0,))),))
    cluster = SimulatedCluster(job, seed)
    cluster.run()
    assert cluster.checkpoints[-1].operators[REDUCER].table.members[0] != 0, "it has moved"
    for cut in cluster.checkpoints:
        shares = SimulatedCluster(behind(job, cut), seed).run().shares[REDUCER]
        rows = [row for share in shares for row in share.table.to_pylist()]
        assert sorted(len(row["records"]) for row in rows) == sorted(map(len, made.expected.values()))


def numbered(keys: Callable[[int], int], records: int, every: float, **options: Any) -> SimulatedJob:
    """So many records of these keys, and so often a checkpoint that is written at once."""
    job = job_of([f"key {keys(number) % 40}" for number in range(records)], 500, 20, mappers=2, **options)
    return replace(job, graph=replace(job.graph, checkpoints=CheckpointTimes(every)), write_seconds=0.0)


@pytest.mark.parametrize("every", [0.4, 0.001])
def test_checkpoints_and_changes_that_wait_take_turns(every: float) -> None:
    job = numbered(lambda number: number, 5_000, every, reducers=2)
    moves = tuple((0.1, MoveTasks(number, REDUCER, (number,))) for number in range(4))
    cluster = SimulatedCluster(replace(job, requests=moves, start_seconds=0.4), 1)
    steps = cluster.run().snapshot.steps
    between = [sum(before.at < cut.at < after.at for cut in cluster.checkpoints) for before, after in pairwise(steps)]
    assert between == [1, 1, 1]


@pytest.mark.parametrize(
    ("seed", "migrates", "grouping", "tasks", "how"),
    [
        (61, False, RingOptions(), 4, "ring to ring, +1, with the table that was learned"),
        (61, False, KeyOptions(), 6, "ring to key, +3, by its grouping"),
        (12, False, RingOptions(), 1, "key to ring, -3, by its grouping"),
        (8, False, PartialKeyOptions(), 3, "key to partial_key, +1, by its grouping"),
        (105, False, KeyOptions(), 3, "consistent to key, +1, by its grouping"),
        (1, False, ShuffleOptions(), 6, "ring to shuffle, +2, by its grouping"),
        (7, True, RingOptions(), 2, "ring to ring, -3, with the table that was learned"),
        (4, True, RingOptions(), 5, "ring to ring, +4, with the table that was learned"),
        (5, True, KeyOptions(), 6, "ring to key, +5, by its grouping"),
    ],
)
def test_a_job_goes_on_with_other_tasks_and_another_grouping(
    seed: int, migrates: bool, grouping: GroupingOptions, tasks: int, how: str
) -> None:
    made = random_job(seed, migrates=migrates)
    job = replace(made.job, graph=replace(made.job.graph, checkpoints=CheckpointTimes(0.003)))
    cluster = SimulatedCluster(job, seed)
    cluster.run()
    reducer = job.graph[REDUCER]
    balance = reducer.balance if grouping.is_ring else NoBalancingOptions()
    stages = (replace(job.graph[MAPPER], tasks=2), replace(reducer, tasks=tasks, grouping=grouping, balance=balance))
    job = behind(job, cluster.checkpoints[-1], replace(job.graph, stages=stages))
    shares = SimulatedCluster(job, seed).run().shares[REDUCER]
    rows = [row for share in shares for row in share.table.to_pylist()]
    assert sorted(row["records"] for row in rows) == sorted(made.expected.values())
    assert len(shares) >= tasks
    learned = "with the table that was learned" if job.graph[REDUCER].first is not None else "by its grouping"
    assert f"{reducer.grouping.kind} to {grouping.kind}, {tasks - reducer.tasks:+}, {learned}" == how


@pytest.mark.parametrize(
    ("balance", "moved"), [(HalvingOptions, ()), (DoublingOptions, (0,)), (DoublingOptions, (1, 0))]
)
def test_a_ring_that_was_changed_is_gone_on_with(balance: type[TokenOptions], moved: tuple[int, ...]) -> None:
    often = balance(min_queue=1, check_seconds=0.0, report_every=20)
    job = numbered(lambda number: number, 2_000, 0.2, reducers=3, balance=often)
    job = replace(job, requests=tuple((0.05, MoveTasks(number, REDUCER, (number,))) for number in moved))
    cluster = SimulatedCluster(job, 1)
    cluster.run()
    cut = cluster.checkpoints[-1]
    table = cut.operators[REDUCER].table
    after = behind(job, cut)
    again = SimulatedCluster(after, 2)
    begins_with = after.graph[REDUCER]
    policy = often.policy(BalancedStage(begins_with.tasks, first=begins_with.first))
    number = {member: index for index, member in enumerate(table.members)}
    hashes = np.arange(0, 2**32, 2**20, dtype=np.uint32)
    kept = [number[owner] for owner in table.owners_of(hashes).tolist()]
    assert begins_with.first_table().owners_of(hashes).tolist() == kept
    assert policy.table.owners_of(hashes).tolist() == kept
    assert kept != begins_with.ring_table().owners_of(hashes).tolist(), "it was changed"
    found = [row for share in again.run().shares[REDUCER] for row in share.table.to_pylist()]
    assert sorted(number for row in found for number in row["records"]) == list(range(2_000))


@pytest.mark.parametrize("balance", [HalvingOptions, DoublingOptions])
def test_the_skew_behind_a_cut_is_what_it_is_without_one(balance: type[TokenOptions]) -> None:
    often = balance(min_queue=1, check_seconds=0.0, report_every=20, tau=0.0, max_rounds=1)
    job = numbered(lambda number: number * number % 97, 3_000, 0.2, reducers=3, balance=often)
    processed: list[list[int]] = []

    def note(cluster: SimulatedCluster) -> None:
        if len(cluster.checkpoints) > len(processed):
            processed.append([task.processed for task in cluster.coordinator.snapshot()[REDUCER].tasks])

    cluster = SimulatedCluster(job, 2, watch=note)
    end, at = cluster.run().snapshot[REDUCER], len(cluster.checkpoints) // 2
    cut = cluster.checkpoints[at].operators[REDUCER]
    assert cut.rounds == dict.fromkeys(range(3), 1) and end.version == cut.table.version, "nobody may act any more"
    behind_it = SimulatedCluster(behind(job, cluster.checkpoints[at]), 2).run().snapshot[REDUCER]
    assert behind_it.version == 0, "nor behind the cut"
    without = [task.processed - before for task, before in zip(end.tasks, processed[at], strict=True)]
    assert sum(without) > 500
    assert skew([task.processed for task in behind_it.tasks]) == pytest.approx(skew(without), abs=0.02)
