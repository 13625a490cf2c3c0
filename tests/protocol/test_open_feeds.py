"""Inputs that are open: polled while records flow, read on behind a cut, and closed; and how far reading is behind what
has come to them, in records and in seconds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wires import CoordinatorWire, instructed, sent

from dpa.protocol.coordinator._lags import Lags
from dpa.protocol.coordinator._split_queue import SplitQueue
from dpa.protocol.graph import MAPPER, StageInput
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import CloseFeeds, PollDone, Tick
from dpa.protocol.wire.instructions import Answer, Instruction, Poll
from dpa.protocol.wire.messages.splits import SplitGrant, SplitRequest
from dpa.protocol.wire.metrics import Lag
from dpa.runtime.asides import OpenFeeds
from dpa.sources.feed import Feed, Page, Position, Until
from dpa.sources.generated import GeneratedTable, Generator
from dpa.sources.splits import MemorySplit, Split
from experiments.simulated_jobs.map_reduce import map_reduce

SPLITS = tuple(MemorySplit(pa.table({"n": range(rows)})) for rows in (3, 2, 1, 4))


class Ones(Generator):
    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        return pa.record_batch({"n": [1] * rows})


class Coordinator(CoordinatorWire):
    """Of two mappers, whose input has one split so far, and more at position 1; what comes is kept."""

    def __init__(self, until: Until | None = None) -> None:
        graph = map_reduce(SPLITS[:1], 2, 1, position=Position(1))
        stages = (replace(graph[MAPPER], input=replace(graph[MAPPER].input, given=SPLITS[:1])), *graph.stages[1:])
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


def test_an_input_is_not_idle_before_its_first_poll_has_been_answered_nor_read_before_it_is_closed() -> None:
    """The poll may take a while: modules are imported, and brokers are asked."""
    queue = SplitQueue(StageInput((), Position(0)))
    assert queue.poll(1) is not None and not queue.is_caught_up and not queue.is_read
    queue.polled((), Position(0), 0.0)
    assert queue.is_caught_up and not queue.is_read
    queue.polled(SPLITS[:1], Position(1), 0.0)
    assert queue.rest == SPLITS[:1] and queue.position == Position(1)
    queue.close()
    assert not queue.is_read
    queue.asks(0)
    assert queue.grants([0], []) == [(0, SPLITS[0])]
    queue.asks(0)
    assert queue.is_read
    closed = SplitQueue(StageInput((), Position(0)))
    closed.close()
    assert closed.is_read


def test_who_asks_for_the_end_hears_whether_there_was_any_input_to_close() -> None:
    coordinator = Coordinator().coordinator
    (answer,) = instructed(coordinator.handle(CloseFeeds(7), 0.0), Answer)
    assert (answer.request, answer.refused) == (7, False)
    (answer,) = instructed(coordinator.handle(CloseFeeds(8), 0.0), Answer)
    assert (answer.request, answer.refused, answer.text) == (8, True, "no input of it is open")


def test_splits_that_go_on_where_others_end_are_kept_as_one() -> None:
    table = GeneratedTable(Ones(), 100)
    queue = SplitQueue(StageInput((), Position(0), given=()))
    queue.polled(table.splits(10), Position(100), 0.0)
    queue.polled(table.splits_from(100, 130, 15), Position(130), 0.0)
    queue.polled([*table.splits_from(150, 160, 10), *SPLITS[:2]], Position(160), 0.0)
    assert queue.given is not None
    assert [split.rows for split in queue.given] == [130, 10, 3, 2]


# --- lags


class Asked(Coordinator):
    def tick(self, now: float) -> list[Instruction]:
        return [poll for poll in instructed(self.coordinator.handle(Tick(), now), Poll) if poll.for_lag]

    def measured(self, now: float, rows: dict[str, int] | None) -> None:
        self.coordinator.handle(PollDone(MAPPER, (), Position(0), for_lag=True, behind=rows), now)

    @property
    def lag(self) -> dict[str, Lag]:
        return dict(self.coordinator.snapshot(history=False)[MAPPER].lag)


def test_a_feed_is_asked_every_three_seconds_once_it_has_answered() -> None:
    coordinator, asked = Asked(), []
    for now in (1.0, 2.0, 3.0, 4.5, 7.0, 8.0, 10.5):
        if now == 7.0:
            coordinator.measured(now, {"": 0})
        asked += [now] * len(coordinator.tick(now))
    assert asked == [1.0, 7.0]


def test_rows_that_polls_gave_and_those_behind_them_count_until_they_are_read() -> None:
    coordinator = Asked()
    assert coordinator.tick(1.0) == [Poll(MAPPER, Position(1), for_lag=True)]
    coordinator.measured(1.5, {"": 7})
    assert coordinator.lag == {"": Lag(3 + 7, 0.0)}
    coordinator.asks(0)
    coordinator.progress(Address(MAPPER, 0), now=2.0, read=2)  # of the split of three
    assert coordinator.tick(4.0)
    coordinator.polled(SPLITS[1], position=2, now=4.25)  # of those behind, before the answer comes
    coordinator.measured(4.5, {"": 7})
    assert coordinator.lag == {"": Lag(1 + 7, 3.0)}
    coordinator(Address(MAPPER, 0), SplitRequest(read=3))
    assert coordinator.tick(7.0)
    coordinator.measured(7.5, {"": 6})
    assert coordinator.lag == {"": Lag(2 + 6, 6.0)}


def test_nothing_is_said_where_the_feed_does_not_know_or_is_closed() -> None:
    coordinator = Asked()
    coordinator.tick(1.0)
    coordinator.measured(1.0, None)
    assert coordinator.lag == {}
    coordinator.tick(4.0)
    coordinator.measured(4.0, {"": 7})
    assert coordinator.lag
    coordinator.coordinator.handle(CloseFeeds(), 5.0)
    assert coordinator.lag == {} and coordinator.tick(9.0) == []


steps = st.lists(st.tuples(st.floats(0.5, 5.0), st.integers(0, 50), st.integers(0, 60), st.booleans()), min_size=1)


@given(steps)
def test_records_are_exact_and_seconds_within_the_time_between_two_answers(
    made: list[tuple[float, int, int, bool]],
) -> None:
    """Rows come at a constant rate between two moments; polls give some, tasks read some of those."""
    lags, now, arrivals, polled, read = Lags(), 0.0, [(0.0, 0)], 0, 0
    answers: list[float] = []
    for seconds, come, reads, polls in made:
        now += seconds
        arrivals.append((now, arrivals[-1][1] + come))
        there = arrivals[-1][1]
        polled = there if polls else polled
        read = min(read + reads, polled)
        came, unread = Counter({"p": polled}), Counter({"p": polled - read})
        if not lags.asks(came, now):
            continue
        lags.measured({"p": there - polled}, came, unread, now)
        answers.append(now)
        found = lags.found["p"]
        assert found.records == there - read
        if there == read:
            assert found.seconds == 0
            continue
        at = next(when for (when, _), (_, after) in pairwise(arrivals) if after > read)
        if at >= answers[0]:
            between = max((later - earlier for earlier, later in pairwise(answers)), default=0.0)
            assert now - at - between - 5.0 <= found.seconds <= now - at + between
        assert found.seconds <= now - answers[0] + 1e-3


def test_marks_stay_few_however_long_nothing_is_read() -> None:
    lags = Lags()
    for second in range(0, 30_000, 3):
        assert lags.asks(Counter(), float(second))
        lags.measured({"p": second + 1}, Counter(), Counter(), float(second))
    assert lags.found["p"] == Lag(29_998, 29_997.0)
    assert len(lags._marks["p"]) <= 65


class Broken(Feed):
    schema = None

    def poll(self, split_rows: int, position: object = None) -> Page:
        return Page(())

    def lag(self, position: object) -> dict[str, int]:
        raise OSError("no answer")


def test_a_feed_that_cannot_be_asked_has_an_unknown_lag_and_the_job_goes_on() -> None:
    feeds = OpenFeeds(lambda: {MAPPER: Broken()}, 10, lambda seconds: True)
    answer = feeds.poll(MAPPER, Position(), for_lag=True)
    assert answer is not None and answer.for_lag and answer.behind is None
