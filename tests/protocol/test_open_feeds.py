"""Inputs that are open: polled while records flow, read on behind a cut, and closed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from wires import CoordinatorWire, instructed, sent

from dpa.protocol.coordinator._split_queue import SplitQueue
from dpa.protocol.graph import MAPPER, StageInput, map_reduce
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import CloseFeeds, PollDone, Tick
from dpa.protocol.wire.instructions import Answer, Instruction, Poll
from dpa.protocol.wire.messages.splits import SplitGrant, SplitRequest
from dpa.sources.feed import Position, Until
from dpa.sources.generated import GeneratedTable, Generator
from dpa.sources.splits import MemorySplit, Split
from experiments.simulated_jobs.random_graphs import run_random_graph
from experiments.simulated_jobs.random_jobs import run_random_job

SPLITS = tuple(MemorySplit(pa.table({"n": range(rows)})) for rows in (3, 2, 1, 4))


class Ones(Generator):
    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        return pa.record_batch({"n": [1] * rows})


class Coordinator(CoordinatorWire):
    """Of two mappers, whose input has one split so far, and more at position 1; what comes is kept."""

    def __init__(self, until: Until | None = None) -> None:
        graph = map_reduce(SPLITS[:1], 2, 1, position=Position(1))
        stages = (
            replace(graph[MAPPER], input=replace(graph[MAPPER].input, given=SPLITS[:1])),
            *graph.stages[1:],
        )
        super().__init__(graph=replace(graph, stages=stages, until=until or Until()))

    def asks(self, mapper: int) -> list[Instruction]:
        return self(Address(MAPPER, mapper), SplitRequest())

    def polled(self, *splits: Split, position: int | None, now: float = 0.0) -> list[Instruction]:
        return self.coordinator.handle(PollDone(MAPPER, splits, None if position is None else Position(position)), now)


def granted(instructions: list[Instruction]) -> list[tuple[int, Split | None]]:
    return [(to.index, grant.split) for to, grant in sent(instructions, SplitGrant)]


def test_a_source_is_polled_while_fewer_splits_wait_than_it_has_tasks() -> None:
    coordinator = Coordinator()
    assert instructed(coordinator.began, Poll) == [Poll(MAPPER, Position(1))]
    assert not instructed(coordinator.asks(0), Poll)  # one poll at a time
    assert instructed(coordinator.polled(SPLITS[1], position=2), Poll) == [Poll(MAPPER, Position(2))]
    assert not instructed(coordinator.polled(SPLITS[2], position=3), Poll)  # two wait
    assert instructed(coordinator.asks(1), Poll) == [Poll(MAPPER, Position(3))]


def test_tasks_wait_until_splits_come_and_hear_that_none_do_when_the_input_is_closed() -> None:
    coordinator = Coordinator()
    assert granted(coordinator.asks(0)) == [(0, SPLITS[0])]
    assert granted(coordinator.asks(1)) == []
    assert granted(coordinator.polled(position=1)) == []
    assert granted(coordinator.polled(SPLITS[1], position=2)) == [(1, SPLITS[1])]
    assert granted(coordinator.asks(0)) == []
    assert granted(coordinator.polled(SPLITS[2], position=None)) == [(0, SPLITS[2])]
    assert granted(coordinator.asks(0)) == [(0, None)]


def test_who_closes_the_inputs_leaves_what_a_poll_still_finds() -> None:
    coordinator = Coordinator()
    coordinator.asks(0)
    coordinator.asks(1)
    assert granted(coordinator.coordinator.handle(CloseFeeds(), 0.0)) == [(1, None)]
    assert granted(coordinator.polled(SPLITS[1], position=2)) == []
    assert granted(coordinator.asks(0)) == [(0, None)]


@pytest.mark.parametrize(
    ("until", "closed_at"),
    [
        (Until(), None),
        (Until(seconds=2.5), 3.0),
        (Until(records=5), 2.0),
        (Until(records=6), None),
        (Until(idle=2.0), 4.0),
        (Until(idle=3.0, seconds=60.0), 5.0),
    ],
)
def test_open_inputs_are_closed_after_a_time_enough_records_or_none_for_a_while(
    until: Until, closed_at: float | None
) -> None:
    coordinator = Coordinator(until)
    coordinator.asks(0)
    coordinator.asks(1)
    closed = None
    for second in range(1, 7):
        now = float(second)
        if second == 2:  # the last rows so far are read
            coordinator.polled(SPLITS[1], position=2, now=now)
            coordinator.progress(Address(MAPPER, 0), now=now, read=5)
            for mapper in (0, 1):
                coordinator.asks(mapper)
        coordinator.coordinator.handle(Tick(), now)
        if closed is None and not coordinator.coordinator.snapshot().is_open:
            closed = now
    assert closed == closed_at
    assert coordinator.coordinator.inputs.given == {MAPPER: SPLITS[:2]}


def test_an_input_is_not_idle_before_its_first_poll_has_been_answered() -> None:
    """Which may take a while: modules are imported, and brokers are asked."""
    queue = SplitQueue(StageInput((), Position(0)))
    assert queue.poll(1) is not None and not queue.is_caught_up
    queue.polled((), Position(0), 0.0)
    assert queue.is_caught_up
    closed = SplitQueue(StageInput((), Position(0)))
    closed.close()
    assert closed.is_read


def test_who_asks_for_the_end_hears_whether_there_was_any_input_to_close() -> None:
    coordinator = Coordinator().coordinator
    (answer,) = instructed(coordinator.handle(CloseFeeds(7), 0.0), Answer)
    assert (answer.request, answer.refused) == (7, False)
    (answer,) = instructed(coordinator.handle(CloseFeeds(8), 0.0), Answer)
    assert (answer.request, answer.refused, answer.text) == (8, True, "no input of it is open")


def test_an_input_is_not_read_before_it_is_closed() -> None:
    queue = SplitQueue(StageInput((), Position(0)))
    assert not queue.is_read
    queue.polled(SPLITS[:1], Position(1), 0.0)
    assert queue.rest == SPLITS[:1] and queue.position == Position(1)
    queue.close()
    assert not queue.is_read
    queue.asks(0)
    assert queue.grants([0], []) == [(0, SPLITS[0])]
    queue.asks(0)
    assert queue.is_read


def test_a_grouping_without_a_table_finds_states_of_one_key_on_several_tasks_behind_a_cut() -> None:
    """Tasks had changed, so that states were exchanged by the ring, before the cut."""
    run_random_job(41, feeds=True, cuts=True, changes=True)


def test_a_cut_may_end_after_a_task_has_heard_that_it_leaves() -> None:
    """The table that says so comes from the load balancer, and may overtake what the coordinator sends."""
    run_random_job(39, cuts=True, changes=True)


@pytest.mark.parametrize("seed", [3, 5, 8])
def test_random_jobs_with_open_inputs_give_what_closed_ones_do_also_behind_their_cuts(seed: int) -> None:
    run_random_job(seed, feeds=True, cuts=True, changes=True)
    run_random_graph(seed, feeds=True, cuts=True)


def test_splits_that_go_on_where_others_end_are_kept_as_one() -> None:
    table = GeneratedTable(Ones(), 100)
    queue = SplitQueue(StageInput((), Position(0), given=()))
    queue.polled(table.splits(10), Position(100), 0.0)
    queue.polled(table.splits_from(100, 130, 15), Position(130), 0.0)
    queue.polled([*table.splits_from(150, 160, 10), *SPLITS[:2]], Position(160), 0.0)
    assert queue.given is not None
    assert [split.rows for split in queue.given] == [130, 10, 3, 2]
