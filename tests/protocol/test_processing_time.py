"""Processing time: rows are read when the machines' clock says, the watermark is that clock, and who reads behind a cut
never reads before it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from builders import table_giving
from wires import CoordinatorWire, SourceWire, emitter_for, instructed, last_table, sent

from dpa.protocol.graph import CheckpointTimes, ClosingWindows, Edge, Graph, Stage, StageInput
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.events import PollDone, Tick
from dpa.protocol.wire.instructions import NextStep
from dpa.protocol.wire.messages.cuts import Pause, Paused
from dpa.protocol.wire.messages.exchange import Published
from dpa.protocol.wire.messages.splits import Begin, SplitGrant, SplitRequest
from dpa.protocol.wire.metrics import EventTimeStats, TaskStats
from dpa.protocol.wire.snapshots import TimeReached
from dpa.sources.event_time import SourceTime
from dpa.sources.feed import Position
from dpa.sources.splits import MemorySplit
from dpa.windows.times import EventTime
from experiments.interleavings_faults import run as run_with_random_faults
from experiments.simulated_jobs.random_windows import random_windows, run_random_windows
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import behind

SPLIT = MemorySplit(pa.table({"key": ["a"]}))
SOURCE, COUNTS = Address("source"), Address("counts")
SECOND = 1_000_000

# --- a source task


def test_a_step_says_when_its_rows_are_read_which_is_not_before_the_watermark_whatever_the_clock_says() -> None:
    source = SourceWire(emitter_for(table_giving({"a": 0})), fresh=True)
    source(COORDINATOR, Begin(), 1.0)
    read = [instructed(source(COORDINATOR, SplitGrant(SPLIT), 2.0), NextStep)]
    read.append(instructed(source.stepped("a", now=3.5), NextStep))
    source.exhausted(4.0)
    read.append(instructed(source(COORDINATOR, SplitGrant(SPLIT, 9 * SECOND), 5.0), NextStep))
    read.append(instructed(source.stepped("a", now=9.5), NextStep))
    assert [step.read_at for [step] in read] == [2 * SECOND, 3_500_000, 9 * SECOND, 9_500_000]


# --- the coordinator


class Coordinator(CoordinatorWire):
    """A source of which one split is known, and a stage whose windows are closed every second at most."""

    def __init__(self, at: float = 0.0, *, is_open: bool = True, reached: int | None = None) -> None:
        known = {} if reached is None else {"reached": TimeReached(reached, reached)}
        time = SourceTime(EventTime("read_at"), is_added=True)
        position = Position(1) if is_open else None
        stages = (
            Stage("source", 1, StageInput((SPLIT,), position, time=time), **known),
            Stage("counts", 1, windows=ClosingWindows(), **known),
        )
        super().__init__(at, Graph(stages, (Edge("source", "counts"),)))

    def asks(self, now: float) -> list[SplitGrant]:
        """What the source is granted."""
        return [grant for _, grant in sent(self(SOURCE, SplitRequest(), now), SplitGrant)]

    def pauses(self, now: float) -> bool:
        """Whether a tick has the source pause."""
        return bool(sent(self.coordinator.handle(Tick(), now), Pause))

    def reached(self) -> EventTimeStats | None:
        return self.coordinator.snapshot()["counts"].event_time


def test_windows_close_by_the_clock_though_nothing_comes_and_who_reads_on_does_not_read_before() -> None:
    coordinator = Coordinator(100.0)
    assert coordinator.asks(100.0) == [SplitGrant(SPLIT)]
    assert coordinator.asks(100.1) == []
    coordinator.progress(COUNTS, processed=1, opens=110 * SECOND, now=100.2)
    assert [coordinator.pauses(now) for now in (109.9, 110.0)] == [False, True]
    assert coordinator.reached() == EventTimeStats(110 * SECOND, None, 110 * SECOND)  # which nothing that comes holds
    coordinator(SOURCE, Paused(TaskStats("source", 0, read=1, emitted=(1,))), 110.5)
    coordinator.coordinator.handle(PollDone("source", (SPLIT,), Position(2)), 110.6)
    coordinator(BALANCER, last_table("counts", 0), 110.7)
    over = coordinator(COUNTS, Published(1, {}, 0, 0.0, TaskStats("counts", 0, processed=1)), 112.0)
    assert [grant for _, grant in sent(over, SplitGrant)] == [SplitGrant(SPLIT, 110_500_000)]  # when all had paused


def test_the_watermark_does_not_go_back_behind_a_cut_on_a_machine_whose_clock_is_behind() -> None:
    coordinator = Coordinator(5.0, reached=70 * SECOND)
    assert coordinator.asks(6.0) == [SplitGrant(SPLIT, 70 * SECOND)]
    assert coordinator.reached() == EventTimeStats(70 * SECOND, 70 * SECOND)
    coordinator.coordinator.handle(Tick(), 71.0)
    assert coordinator.reached() == EventTimeStats(71 * SECOND, 70 * SECOND)


def test_an_input_that_ends_holds_its_windows_by_the_clock_until_all_of_it_is_read() -> None:
    coordinator = Coordinator(is_open=False)
    coordinator.asks(1.0)
    assert coordinator.reached() == EventTimeStats(1 * SECOND)
    assert coordinator.asks(2.0) == [SplitGrant(None)]
    coordinator.coordinator.handle(Tick(), 9.0)
    assert coordinator.reached() == EventTimeStats(None)  # no cut has come, and the rest is closed at the end


# --- simulated jobs


@pytest.mark.parametrize("seed", [3, 24])
def test_each_record_is_in_one_window_and_none_is_late_behind_any_cut(seed: int) -> None:
    assert random_windows(seed).by_clock
    run = run_random_windows(seed, changes=True, cuts=True, feeds=True)
    assert run.snapshot.epochs.number


def test_each_record_is_in_one_window_whatever_dies() -> None:
    assert random_windows(24).by_clock
    run_with_random_faults(24, windows=True)


def test_rows_that_are_read_again_behind_a_cut_have_the_time_of_that() -> None:
    made = random_windows(3)
    job = replace(made.job, graph=replace(made.job.graph, checkpoints=CheckpointTimes(0.01)))
    before = SimulatedCluster(job, 3)
    runs = [before.run()]
    cut = next(cut for cut in before.checkpoints if cut.sources["source a"].rest)
    after = SimulatedCluster(behind(job, cut), 3)
    runs.append(after.run())
    for run in runs:
        made.check(run, before.history)  # each is in one window, once
    tables = [pa.concat_tables(share.table for share in run.shares["first"]) for run in runs]
    first, again = ({(row["window_end"], *row["records"]) for row in table.to_pylist()} for table in tables)
    assert first != again
