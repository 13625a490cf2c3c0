"""What was read of a split of which the rest was given back."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dpa.sources.records import Gaps
from dpa.sources.splits import FirstRows, MemorySplit, whole


@dataclass(frozen=True)
class Offsets:
    """Offsets of which some are not there, as those of a topic."""

    there: tuple[int, ...]
    rows: int
    columns: tuple[str, ...] | None = ("n",)
    has_gaps: ClassVar[bool] = True

    def batches(self, batch_rows: int, gaps: Gaps | None = None) -> Iterator[pa.RecordBatch]:
        at = 0
        for start in range(0, len(self.there), batch_rows):
            found = self.there[start : start + batch_rows]
            for place, offset in enumerate(found):
                if gaps is not None and offset > at:
                    gaps.note(start + place, offset - at)
                at = offset + 1
            yield pa.record_batch({"n": pa.array(found, pa.int64())})
        if gaps is not None and self.rows > at:
            gaps.note(len(self.there), self.rows - at)

    def after(self, rows: int) -> "Offsets":
        raise NotImplementedError


@given(st.sets(st.integers(0, 30)), st.integers(0, 31), st.integers(1, 5))
def test_they_are_those_before_the_place_at_which_the_rest_begins(there: set[int], rows: int, batch: int) -> None:
    first = FirstRows(Offsets(tuple(sorted(there)), 31), rows)  # type: ignore[arg-type]
    found = [n for each in first.batches(batch) for n in each.column("n").to_pylist()]
    assert found == sorted(n for n in there if n < rows)
    assert whole(first).split.columns is None  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Broken:
    """A split of which one batch can be read."""

    rows: int = 6

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [*range(batch_rows)]})
        raise AssertionError("the batch after the last row was read")

    def after(self, rows: int) -> "Broken":
        raise NotImplementedError


def test_of_a_split_without_gaps_they_are_the_first_and_no_batch_is_read_after_them() -> None:
    assert [batch.num_rows for batch in FirstRows(Broken(), 3).batches(3)] == [3]
    split = MemorySplit(pa.table({"n": [*range(7)]}), "left")
    assert [batch.num_rows for batch in FirstRows(split, 5).batches(3)] == [3, 2]
    assert [batch.num_rows for batch in FirstRows(split, 5).after(4).batches(3)] == [1]
    assert FirstRows(split, 5).channel == "left"
