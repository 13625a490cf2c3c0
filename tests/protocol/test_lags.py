"""How far reading is behind what has come to an open input: in records, and in seconds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest
from builders import map_task
from hypothesis import given
from hypothesis import strategies as st
from test_open_feeds import SPLITS, Coordinator
from wires import instructed

from dpa.protocol.coordinator._lags import Lags
from dpa.protocol.graph import MAPPER, StageInput
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import CloseFeeds, PollDone, Tick
from dpa.protocol.wire.instructions import Instruction, Poll
from dpa.protocol.wire.messages.splits import SplitRequest
from dpa.protocol.wire.metrics import Lag
from dpa.runtime.asides import OpenFeeds
from dpa.sources.feed import Feed, Page, Position
from dpa.sources.splits import MemorySplit
from experiments.simulated_jobs.map_reduce import map_reduce_job
from experiments.simulated_jobs.random_jobs import Collect
from experiments.simulation.cluster import SimulatedCluster


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


@pytest.mark.parametrize("seed", range(4))
def test_in_a_simulated_job_the_lag_is_what_has_come_and_is_not_read(seed: int) -> None:
    table = [pa.table({"key": ["a"] * 40, "number": range(40 * part, 40 * part + 40)}) for part in range(30)]
    splits = tuple(MemorySplit(part, f"p{number % 3}") for number, part in enumerate(table))
    task = map_task(None, Collect(), values=("number",), batch_records=10)
    job = map_reduce_job(splits, task, mappers=2, reducers=2, map_seconds=0.02, ticks=None)
    source = replace(job.graph[MAPPER], input=StageInput(splits[:2], Position(2)))
    graph = replace(job.graph, stages=(source, *job.graph.stages[1:]))
    found: list[tuple[int, int]] = []

    def look(cluster: SimulatedCluster) -> None:
        stage = cluster.coordinator.snapshot(history=False)[MAPPER]
        if stage.lag and (not found or found[-1][1] != sum(each.records for each in stage.lag.values())):
            assert set(stage.lag) <= {"p0", "p1", "p2"} and all(each.seconds >= 0 for each in stage.lag.values())
            found.append((stage.records.read, sum(each.records for each in stage.lag.values())))

    SimulatedCluster(replace(job, graph=graph, feeds={MAPPER: splits}), seed, watch=look).run()
    assert len(found) > 2
    assert all(1_200 - read - 60 <= lag <= 1_200 - read + 60 for read, lag in found), found


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
