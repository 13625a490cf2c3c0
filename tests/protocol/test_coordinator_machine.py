"""The coordinator: tasks started, records counted, the end of each stage by counting; and what it knows of a running
job, in bounded memory."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wires import INPUT, CoordinatorWire, instructed, last_table, mapper, reducer, sent

from dpa.balance.decision import Decision, Outcome
from dpa.errors import ExecutorError, ProtocolError
from dpa.execution.schemas import ShareSchema
from dpa.measure.load import MeasuredKey, Traffic
from dpa.protocol.coordinator._ledger import LoadHistory
from dpa.protocol.coordinator.machine import CoordinatorMachine, CoordinatorState
from dpa.protocol.coordinator.stage_progress import StagePhase
from dpa.protocol.graph import MAPPER, REDUCER, Edge, Graph, Publishing, Stage
from dpa.protocol.wire.addresses import BALANCER, Address
from dpa.protocol.wire.events import Committed, FailureKind, Start, TaskDied, TaskStarted, Tick
from dpa.protocol.wire.instructions import Commit, Instruction, JobFailed, StartTasks
from dpa.protocol.wire.messages.cuts import Pause, Paused
from dpa.protocol.wire.messages.end import Deliver, Drain, Freeze, Progress
from dpa.protocol.wire.messages.exchange import BeginExchange, Published
from dpa.protocol.wire.messages.splits import Begin, SplitRequest
from dpa.protocol.wire.messages.tables import DecisionReport
from dpa.protocol.wire.metrics import StageSnapshot, TaskStats
from dpa.protocol.wire.use import TaskUse
from dpa.routing.groupings.options import BY_KIND
from experiments.simulated_jobs.map_reduce import map_reduce


def drained(**options) -> CoordinatorWire:
    """All mappers are done."""
    coordinator = CoordinatorWire(**options)
    for index, emitted in enumerate((4, 3)):
        coordinator.mapped(index, emitted, done=True)
    return coordinator


def frozen(coordinator: CoordinatorWire, version: int) -> list[Instruction]:
    return coordinator(BALANCER, last_table("reducer", version))


def exchanging() -> CoordinatorWire:
    """All records are processed, and the last table is known."""
    coordinator = drained()
    coordinator.reduced(0, 5)
    coordinator.reduced(1, 2)
    frozen(coordinator, 1)
    return coordinator


def created() -> CoordinatorMachine:
    return CoordinatorMachine(map_reduce(INPUT, 2, 2))


# --- the start


def test_all_tasks_and_the_load_balancer_are_started_first_and_sources_begin_once_the_last_has_started() -> None:
    coordinator = created()
    [start] = coordinator.handle(Start(), 1.0)
    assert start == StartTasks((mapper(0), mapper(1), reducer(0), reducer(1), BALANCER))
    begun = [sent(coordinator.handle(TaskStarted(at), 5.0), Begin) for at in start.addresses]
    assert begun == [[], [], [], [], [(mapper(0), Begin()), (mapper(1), Begin())]]
    assert (coordinator.state, coordinator.started_at) == (CoordinatorState.RUNNING, 5.0)


def test_a_task_that_dies_fails_the_job_whether_the_stream_has_begun_or_not_but_none_that_is_done() -> None:
    starting, running = created(), CoordinatorWire()
    starting.handle(Start(), 0.0)
    died = TaskDied(reducer(1), FailureKind.DIED, "it was killed")
    for coordinator in (starting, running.coordinator):
        assert coordinator.handle(died, 0.0) == [JobFailed("reducer 1 died: it was killed")]
        assert coordinator.state is CoordinatorState.FAILED
        assert coordinator.handle(TaskDied(mapper(0), FailureKind.RAISED, "too"), 1.0) == []
        assert coordinator.handle(Tick(), 2.0) == []
    assert running(mapper(0), SplitRequest()) == [], "it hands out no more splits"
    done = exchanging()
    for index, processed in enumerate((5, 2)):
        done.finished(reducer(index), processed)
    for index, processed in enumerate((5, 2)):
        done.progress(reducer(index), processed=processed, done=True)
    assert done.coordinator.handle(died, 9.0) == []


# --- records that are lost


def test_records_that_nobody_has_fail_the_job_after_a_while_instead_of_letting_it_wait_for_ever() -> None:
    """Unless a task reports nothing: user code that holds the interpreter keeps even statistics from being sent."""
    coordinator = CoordinatorWire(1e9)
    for index, emitted in ((0, 4), (1, 3)):
        coordinator.mapped(index, emitted, done=True)
    assert coordinator.coordinator.handle(Tick(), 1e9 + 0.1) == [], "as the last mapper is done"
    coordinator.reduced(0, 4)
    assert coordinator.coordinator.handle(Tick(), 1e9 + 59) == []
    coordinator.progress(reducer(0), processed=4, now=1e9 + 61)
    assert coordinator.coordinator.handle(Tick(), 1e9 + 61) == [], "the other may have them"
    coordinator.progress(reducer(1), processed=0, now=1e9 + 61)
    with pytest.raises(ProtocolError, match="3 of 7 records to reducer were lost: no task has had any for 60 s"):
        coordinator.coordinator.handle(Tick(), 1e9 + 61)


# --- the last exchange and the result


@pytest.mark.parametrize(
    ("kind", "version", "transfer"), [("ring", 0, False), ("ring", 2, True), ("key", 0, False), ("shuffle", 0, True)]
)
def test_states_move_in_the_last_exchange_if_they_may_be_elsewhere_than_with_their_owners(
    kind: str, version: int, transfer: bool
) -> None:
    coordinator = drained(grouping=BY_KIND[kind]())
    coordinator.reduced(0, 7)
    assert sent(frozen(coordinator, version), BeginExchange) == [
        (reducer(index), BeginExchange(1, version, last=True, transfer=transfer)) for index in (0, 1)
    ]


def share(value: pa.Array) -> ShareSchema | None:
    return ShareSchema.of(pa.table({"key": [f"k{number}" for number in range(len(value))], "value": value}), "key")


def test_shares_are_delivered_in_one_schema_once_every_task_has_finished() -> None:
    coordinator = exchanging()
    assert sent(coordinator.finished(reducer(1), 2, share(pa.array([1]))), Deliver) == []
    delivered = sent(coordinator.finished(reducer(0), 5, share(pa.nulls(1))), Deliver)
    assert [to for to, _ in delivered] == [reducer(0), reducer(1)]
    assert {message.schema for _, message in delivered} == {pa.schema([("key", pa.string()), ("value", pa.int64())])}


def test_shares_that_have_no_schema_in_common_fail_the_job_before_anything_is_written() -> None:
    coordinator = exchanging()
    coordinator.finished(reducer(1), 2, share(pa.array([1])))
    with pytest.raises(ExecutorError, match="column 'value': string for key 'k0' and int64 for key 'k0'"):
        coordinator.finished(reducer(0), 5, share(pa.array(["one"])))


@pytest.mark.parametrize("state", [CoordinatorWire, drained, exchanging], ids=lambda state: state.__name__)
def test_a_task_cannot_be_done_before_its_share_is_to_be_written(state) -> None:
    with pytest.raises(ProtocolError, match="reducer 0 cannot be done while reducer is"):
        state().progress(reducer(0), done=True)


# --- snapshots


def decision(at: float, outcome: Outcome = Outcome.BELOW_THRESHOLD, version: int | None = None) -> Decision:
    return Decision(at, 0, outcome, "why", (1, 0), version, 1)


def decided(coordinator: CoordinatorWire, *decisions: Decision) -> None:
    coordinator(BALANCER, DecisionReport("reducer", decisions))


def last(coordinator: CoordinatorWire, *, history: bool = True) -> StageSnapshot:
    return coordinator.coordinator.snapshot(history=history)[REDUCER]


def test_a_snapshot_has_the_time_since_the_stream_began_the_input_and_the_stages_in_order() -> None:
    before = CoordinatorMachine(map_reduce((), 1, 1))
    assert (before.snapshot().phase, before.snapshot().at) == ("startup", 0.0)
    before.handle(Start(), 999.0)
    assert instructed(before.handle(TaskDied(reducer(), FailureKind.DIED, "why"), 1_000.0), JobFailed)
    assert (before.snapshot().phase, before.snapshot().at) == ("failed", 0.0)
    coordinator = CoordinatorWire(at=10.0)
    coordinator.progress(mapper(1), emitted=(5,), now=11.0)
    coordinator.coordinator.handle(Tick(), 12.5)
    snapshot = coordinator.coordinator.snapshot()
    assert (snapshot.phase, snapshot.at, snapshot.rows) == ("stream", 2.5, 6)
    stages = [(stage.name, stage.phase, len(stage.tasks)) for stage in snapshot.stages]
    assert stages == [("mapper", "streaming", 2), ("reducer", "streaming", 2)]
    assert snapshot.edges == (("mapper", "reducer"),)
    assert [task.emitted for task in snapshot[MAPPER].tasks] == [(), (5,)]


def test_what_tasks_sent_each_other_is_part_of_the_history_of_their_use() -> None:
    coordinator = CoordinatorWire()
    for seconds in (1.0, 2.0):
        used = TaskUse("n1", cpu_seconds=seconds, sent={reducer(0): Traffic(1, 5, 100)})
        coordinator(mapper(0), Progress(TaskStats(MAPPER, 0), use=used))
        coordinator(mapper(0), Progress(TaskStats(MAPPER, 0)))
    assert coordinator.coordinator.snapshot().use == {mapper(0): used}
    assert coordinator.coordinator.snapshot(history=False).use == {mapper(0): replace(used, sent={})}


def test_a_stage_began_with_its_first_record_and_ended_with_its_last() -> None:
    coordinator = CoordinatorWire(at=10.0)
    spans = []
    coordinator.progress(mapper(0), now=10.5)
    coordinator.progress(mapper(0), now=11.0, read=2, emitted=(3,))
    coordinator.progress(reducer(0), now=12.0, queue=3)
    spans += [(stage.began, stage.ended) for stage in coordinator.coordinator.snapshot(history=False).stages]
    coordinator.progress(reducer(0), now=13.0, processed=1)
    coordinator.progress(mapper(0), now=14.0, read=2, emitted=(3,), done=True)
    coordinator.progress(mapper(1), now=15.0, done=True)
    coordinator.progress(reducer(0), now=16.0, processed=3)
    spans += [(stage.began, stage.ended) for stage in coordinator.coordinator.snapshot().stages]
    assert spans == [(1.0, None), (None, None), (1.0, 5.0), (3.0, 6.0)]


def test_all_records_are_processed_before_the_result_is_merged_and_the_initial_load_is_known_in_the_end() -> None:
    coordinator = CoordinatorWire()

    def phases() -> tuple[str, str]:
        return coordinator.coordinator.snapshot().phase, last(coordinator).phase

    for index in (0, 1):
        coordinator.progress(mapper(index), emitted=(3,), done=True)
    assert phases() == ("stream", "draining")
    coordinator.reduced(0, 6)
    assert phases() == ("merge", "freezing")
    coordinator(BALANCER, last_table("reducer", 0))
    coordinator.finished(reducer(1), 2, initial_load=(1, 1))
    assert last(coordinator).initial_load == ()
    coordinator.finished(reducer(0), 4, initial_load=(4, 0))
    assert last(coordinator).initial_load == (5, 1)


def test_decisions_are_counted_put_in_order_and_timed_from_the_start_of_the_stream() -> None:
    coordinator = CoordinatorWire(at=10.0)
    decided(coordinator, decision(11.0), decision(12.0, Outcome.APPLIED, version=1))
    decided(coordinator, decision(11.5, Outcome.COOL_DOWN))
    snapshot = last(coordinator)
    found = [(noted.at, noted.outcome.value) for noted in snapshot.decisions]
    assert found == [(1.0, "below_threshold"), (1.5, "cool_down"), (2.0, "applied")]
    assert snapshot.decision_counts == {"below_threshold": 1, "cool_down": 1, "applied": 1}
    assert snapshot.version == 1
    recent = last(coordinator, history=False).decisions
    assert [(noted.at, noted.reason) for noted in recent] == [(1.0, "why"), (1.5, "why"), (2.0, "why")]
    assert [noted.load_of for noted in recent] == [{}, {}, {0: 1, 1: 0}]  # of many tasks, loads would be long


def test_a_snapshot_has_the_hot_keys_that_the_load_balancer_reported_last() -> None:
    coordinator = CoordinatorWire()
    assert last(coordinator).hottest is None
    for keys in ((), (MeasuredKey("'a'", 0.5, 0.4, 0.6, task=1, split=True),)):
        coordinator(BALANCER, DecisionReport("reducer", (), keys))
        assert last(coordinator, history=False).hottest == keys


def test_of_very_many_refusals_the_last_are_kept_while_all_are_counted() -> None:
    coordinator = CoordinatorWire()
    decided(coordinator, decision(0.0, Outcome.APPLIED, version=1))
    for at in range(1, 3001):
        decided(coordinator, decision(float(at)))
    snapshot = last(coordinator)
    assert snapshot.decision_counts == {"applied": 1, "below_threshold": 3000}
    assert [noted.at for noted in snapshot.decisions] == [0.0, *map(float, range(1001, 3001))]
    recent = last(coordinator, history=False).decisions
    assert [noted.at for noted in recent] == [0.0, *map(float, range(2981, 3001))]


def test_a_snapshot_without_history_stays_small_however_many_tables_there_were() -> None:
    coordinator = CoordinatorWire()
    for at in range(1, 501):
        decided(coordinator, decision(float(at), Outcome.APPLIED, version=at))
    recent = last(coordinator, history=False)
    assert [noted.at for noted in recent.decisions] == [float(at) for at in range(401, 501)]
    assert recent.decision_counts == {"applied": 500}
    assert len(last(coordinator).decisions) == 500


def test_queues_are_sampled_at_every_tick_and_a_task_that_left_keeps_what_it_had_processed() -> None:
    coordinator = CoordinatorWire(at=1.0)
    coordinator.reduced(1, 3, queue=9)
    coordinator.coordinator.handle(Tick(), 1.5)
    [sample] = last(coordinator).samples
    assert (sample.at, sample.queues, sample.processed) == (0.5, (0, 9), (0, 3))
    history = LoadHistory()
    tasks = {index: TaskStats("reducer", index, processed=10 + index) for index in range(3)}
    for at, up in enumerate(((0, 1), (0, 1, 2), (0, 1))):
        history.add(float(at), [tasks[index] for index in up])
    assert [sample.processed for sample in history.samples(tasks)] == [(10, 11, 0), (10, 11, 12), (10, 11, 12)]


@given(st.integers(0, 6000))
def test_samples_of_a_long_stream_are_thinned_evenly(number: int) -> None:
    history = LoadHistory()
    for at in range(number):
        history.add(float(at), [TaskStats("reducer", 0)])
    times = [sample.at for sample in history.samples({0: TaskStats("reducer", 0)})]
    assert len(times) <= 1024
    assert times == [float(at) for at in range(0, number, int(times[1]) if len(times) > 1 else 1)]


# --- stages of larger graphs: each drains when all that feed it are done, and ends by counting what came to it


class GraphWire(CoordinatorWire):
    """The coordinator of stages with one task each, and of edges like `a b`."""

    def __init__(self, stages: str, *edges: str, **options) -> None:
        made = tuple(Stage(name, 1, **options.get(name, {})) for name in stages.split())
        super().__init__(graph=Graph(made, tuple(Edge(*edge.split()) for edge in edges)))

    def emitted(self, stage: str, *emitted: int, **stats) -> list[Instruction]:
        """The task of a stage has emitted so much on each edge, its last."""
        return self.progress(Address(stage), emitted=emitted, done=True, **stats)

    def processed(self, stage: str, records: int) -> list[Instruction]:
        return self.progress(Address(stage), processed=records)

    def end(self, stage: str, records: int, *emitted: int) -> list[Instruction]:
        """A stage whose records are all processed exchanges, finishes and delivers."""
        self(BALANCER, last_table(stage, 0))
        self.finished(Address(stage), records)
        return self.emitted(stage, *emitted, processed=records)

    def phase(self, stage: str) -> StagePhase:
        state = self.coordinator.stages[stage].state
        assert isinstance(state, StagePhase)
        return state


def receivers(instructions: list[Instruction], kind: type) -> list[str]:
    return [to.stage for to, _ in sent(instructions, kind)]


def test_each_stage_that_a_source_feeds_counts_its_own_edge() -> None:
    coordinator = GraphWire("rows left right", "rows left", "rows right")
    assert receivers(coordinator.emitted("rows", 2, 3), Drain) == ["left", "right"]
    assert sent(coordinator.processed("left", 2), Freeze) == [(BALANCER, Freeze("left"))]
    with pytest.raises(ProtocolError, match="right: 4 records were processed, but only 3 were emitted"):
        coordinator.processed("right", 4)


def chain() -> GraphWire:
    return GraphWire("tags counts ranks", "tags counts", "counts ranks")


def test_the_stream_ends_when_the_last_stage_has_processed_all_its_records() -> None:
    coordinator = chain()
    coordinator.coordinator.handle(Tick(), 1.0)
    samples = [len(stage.samples) for stage in coordinator.coordinator.snapshot().stages]
    assert samples == [0, 1, 1], "the queues of a source are not sampled"
    coordinator.emitted("tags", 5)
    coordinator.processed("counts", 5)
    assert coordinator.coordinator.snapshot().phase == "stream"
    coordinator.end("counts", 5, 2)
    coordinator.processed("ranks", 2)
    assert coordinator.coordinator.snapshot().phase == "merge"
    coordinator.end("ranks", 2)
    snapshot = coordinator.coordinator.snapshot()
    assert (snapshot.phase, [stage.phase for stage in snapshot.stages]) == ("done", ["done"] * 3)


@pytest.mark.parametrize("is_slow", [False, True])
def test_each_stage_has_partial_results_of_its_own(is_slow: bool) -> None:
    """Also where those of one are committed only while another publishes."""
    coordinator = GraphWire(
        "tags counts ranks",
        "tags counts",
        "tags ranks",
        counts={"publishing": (Publishing(2.0),)},
        ranks={"publishing": (Publishing(3.0),)},
    )
    pending: list[Committed] = []
    for epoch, (stage, now) in enumerate([("counts", 2.0), ("ranks", 3.0), ("counts", 4.0)], start=1):
        for other in ("counts", "ranks"):
            coordinator.processed(other, epoch)
        assert receivers(coordinator.coordinator.handle(Tick(), now), Pause) == ["tags"]
        coordinator(Address("tags"), Paused(TaskStats("tags", 0, emitted=(epoch, epoch))), now)
        assert not receivers(coordinator(BALANCER, last_table("ranks", 0), now), BeginExchange)
        assert receivers(coordinator(BALANCER, last_table("counts", 0), now), BeginExchange) == [stage]
        while pending:
            coordinator.coordinator.handle(pending.pop(), now)
        [commit] = instructed(coordinator(Address(stage), Published(epoch, {0: "file"}, 0, 0.0), now), Commit)
        assert commit == Commit(stage, epoch, at=now, staged=("file",))
        pending.append(Committed(stage, epoch))
        if not is_slow:
            coordinator.coordinator.handle(pending.pop(), now)
        # What a stage gives at its end has a number that no cut has, whether or not it took part in the newest one.
        assert [coordinator.coordinator.stages[name].epoch for name in ("counts", "ranks")] == [epoch, epoch]
    assert coordinator.coordinator.cuts.epoch == 4


def test_records_of_one_stage_are_not_lost_because_another_takes_long() -> None:
    coordinator = chain()
    coordinator.emitted("tags", 5)
    for now in (50.0, 100.0, 1000.0):
        coordinator.progress(Address("counts"), processed=0, queue=5, now=now)
        coordinator.coordinator.handle(Tick(), now)
    coordinator.processed("counts", 5)
    coordinator.end("counts", 5, 2)
    coordinator.coordinator.handle(Tick(), 1001.0)
    coordinator.progress(Address("ranks"), processed=0, now=1100.0)
    with pytest.raises(ProtocolError, match="2 of 2 records to ranks were lost"):
        coordinator.coordinator.handle(Tick(), 1100.0)
