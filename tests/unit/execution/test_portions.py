"""Rows that are handed out a portion at a time, and no further than to where they are closed."""

from collections.abc import Iterator

import pyarrow as pa

from dpa.execution.rows import Portions
from dpa.sources.splits import MemorySplit

TABLE = pa.table({"n": range(10)})


def portions(at_once: int) -> tuple[Portions, Iterator[pa.RecordBatch]]:
    made = Portions(MemorySplit(TABLE))
    made.at_once = at_once
    return made, made.batches(4)


def test_portions_are_of_as_many_rows_as_is_said_at_the_time() -> None:
    made, batches = portions(3)
    assert next(batches).num_rows == 3
    made.at_once = 100
    assert [batch["n"].to_pylist() for batch in batches] == [[3], [4, 5, 6, 7], [8, 9]]


def test_nothing_is_handed_out_once_closed_neither_of_this_batch_nor_of_others() -> None:
    made, batches = portions(3)
    assert next(batches)["n"].to_pylist() == [0, 1, 2]
    made.close()
    assert list(batches) == []


def test_what_is_closed_before_it_begins_hands_out_nothing() -> None:
    made, batches = portions(3)
    made.close()
    assert list(batches) == []
