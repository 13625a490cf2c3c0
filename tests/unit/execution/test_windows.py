"""Stages in windows: each window is as a store of its own, whatever the kind, wherever its keys are; and it closes."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from builders import receiver, tables, written
from hypothesis import given, settings
from hypothesis import strategies as st
from test_receivers import EXAMPLES, every_kind

from dpa import Flow, Reducer
from dpa._given import as_reducer
from dpa.aggregates import Sum
from dpa.errors import JobFailedError
from dpa.execution.block import Block
from dpa.execution.mapping import MapTask
from dpa.execution.receivers import receiver_of, store_of
from dpa.execution.receivers._join import JoinReceiver
from dpa.execution.receivers._record import RecordReceiver
from dpa.execution.receivers.base import Receiver
from dpa.execution.reduce_task import ReduceStage, ReduceTask
from dpa.execution.rows import OneBatch, plain
from dpa.execution.spill.room import Room
from dpa.execution.windowing import Assign, Windowing
from dpa.testing import LocalBackend
from dpa.tolerance import Letters, Tolerance
from dpa.windows.options import END, START, Windows, session, sliding, tumbling
from dpa.windows.times import EventTime

SECOND = 1_000_000
KEY = ("key", START, END)
WINDOWS = Windowing(tumbling(10))

events = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-3, 3)), min_size=1, max_size=20)
"""Keys, each in a window of ten seconds."""


def blocks_of(found: list[tuple[str, int]], sides: int, first: int = 0) -> list[Block]:
    """Records with numbers in the column `value`, in each of `sides` sides."""
    starts = [window * 10 * SECOND for _, window in found]
    times = [pa.array([start + more for start in starts], pa.timestamp("us")) for more in (0, 10 * SECOND)]
    keys = pa.StructArray.from_arrays([pa.array([key for key, _ in found]), *times], names=KEY)
    values = pa.record_batch({"value": pa.array(range(first, first + len(found)), pa.int64())})
    return [Block.of(keys, values, 0, side) for side in range(sides)]


def in_windows(kind: type[Receiver]) -> Receiver:
    return replace(receiver(EXAMPLES[kind]), windowing=WINDOWS)


def key_of(made: Receiver) -> Any:
    return KEY if made.gives_key else ()


def rows_of(found: list[pa.Table]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for table in found for row in plain(table).to_pylist())


def expected(made: Receiver, found: list[tuple[str, int]]) -> dict[int, Counter[str]]:
    """The rows of each window: those of a store that has its records alone."""
    bare, all_rows = replace(made, windowing=None), {}
    for window in {window for _, window in found}:
        store, numbers = store_of(bare), [place for place, event in enumerate(found) if event[1] == window]
        for number in numbers:
            for side in range(1 + made.has_sides):
                values = pa.record_batch({"value": [number]})
                store.reduce(Block.of(pa.array([found[number][0]]), values, 0, side))
        table = plain(store.finish("key" if made.gives_key else ()).table)
        for name, at in ((START, window * 10), (END, window * 10 + 10)):
            times = pa.array([at * SECOND] * table.num_rows, pa.timestamp("us"))
            table = table.append_column(name, times)
        all_rows[window] = rows_of([table])
    return all_rows


@every_kind
@settings(max_examples=25)
@given(data=st.data(), found=events)
def test_a_window_is_as_a_store_of_its_own(kind: type[Receiver], data: Any, found: list[tuple[str, int]]) -> None:
    """Some keys move on the way, and a task goes on with a snapshot; some of the windows are closed before the end,
    from what lies on disk too."""
    made, table = in_windows(kind), data.draw(tables(reducers=2))
    stage, sides = ReduceStage(made, key_of(made)), 1 + made.has_sides
    room = Room(1) if data.draw(st.booleans()) else None
    tasks = [ReduceTask(stage, 0, room), ReduceTask(stage, 1, room)]
    for block in blocks_of(found, sides):
        tasks[0].process(block)
    while not (piece := tasks[0].extract_piece(table, 2)).is_last:
        tasks[1].install(piece.parts.values())
    tasks[1].install(piece.parts.values())
    tasks, before = [ReduceTask(stage, 0, room) for _ in tasks], tasks
    for task, each in zip(tasks, before, strict=True):
        task.restore(written(each), None)
    until = data.draw(st.integers(-3, 4))
    wanted = expected(made, found)
    for task in tasks:
        task.close(until * 10 * SECOND)
        assert task.first_open is None or task.first_open > until * 10 * SECOND
    later = [window for window in wanted if window >= until]
    known = [task.first_open for task in tasks if task.first_open is not None]
    assert min(known, default=None) == (min(later) * 10 * SECOND + 10 * SECOND if later else None)
    closed = rows_of([pa.Table.from_batches([rows]) for task in tasks for rows in task.snapshot().rows])
    assert closed == sum((rows for window, rows in wanted.items() if window < until), Counter())
    for task in tasks:
        task.finish()
        task.conform(None)
    assert rows_of([task.share.table for task in tasks]) == sum(wanted.values(), Counter())


def test_columns_of_a_join_have_their_names_though_a_window_has_rows_of_the_right_side_alone() -> None:
    made = in_windows(JoinReceiver)
    store = store_of(made)
    for window, side in ((0, 1), (1, 0), (1, 1)):
        [store.reduce(block) for block in blocks_of([("a", window)], 2) if block.side == side]
    share = store.close(30 * SECOND, KEY)
    assert share is not None
    assert plain(share.table).column_names == [*KEY, "value", "value_right"]


@every_kind
def test_records_of_a_closed_window_are_counted_and_left_out(kind: type[Receiver]) -> None:
    made = in_windows(kind)
    letters = [Letters(), Letters()]
    for each, keeps in zip(letters, (False, True), strict=True):
        late = replace(WINDOWS, late=Tolerance("totals", each, keeps))
        task = ReduceTask(ReduceStage(replace(made, windowing=late), key_of(made), letters=each), 0)
        task.close(10 * SECOND)
        for block in blocks_of([("a", 0), ("b", 1), ("b", 0)], 1):
            task.process(block)
        assert task.dead == 2
        assert task.first_open == 20 * SECOND
    skipped, kept = (each.take() for each in letters)
    assert skipped is not None and kept is not None
    assert [(count.error, count.records) for count in skipped.counts] == [("LateRecordError", 2)]
    assert [letter.error for letter in kept.letters] == ["LateRecordError"] * 2
    assert not skipped.letters


def test_late_records_that_a_sender_has_combined_are_counted_each_and_left_out_as_what_came() -> None:
    """What a stage has processed is counted as it came, and less what was left out is never below nothing."""
    letters, made = Letters(), in_windows(RecordReceiver)
    made = replace(made, windowing=replace(WINDOWS, late=Tolerance("totals", letters)))
    task = ReduceTask(ReduceStage(made, key_of(made), letters=letters), 0)
    task.close(10 * SECOND)
    [block] = blocks_of([("a", 0), ("a", 0), ("b", 0)], 1)
    states = made.combined(block)
    codes = np.arange(len(block.keys), dtype=np.int32)
    combined = Block(block.keys, block.hashes, codes, states, block.counts(), combined=True)
    task.process(combined)
    assert task.dead == combined.rows == 2
    failed = letters.take()
    assert failed is not None and [count.records for count in failed.counts] == [3]


class Collected(Reducer[list[int], int]):
    """The values, of which none is negative."""

    def zero(self) -> list[int]:
        return []

    def reduce(self, state: list[int], value: int) -> list[int]:
        state.append(value)
        if value < 0:
            raise ValueError(value)
        return state

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        return left + right

    def finish(self, state: list[int]) -> list[int]:
        return sorted(state)


seconds = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 40), st.booleans()), min_size=1, max_size=20)
"""Keys and times, and whether their records can be reduced."""


@settings(max_examples=60)
@given(found=seconds, combine=st.booleans(), at_once=st.integers(1, 20))
def test_a_dead_record_widens_no_session(found: list[tuple[str, int, bool]], combine: bool, at_once: int) -> None:
    values = [place if good else -1 for place, (_, _, good) in enumerate(found)]
    events = [(key, at) for key, at, _ in found]
    task, _ = in_sessions(events, values, Collected(), combine=combine, at_once=at_once)
    task.finish()
    task.conform(None)
    got = plain(task.share.table).to_pylist()
    assert {(row["key"], row[START].second, row[END].second, *row["value"]) for row in got} == sessions_of(found, 5)
    assert task.dead == sum(not good for *_, good in found)


def positive(one: int, other: int) -> int:
    """A sum, of two that are."""
    if min(one, other) < 0:
        raise ValueError(one, other)
    return one + other


@pytest.mark.parametrize("combine", [False, True])
def test_what_raises_on_two_values_of_a_session_leaves_one_out_and_fails_nothing(combine: bool) -> None:
    reducer, found = as_reducer(positive), [("a", 0), ("a", 1), ("a", 2), ("a", 3)]
    task, letters = in_sessions(found, [1, 2, -1, 4], reducer, combine=combine)
    task.finish()
    task.conform(None)
    assert plain(task.share.table)["value"].to_pylist() == [7]
    assert letters.count == task.dead == 1


def test_a_dead_record_keeps_no_late_one_from_being_late() -> None:
    closed = 6 * SECOND
    task, letters = in_sessions([("a", 0), ("a", 4)], [1, -1], Collected(), closed=closed)
    assert task.first_open is None
    failed = letters.take()
    assert failed is not None and {letter.error for letter in failed.letters} == {"ValueError", "LateRecordError"}
    task, letters = in_sessions([("a", 0), ("a", 4)], [1, 1], Collected(), closed=closed)
    assert (task.first_open, letters.count) == (9 * SECOND + 1, 0)
    task, letters = in_sessions([("a", 0)], [1], Collected(), closed=5 * SECOND)  # its session ends at event time
    assert (task.first_open, letters.count) == (5 * SECOND + 1, 0)
    task, letters = in_sessions([("a", 0)], [1], Collected(), closed=5 * SECOND + 1)
    assert (task.first_open, letters.count) == (None, 1)


@pytest.mark.parametrize("spills", [False, True])
def test_a_session_stays_open_at_its_end_where_a_row_still_joins_it(spills: bool) -> None:
    made = replace(receiver_of(Collected()), windowing=Windowing(session(5)))
    task = ReduceTask(ReduceStage(made, KEY), 0, Room(1) if spills else None)
    process(task, [("a", 0), ("b", 0)])
    assert task.first_open == 5 * SECOND + 1
    task.close(5 * SECOND)
    process(task, [("a", 5)])
    task.close(5 * SECOND + 1)
    assert ends_of(task) == [("b", 5)]
    process(task, [("a", 0)])  # it ends where the closed one of `b` did
    task.close(10 * SECOND + 1)
    assert ends_of(task) == [("b", 5), ("a", 10)]


def process(
    task: ReduceTask,
    found: list[tuple[str, int]],
    values: list[int] | None = None,
    *,
    combine: bool = False,
    at_once: int = 100,
) -> None:
    """Records of these keys and seconds, in sessions with a gap of five seconds and blocks of `at_once`."""
    at = pa.array([second * SECOND for _, second in found], pa.timestamp("us"))
    numbers = [second for _, second in found] if values is None else values
    rows = pa.record_batch({"key": [key for key, _ in found], "at": at, "value": numbers})
    edge = MapTask(None, KEY, ("value",), task.receiver, combine, seed=0, batch_records=at_once, step_seconds=1.0)
    for step in edge.steps(OneBatch(Assign(session(5), EventTime("at"))(rows)), lambda: 0.0):
        for _, block in step.blocks:
            task.process(block)


def ends_of(task: ReduceTask) -> list[tuple[str, int]]:
    rows = [row for batch in task.snapshot().rows for row in batch.to_pylist()]
    return [(row["key"], row[END].second) for row in rows]


def in_sessions(
    found: list[tuple[str, int]], values: list[int], reducer: Any, *, closed: int | None = None, **options: Any
) -> tuple[ReduceTask, Letters]:
    """A task that has processed these records; `closed`: until when windows were before."""
    letters = Letters()
    tolerance = Tolerance("sessions", letters, merges=True)
    windowing = Windowing(session(5), late=tolerance)
    made = replace(receiver_of(reducer), windowing=windowing, tolerance=tolerance)
    task = ReduceTask(ReduceStage(made, KEY, letters=letters), 0)
    if closed is not None:
        task.note_closed(closed)
    process(task, found, values, **options)
    return task, letters


def sessions_of(found: list[tuple[str, int, bool]], gap: int) -> set[tuple[Any, ...]]:
    """Keys, beginnings and ends of sessions, and the places of their records."""
    made: list[tuple[str, int, int, list[int]]] = []
    for key, at, place in sorted((key, at, place) for place, (key, at, good) in enumerate(found) if good):
        if made and made[-1][0] == key and at <= made[-1][2]:
            _, start, _, before = made.pop()
            made.append((key, start, at + gap, [*before, place]))
        else:
            made.append((key, at, at + gap, [place]))
    return {(key, start, end, *sorted(places)) for key, start, end, places in made}


@pytest.mark.parametrize(
    ("windows", "later", "message"),
    [
        (tumbling(10), (0, 1), "00:00:00.000000 to 1970-01-01T00:00:11.000000 is none of the windows of"),
        (sliding(10, 2), (3, 3), "is none of the windows of 10 s every 2 s; a function between the window"),
        (session(10), (0, -10), "is none of the sessions with a gap of 10 s; a function between the window and the"),
    ],
    ids=["tumbling", "sliding", "session"],
)
@pytest.mark.parametrize("twice", [False, True], ids=["once", "behind a step by key"])
def test_a_function_that_changes_the_window_of_a_row_fails_the_job(
    windows: Windows, later: tuple[int, int], message: str, twice: bool
) -> None:
    start, end = (timedelta(seconds=seconds) for seconds in later)
    flow = Flow("changed")
    rows = flow.read([{"key": "a", "n": 1, "at": 1}], time={"column": "at", "unit": "s"}).window(windows)
    if twice:
        rows = rows.key_by("key", value="n").reduce(Sum("n"))
    changed = rows.map(lambda row: {**row, START: row[START] + start, END: row[END] + end})
    changed.key_by("key", value="n").reduce(Sum("n"))
    with pytest.raises(JobFailedError, match=message):
        flow.run(backend=LocalBackend())
