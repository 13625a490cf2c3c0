"""Random jobs in the simulator, of every kind: none breaks an invariant or has another result than the model's,
whatever comes, goes, moves and dies, and behind any cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from wires import check_waits

from dpa.errors import JobFailedError
from dpa.execution.spill.bounded import BoundedStates
from dpa.execution.spill.room import Room
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.machine import Machine
from dpa.protocol.task.operator import OperatorMachine
from dpa.protocol.task.source import SourceMachine
from dpa.protocol.wire.addresses import COORDINATOR
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import CancelChange, Event, FailureKind, MoveTasks, Rescale, TaskDied
from dpa.protocol.wire.instructions import Instruction
from dpa.protocol.wire.messages.end import Deliver
from experiments.interleavings_faults import run as run_with_faults
from experiments.simulated_jobs.random_changes import with_random_changes, with_random_death
from experiments.simulated_jobs.random_faults import with_random_faults
from experiments.simulated_jobs.random_graphs import random_graph, run_random_graph
from experiments.simulated_jobs.random_jobs import random_job, run_random_job
from experiments.simulated_jobs.random_timers import random_timers, run_random_timers
from experiments.simulated_jobs.random_windows import run_random_windows
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import SimulatedRun
from experiments.simulation.violation import InvariantViolationError

JOBS, MIGRATING, CHANGING = "jobs", "jobs whose states migrate", "jobs whose tasks change"
BOTH = "jobs whose states migrate and whose tasks change"
RUNS: dict[str, tuple[Callable[[int], SimulatedRun], int]] = {
    JOBS: (run_random_job, 90),
    MIGRATING: (partial(run_random_job, migrates=True), 90),
    CHANGING: (partial(run_random_job, changes=True), 68),
    BOTH: (partial(run_random_job, changes=True, migrates=True), 68),
    "graphs": (run_random_graph, 40),
    "graphs whose tasks change": (partial(run_random_graph, changes=True), 44),
}
"""By kind, how a seed is run, and how many are."""

CHUNK = 30


@cache
def run_of(kind: str, seed: int) -> SimulatedRun:
    """The run of a seed, for all tests that look at it."""
    return named(seed, partial(RUNS[kind][0], seed))


def named(seed: int, run: Callable[[], Any]) -> Any:
    """What a run gives; if it breaks an invariant, the test fails with its seed and what happened last."""
    try:
        return run()
    except InvariantViolationError as violation:
        pytest.fail("\n".join([f"seed {seed}: {violation}", *violation.history[-40:]]))


def runs_of(kind: str) -> list[SimulatedRun]:
    return [run_of(kind, seed) for seed in range(RUNS[kind][1])]


@pytest.mark.parametrize(
    ("kind", "first"), [(kind, first) for kind in RUNS for first in range(0, RUNS[kind][1], CHUNK)]
)
def test_random_jobs_keep_every_invariant_and_give_the_right_result(kind: str, first: int) -> None:
    for seed in range(first, min(first + CHUNK, RUNS[kind][1])):
        run = run_of(kind, seed)
        if kind in (JOBS, "graphs"):
            check_waits(run)


def faulty_timers(seed: int) -> None:
    made = random_timers(seed)
    generations = with_random_faults(made.job, seed)
    made.check(generations.run(1_000_000), generations.history)


ALL = {"changes": True, "cuts": True, "feeds": True}
OTHERS: dict[str, tuple[Callable[..., object], dict[str, bool], tuple[int, ...]]] = {
    # of 41, tasks had changed, so that states were exchanged by the ring, before the cut
    "jobs with open inputs": (run_random_job, ALL, (3, 5, 8, 41)),
    "graphs with open inputs": (run_random_graph, {"feeds": True, "cuts": True}, (3, 5, 8)),
    # of 39, the table by which a task leaves overtakes the end of a cut; of 12, states are left where no grouping looks
    "jobs behind a cut": (run_random_job, {"changes": True, "cuts": True}, (39, 12)),
    "jobs that may allow rounds again behind a cut": (run_random_job, {"cuts": True}, (33,)),
    "graphs through relays": (run_random_graph, {"changes": True, "cuts": True, "relays": True}, (3, 5)),
    # of 37 and 142, rows come where windows end; 38 has rows of earlier splits that nobody has read
    "windows": (run_random_windows, {}, (0, 1, 5, 37, 38, 142)),
    # of 30292, a task is stopped that never took that it may go on
    "windows while tasks change": (run_random_windows, ALL, (1, 5, 30292)),
    "windows that may open again with more lateness": (run_random_windows, {"cuts": True, "feeds": True}, (0,)),
    "windows that are published": (run_random_windows, {"feeds": True, "finals": True}, (0, 1, 3)),
    # of 19, 24 and 41, a cut begins at the end of another; of 369, a task hears late of an earlier cut
    "windows that are published while tasks change": (
        *(run_random_windows, {**ALL, "finals": True}),
        (1, 2, 19, 24, 41, 369),
    ),
    "windows through relays": (run_random_windows, {**ALL, "finals": True, "relays": True}, (3, 5)),
    # of 0, epochs might begin at zero behind a checkpoint; of 5, the count of published rows
    "windows whatever dies": (run_with_faults, {"windows": True}, (0, 1, 2, 5)),
    # of 26, rows come when timers are due
    "timers while tasks change": (run_random_timers, ALL, (1, 2, 26)),
    "timers whatever dies": (faulty_timers, {}, (1, 2)),
}
"""How a seed is run, and seeds, some of which show what random ones show seldom, or never."""


@pytest.mark.parametrize(("kind", "seed"), [(kind, seed) for kind, (*_, seeds) in OTHERS.items() for seed in seeds])
def test_so_do_those_with_windows_timers_relays_and_open_inputs(kind: str, seed: int) -> None:
    run, options, _ = OTHERS[kind]
    run(seed, **options)


@pytest.mark.parametrize(
    ("run", "mode", "seeds"),
    [(run_random_job, {"changes": True, **mode}, 2) for mode in ({}, {"migrates": True}, {"placed": True})]
    + [(run_random_graph, {}, 6)],
)
def test_jobs_whose_tasks_have_room_for_hardly_any_state_spill_and_go_on_behind_any_cut(
    run: Callable[..., object], mode: dict[str, bool], seeds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spilled: list[int] = []
    spill = BoundedStates._spill
    monkeypatch.setattr(BoundedStates, "_spill", lambda self, cold: (spilled.append(len(cold)), spill(self, cold)))
    for seed in range(seeds):
        run(seed, cuts=True, room=Room(2_000, path=str(tmp_path)), **mode)
    assert len(spilled) > 10
    assert not list(tmp_path.iterdir()), "nothing is left"


# --- what they reach


@pytest.mark.parametrize(("kind", "least"), [(JOBS, 8), (MIGRATING, 10)])
def test_random_jobs_redistribute_forward_refuse_and_are_blocked(kind: str, least: int) -> None:
    happened: Counter[str] = Counter()
    for snapshot in (run.snapshot for run in runs_of(kind)):
        stage = snapshot[REDUCER]
        happened["redistributed"] += stage.version > 0
        happened["twice"] += stage.version > 1
        happened["forwarded"] += sum(task.forwarded for task in stage.tasks) > 0
        happened["refused"] += len(stage.decisions) > stage.version
        happened["blocked"] += any(task.blocked_seconds for task in snapshot[MAPPER].tasks)
        assert snapshot.phase == "done"
    assert all(happened[what] >= least for what in ("redistributed", "twice", "forwarded", "refused", "blocked")), (
        happened
    )


def test_random_jobs_publish_what_is_worth_looking_at() -> None:
    happened: Counter[str] = Counter()
    more = [seed for seed in range(90, 180) if random_job(seed).job.graph[REDUCER].publishing]
    for run in (*runs_of(JOBS), *map(run_random_job, more)):
        stats, published = run.snapshot[REDUCER].aggregation, run.published[REDUCER]
        if stats is None:
            assert published == ()
            continue
        assert stats.epochs == len(published)
        records = [sum(int(share.records.sum()) for share in epoch) for epoch in published]
        happened["epochs"] += stats.epochs > 0
        happened["several"] += stats.epochs > 3
        happened["states transferred"] += stats.states > 0
        happened["grown"] += bool(records) and records[0] < records[-1]
        happened["redistributed"] += run.snapshot[REDUCER].version > 0 and stats.epochs > 0
    assert len(happened) == 5 and min(happened.values()) >= 5, happened


def test_random_graphs_have_all_shapes_and_stages_of_all_kinds_whose_states_migrate() -> None:
    happened: Counter[str] = Counter()
    migrating: set[str] = set()
    for made in map(random_graph, range(100)):
        graph = made.job.graph
        happened["chain"] += len(graph.stages) > 2
        happened["fan-out"] += any(len(graph.out_of(stage.name)) > 1 for stage in graph.stages)
        happened["fan-in"] += any(len(graph.upstream(stage.name)) > 1 for stage in graph.stages)
        happened["two edges between two stages"] += len(set(graph.edges)) < len(graph.edges)
        happened["two sources"] += sum(graph.is_source(stage.name) for stage in graph.stages) > 1
        happened["rounds"] += any(stage.publishing for stage in graph.stages)
        migrating.update(made.kinds[stage.name] for stage in graph.queue_fed() if stage.migrates)
    assert min(happened.values()) >= 5, happened
    assert migrating == {"collect", "process", "semi join", "anti join"}


@pytest.mark.parametrize("kind", [CHANGING, BOTH])
def test_tasks_really_change_in_random_jobs(kind: str) -> None:
    happened: Counter[str] = Counter()
    for run in runs_of(kind):
        for step in run.snapshot.steps:
            happened[f"{step.stage} {'moved' if step.moved else 'grown' if step.started else 'shrunk'}"] += 1
        texts = [answer.text for answer in run.answers.values()]
        happened["refused"] += any(answer.refused for answer in run.answers.values())
        happened["cancelled"] += any("is cancelled" in text for text in texts)
        happened["too late to cancel"] += any("too late" in text for text in texts)
        happened["over"] += any("nothing was changed: reducer has processed all" in text for text in texts)
    for change in ("moved", "grown", "shrunk"):
        assert happened[f"mapper {change}"] >= 2 and happened[f"reducer {change}"] >= 5, happened
    assert happened["refused"] and happened["cancelled"] >= 2 and happened["over"] >= 2, happened
    assert happened["too late to cancel"] or kind == BOTH, happened  # the coordinator does not look at the mode


def test_placements_follow_the_load_while_tasks_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpa.protocol.coordinator._planners._REST_SECONDS", 0.1)
    happened: Counter[str] = Counter()
    for seed in range(18):
        run = partial(run_random_job, migrates=seed % 3 == 1) if seed % 3 else run_random_graph
        snapshot = named(seed, partial(run, seed, changes=seed % 2 == 0, placed=True)).snapshot
        happened["looked"] += len(snapshot.placement_looks)
        happened["moved"] += sum(look.moves for look in snapshot.placement_looks)
        happened["not started"] += snapshot.placement_counts.get("a task did not start", 0)
    assert happened["looked"] > happened["moved"] >= 10 and happened["not started"], happened


@pytest.mark.parametrize("migrates", [False, True])
def test_a_task_that_dies_ends_the_job_with_an_error_whatever_is_under_way(migrates: bool) -> None:
    died: Counter[str] = Counter()
    for seed in range(40):
        job = with_random_death(with_random_changes(random_job(seed, migrates=migrates).job, seed), seed)
        [(_, victim)] = job.deaths
        cluster = SimulatedCluster(job, seed)
        try:
            named(seed, cluster.run)
            died["too late, or was not there"] += 1
            continue
        except JobFailedError as error:
            assert str(error) == f"{victim} died: the simulated job has it die now"
        told = [event for _, receiver, event in cluster.log if receiver == COORDINATOR and isinstance(event, TaskDied)]
        assert [(event.address, event.kind) for event in told] == [(victim, FailureKind.DIED)]
        asked = [event.request for _, _, event in cluster.log if isinstance(event, Rescale | MoveTasks | CancelChange)]
        assert cluster.answers.keys() == set(asked), "who asks learns what became of it"
        died[victim.stage] += 1
        died["during a change"] += any(answer.text == "the job has failed" for answer in cluster.answers.values())
    assert died[MAPPER] >= 5 and died[REDUCER] >= 5 and died["during a change"] >= 3, died


def test_every_record_counts_once_in_what_is_measured_and_none_longer_than_the_stream() -> None:
    for run in runs_of(JOBS):
        stage = run.snapshot[REDUCER]
        for found in (stage.latency, stage.stage_latency):
            assert found is not None
            assert found.records == sum(stats.processed for stats in stage.tasks)
            assert 0.0 <= found.max <= run.seconds
            assert bool(found.max) == bool(found.records)


# --- seeds


def simulated(seed: int, of: int, **machines: Any) -> tuple[object, ...]:
    """A run by a seed of the job of another."""
    cluster = SimulatedCluster(random_job(of).job, seed, **machines)
    outcome = cluster.run()
    return cluster.history(), outcome.snapshot, outcome.seconds, outcome.steps


class Haunted(Machine):
    """Gets, before each message, another of the same number that an older generation has left on the way."""

    def handle(self, event: Event, now: float) -> list[Instruction]:
        if isinstance(event, Envelope):
            assert super().handle(replace(event, message=Deliver(None), generation=-1), now) == []
        return super().handle(event, now)


HAUNTED: dict[str, Any] = {
    of: type(of, (Haunted, machine), {})
    for of, machine in (("coordinator", CoordinatorMachine), ("source", SourceMachine), ("operator", OperatorMachine))
}


@pytest.mark.parametrize("seed", [3, 14, 15, 92])
def test_the_same_seed_gives_the_identical_run_whatever_an_older_generation_has_left_on_the_way(seed: int) -> None:
    first = simulated(seed, seed)
    assert first == simulated(seed, seed) == simulated(seed, seed, **HAUNTED)
    assert first[0] != simulated(seed + 1, seed)[0], "another seed gives another run of the same job"


def test_a_job_that_cannot_go_on_is_distinguished_from_one_that_ends() -> None:
    cluster = SimulatedCluster(random_job(14).job, 14)
    with pytest.raises(InvariantViolationError, match="the job did not end"):
        cluster.run(max_steps=10)
    assert len(cluster.history()) == 10
