"""Rows that are handed out a portion at a time, of a size that may change meanwhile."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa.errors import ExecutorError
from dpa.execution.rows import OneBatch, Pace, Portions, one_batch, records_of, whole_of


def of(rows: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(rows), pa.int64())})


def test_a_portion_has_as_many_rows_as_are_asked_for_when_it_is_taken() -> None:
    portions = Portions(OneBatch(of(10)))
    taken, batches = [], portions.batches(100)
    for at_once in (2, 5, 1, 50):
        portions.at_once = at_once
        taken.append(next(batches)["n"].to_pylist())
    assert taken == [[0, 1], [2, 3, 4, 5, 6], [7], [8, 9]]
    assert list(batches) == []


def test_a_portion_has_no_more_rows_than_a_batch() -> None:
    portions = Portions(OneBatch(of(7)))
    portions.at_once = 100
    assert [batch.num_rows for batch in portions.batches(3)] == [3, 3, 1]


@pytest.mark.parametrize("rows", [0, 1])
def test_an_empty_batch_is_handed_out_as_it_is(rows: int) -> None:
    class Rows:
        def batches(self, batch_rows: int):
            yield from (of(0), of(rows), of(0))

    assert [batch.num_rows for batch in Portions(Rows()).batches(5)] == [0, rows, 0]


@given(st.integers(0, 50), st.integers(1, 20), st.lists(st.integers(1, 20), min_size=1))
def test_portions_are_the_rows_in_order(rows: int, batch_rows: int, sizes: list[int]) -> None:
    portions = Portions(OneBatch(of(rows)))
    found, batches = [], portions.batches(batch_rows)
    for number in range(1_000):
        portions.at_once = sizes[number % len(sizes)]
        if (batch := next(batches, None)) is None:
            break
        assert batch.num_rows <= min(batch_rows, portions.at_once)
        found += batch["n"].to_pylist()
    assert found == list(range(rows))


def test_rows_with_more_text_than_one_batch_holds_are_refused_and_not_cut() -> None:
    rows = pa.record_batch({"n": [1], "text": ["x" * 2**27]})
    with pytest.raises(ExecutorError, match=r"column 'text', string, has 2.1 GiB in one task, and may have 2"):
        one_batch([(rows, 1)] * 17)
    assert one_batch([(rows, 1)] * 2).num_rows == 2


def test_what_arrow_does_not_put_together_is_said_with_its_reason() -> None:
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
