"""Rows that are handed out a portion at a time, of a size that may change meanwhile."""

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpa.errors import ExecutorError, TableError
from dpa.execution.rows import OneBatch, Pace, Portions, one_batch, records_of, whole_of
from dpa.sources.event_time import SourceTime
from dpa.windows.times import EventTime


def of(rows: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(rows), pa.int64())})


@given(st.integers(0, 50), st.integers(1, 20), st.lists(st.integers(1, 20), min_size=1), st.integers(0, 60))
@example(10, 100, [2, 5, 1, 50], 60)
@example(7, 3, [100], 60)
@example(10, 4, [3], 1)
def test_portions_are_the_rows_in_order_as_many_as_are_asked_for_until_they_are_closed(
    rows: int, batch_rows: int, sizes: list[int], most: int
) -> None:
    portions = Portions(OneBatch(of(rows)))
    found, batches = [], portions.batches(batch_rows)
    for number in range(most):
        portions.at_once = sizes[number % len(sizes)]
        if (batch := next(batches, None)) is None:
            assert len(found) == rows
            break
        left = min(rows - len(found), batch_rows - len(found) % batch_rows)
        assert batch.num_rows == min(left, portions.at_once)
        found += batch["n"].to_pylist()
    portions.close()
    assert list(batches) == []
    assert found == list(range(len(found)))


def test_what_cannot_be_in_one_piece_is_refused_and_not_cut() -> None:
    rows = pa.record_batch({"n": [1], "text": ["x" * 2**27]})
    with pytest.raises(ExecutorError, match=r"column 'text', string, has 2.1 GiB in one task, and may have 2"):
        one_batch([(rows, 1)] * 17)
    assert one_batch([(rows, 1)] * 2).num_rows == 2
    columns = [pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([value, None])) for value in (1.0, 2.0)]
    lists = pa.chunked_array([pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), each) for each in columns])
    with pytest.raises(ExecutorError, match=r"the column 'x', list<.*>, cannot be in one piece: .*dictionaries"):
        whole_of(pa.table({"x": lists}))


def test_who_works_on_slow_records_looks_at_the_clock_after_each_one_and_among_fast_ones_seldom() -> None:
    now = 0.0
    pace = Pace(lambda: now, 1.0)
    looked, handed_over = [], []
    for seconds in [0.001] * 9 + [0.3] * 5:
        looked.append(pace.records)
        now += seconds
        handed_over.append(pace.is_over())
        if handed_over[-1]:
            pace.begin()
    assert looked == [1, 2, 4, 8, 16, 32, 64, 64, 64, 64, 1, 1, 1, 1]
    assert handed_over == [False] * 12 + [True, False]


def test_rows_have_the_columns_of_their_batch_whatever_their_names_are() -> None:
    names = ["class", "v1", "v0", "", "a\"b'c", "\\n", "{}", "\N{SNOWMAN}"]
    batch = pa.record_batch([pa.array([place, None]) for place in range(len(names))], names=names)
    assert (
        list(records_of(batch))
        == batch.to_pylist()
        == [{name: place for place, name in enumerate(names)}, dict.fromkeys(names)]
    )
    assert list(records_of(batch.slice(2))) == []


def test_portions_have_the_time_at_which_they_are_read_and_the_greatest_is_noted() -> None:
    time = SourceTime(EventTime("read_at"), is_added=True)
    made = Portions(OneBatch(of(10)), time)
    made.at_once, made.read_at = 3, 5_000_000
    batches = made.batches(4)
    first = next(batches)
    assert first.schema == pa.schema([("n", pa.int64()), ("read_at", pa.timestamp("us", "UTC"))])
    made.read_at = 6_000_000
    times = [batch["read_at"].cast(pa.int64()).to_pylist() for batch in (first, *batches)]
    assert times == [[5_000_000] * 3, [6_000_000], [6_000_000] * 3, [6_000_000], [6_000_000] * 2]
    assert made.greatest == 6_000_000
    [empty] = Portions(OneBatch(of(0)), time).batches(4)
    assert empty.schema.names == ["n", "read_at"] and not empty.num_rows
    assert time.stamped(of(3).select([]), 1)["read_at"].cast(pa.int64()).to_pylist() == [1, 1, 1]


def test_rows_that_have_a_column_of_that_name_are_refused_where_that_was_not_known_before() -> None:
    made = Portions(OneBatch(of(10)), SourceTime(EventTime("n"), is_added=True))
    with pytest.raises(TableError, match="the input has a column 'n', and the time at which rows are read is added"):
        next(made.batches(4))
