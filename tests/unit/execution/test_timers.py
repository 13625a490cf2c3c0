"""Timers of a process: called once, in the order of time, wherever the key's state has been."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from builders import receiver, table_giving, tables, written
from hypothesis import given, settings
from hypothesis import strategies as st

from dpa import Flow, Process, tumbling
from dpa.errors import ConfigError, ExecutorError
from dpa.execution.block import Block
from dpa.execution.reduce_task import ReduceStage, ReduceTask
from dpa.execution.spill.room import Room
from dpa.execution.windowing import Windowing
from dpa.executors import Record
from dpa.protocol.task.user_code import UserCode
from dpa.protocol.wire.instructions import InstallStates, ProcessBlocks, Publish
from dpa.tolerance import Letters, Tolerance
from dpa.windows.options import END, START

SECOND = 1_000_000
BEGINNING = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Alarms(Process[list[int], int]):
    """Sets an alarm at each value, in seconds, each of which gives a row; those that 3 divides, another 4 later. Fails
    on 13. Forgets a key without alarms."""

    def zero(self) -> list[int]:
        return []

    def process(self, key: str, state: list[int], value: int) -> tuple[list[int], list[Record]]:
        state.append(value)
        if value == 13:
            raise ValueError("thirteen")
        return state, []

    def timer(self, key: str, state: list[int]) -> datetime | None:
        return BEGINNING + timedelta(seconds=min(state)) if state else None

    def on_time(self, key: str, state: list[int], time: datetime) -> tuple[list[int] | None, list[Record]]:
        assert time == BEGINNING + timedelta(seconds=min(state))
        value = min(state)
        state.remove(value)
        if value % 3 == 0:
            state.append(value + 4)
        return state or None, [{"key": key, "alarm": value}]


def alarms_of(values: list[int]) -> list[int]:
    found = list(values)
    for value in found:
        found += [value + 4] if value % 3 == 0 else []
    return found


def block(records: list[tuple[str, int]]) -> Block:
    values = pa.record_batch({"value": pa.array([value for _, value in records], pa.int64())})
    return Block.of(pa.array([key for key, _ in records]), values, 0, 0)


def rows_of(task: ReduceTask) -> list[tuple[str, int]]:
    """The rows that a task has given until now."""
    return [(row["key"], row["alarm"]) for batch in task.snapshot().rows for row in batch.to_pylist()]


records = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40)), min_size=1, max_size=12)


@settings(max_examples=40)
@given(data=st.data(), blocks=st.lists(records, min_size=1, max_size=4))
def test_each_timer_is_called_once_in_the_order_of_time_wherever_its_key_is(
    data: Any, blocks: list[list[tuple[str, int]]]
) -> None:
    letters = Letters() if data.draw(st.booleans()) else None
    made = receiver(Alarms())
    if letters is None:
        blocks = [[(key, 12 if value == 13 else value) for key, value in found] for found in blocks]
    else:
        made = replace(made, tolerance=Tolerance("alarms", letters, False))
    stage, room = ReduceStage(made, (), letters=letters), Room(1) if data.draw(st.booleans()) else None
    task, until, waiting, expected = ReduceTask(stage, 0, room), -1, [], []
    for found in blocks:
        task.process(block(found))
        waiting += [(key, value) for key, value in found if value != 13]
        task = moved(task, stage, room, data)
        until += data.draw(st.integers(1, 15))
        before = len(rows_of(task))
        task.close(until * SECOND)
        now = rows_of(task)[before:]
        due: list[tuple[str, int]] = []
        for key, value in waiting:
            due += [(key, alarm) for alarm in alarms_of([value]) if alarm < until]
        assert sorted(now) == sorted(due)
        if room is None:
            assert [alarm for _, alarm in now] == sorted(alarm for _, alarm in now)
        # what is left of a chain goes on behind what has been called
        left = [(key, [alarm for alarm in alarms_of([value]) if alarm >= until][:1]) for key, value in waiting]
        waiting = [(key, alarm) for key, alarms in left for alarm in alarms]
        expected += due
        first = min((alarm for _, alarm in waiting), default=None)
        assert task.first_open == (None if first is None else first * SECOND + 1)
    task.finish()
    task.conform(None)
    rest = [(key, alarm) for key, value in waiting for alarm in alarms_of([value])]
    given_rows = [(row["key"], row["alarm"]) for row in task.share.table.to_pylist()]
    assert sorted(given_rows) == sorted([*expected, *rest])
    assert not len(task.share.keys)  # all are forgotten


def moved(task: ReduceTask, stage: ReduceStage, room: Room | None, data: Any) -> ReduceTask:
    """The task as it goes on: as it is, behind a checkpoint, or with some of its keys gone and come back."""
    if data.draw(st.booleans()):
        made = ReduceTask(stage, 0, room)
        made.restore(written(task), None)
        return made
    table = data.draw(tables(reducers=2))
    while True:
        piece = task.extract_piece(table, 1)
        for part in piece.parts.values():
            task.install([pickle.loads(pickle.dumps(part))])
        if piece.is_last:
            return task


def test_a_timer_that_is_due_already_waits_for_the_next_epoch_wherever_its_key_goes() -> None:
    """A task that comes is told what was closed along with its first records: that gives nothing, or it would be
    lost."""
    stage = ReduceStage(receiver(Alarms()), ())
    giver, taker = UserCode(stage, 0, lambda: 0.0), UserCode(stage, 1, lambda: 0.0)
    giver.carry_out(Publish((), 1, closes=20 * SECOND, publishes=()))
    done: Any = giver.carry_out(ProcessBlocks((block([("a", 7)]),), 0, 20 * SECOND))
    assert done.opens == 20 * SECOND + 1
    parts = giver.reduce_task.extract(table_giving({"a": 1}))
    taker.carry_out(InstallStates((parts[1],)))
    taker.carry_out(ProcessBlocks((block([("b", 30)]),), 0, 20 * SECOND))
    taker.carry_out(Publish((), 2, closes=20 * SECOND, publishes=()))  # which nothing has become due in
    assert rows_of(taker.reduce_task) == []
    taker.carry_out(Publish((), 3, closes=20 * SECOND + 1, publishes=()))
    assert rows_of(taker.reduce_task) == [("a", 7)]


@pytest.mark.parametrize("spills", [False, True])
def test_a_timer_is_called_after_the_rows_of_its_own_time(spills: bool) -> None:
    task = ReduceTask(ReduceStage(receiver(Alarms()), ()), 0, Room(1) if spills else None)
    task.process(block([("a", 7)]))
    assert task.first_open == 7 * SECOND + 1
    task.close(7 * SECOND)  # rows of this time may still come
    assert rows_of(task) == []
    task.close(7 * SECOND + 1)
    assert rows_of(task) == [("a", 7)]


def in_windows(*records: tuple[str, int, int]) -> ReduceTask:
    """A task that has processed values of keys in windows of ten seconds, which begin at these seconds."""
    task = ReduceTask(ReduceStage(replace(receiver(Alarms()), windowing=Windowing(tumbling(10))), ()), 0)
    times = [pa.array([(at + more) * SECOND for _, at, _ in records], pa.timestamp("us")) for more in (0, 10)]
    keys = pa.StructArray.from_arrays([pa.array([key for key, _, _ in records]), *times], names=["key", START, END])
    task.process(Block.of(keys, pa.record_batch({"value": [value for *_, value in records]}), 0, 0))
    return task


def ends_of(task: ReduceTask) -> list[tuple[str, int, int]]:
    rows = [row for batch in task.snapshot().rows for row in batch.to_pylist()]
    return [(row["key"], row["alarm"], row[END].second) for row in rows]


def test_timers_of_a_window_are_called_up_to_its_end() -> None:
    task = in_windows(("a", 0, 9), ("b", 0, 14), ("a", 10, 12))
    assert task.first_open == 9 * SECOND + 1
    task.close(13 * SECOND)
    assert ends_of(task) == [("a", 9, 10), ("a", 12, 20)]
    assert task.first_open == 16 * SECOND + 1
    task.finish()
    task.conform(None)
    assert task.share.table["alarm"].to_pylist() == [9, 12, 16]  # not 13 and 14 of the first window
    task = in_windows(("a", 0, 10))  # at the very end: when it is closed
    assert task.first_open == 10 * SECOND
    task.close(10 * SECOND)
    assert ends_of(task) == [("a", 10, 10)]
    assert task.first_open is None


class Stays(Alarms):
    def on_time(self, key: str, state: list[int], time: datetime) -> tuple[list[int], list[Record]]:
        return state, []


class Ticks(Alarms):
    def on_time(self, key: str, state: list[int], time: datetime) -> tuple[list[int], list[Record]]:
        return [state[0] + 60], []


class Numbers(Alarms):
    def timer(self, key: str, state: list[int]) -> Any:
        return 7


@pytest.mark.parametrize(
    ("process", "says"),
    [
        (Stays(), "on_time was called for key 'a' 1,000 times at once, and its timer is still due"),
        (Ticks(), "have `on_time` move it forward, and set it again only if records have come since"),
        (Numbers(), "a timer is a datetime or None, not 7"),
    ],
    ids=["leaves it", "never ends", "is no time"],
)
def test_a_timer_that_cannot_be_kept_is_explained(process: Alarms, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpa.execution.receivers._process.MOST_AT_ONCE", 1_000)
    task = ReduceTask(ReduceStage(receiver(process), ()), 0)
    with pytest.raises(ExecutorError, match=says):
        task.process(block([("a", 1)]))
        task.finish()


def test_timers_need_the_time_of_an_input() -> None:
    flow = Flow("alarms")
    flow.read(pa.table({"key": ["a"], "value": [1]})).key_by("key", value="value").process(Alarms())
    with pytest.raises(ConfigError, match="its rows have no time, which timers need: name it in `time` of the input"):
        flow.job().check()
