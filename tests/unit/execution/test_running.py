"""Which piece of user code runs, read from a frame: here the user code itself looks, from its own frame."""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from builders import map_task

from dpa.execution.block import Block
from dpa.execution.failures import running
from dpa.execution.receivers import receiver_of, store_of
from dpa.execution.rows import Portions
from dpa.executors import BatchMapper, BatchReducer, Groups, Mapper, Reducer
from dpa.routing.ring import TokenRing
from dpa.sources.generated import GeneratedTable, Generator
from dpa.sources.splits import MemorySplit

ROWS = pa.table({"key": ["a", "b"], "value": [1, 2]})
seen: list[str | None] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


def look(result: Any) -> Any:
    seen.append(running(sys._getframe(1)))
    return result


class Looks(Reducer[int, int]):
    def zero(self) -> int:
        return look(0)

    def reduce(self, state: int, value: int) -> int:
        return look(state + value)

    def merge(self, left: int, right: int) -> int:
        return look(left + right)

    def finish(self, state: int) -> int:
        return look(state)


class LooksAtBatches(BatchReducer):
    def reduce(self, groups: Groups) -> pa.RecordBatch:
        return look(pa.record_batch({"n": [0] * len(groups)}))

    def merge(self, groups: Groups) -> pa.RecordBatch:
        return look(pa.record_batch({"n": [0] * len(groups)}))

    def finish(self, states: pa.RecordBatch) -> pa.RecordBatch:
        return look(states)


def through(reducer: Reducer[Any, Any] | BatchReducer) -> None:
    """Reduce, merge and finish a block."""
    states, block = (
        store_of(receiver_of(reducer)),
        Block.of(pa.array(["a", "b"]), pa.record_batch({"value": [1, 2]}), 0),
    )
    states.reduce(block)
    other = store_of(receiver_of(reducer))
    other.reduce(block)
    for part in other.pack(TokenRing(1, 1).snapshot(0), keep=1).values():
        states.merge(part)
    states.finish("key")


def test_a_reducers_methods_are_named_with_the_key() -> None:
    through(Looks())
    for method in ("zero", "reduce", "merge", "finish"):
        assert f"test_running.Looks.{method}, on key 'b'" in seen


def test_a_batch_reducers_methods_are_named_with_the_number_of_keys() -> None:
    through(LooksAtBatches())
    for method in ("reduce", "merge", "finish"):
        assert f"test_running.LooksAtBatches.{method}, on 2 keys" in seen


class Maps(Mapper):
    def map(self, record: dict[str, Any]) -> Iterator[tuple[str, int]]:
        yield look((record["key"], record["value"]))


class MapsBatches(BatchMapper):
    def map_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return look(batch)


@pytest.mark.parametrize(
    ("mapper", "last"),
    [
        (Maps(), "test_running.Maps.map, on record {'key': 'b', 'value': 2}"),
        (MapsBatches(), "test_running.MapsBatches.map_batch, on a batch of 2 rows"),
    ],
    ids=["records", "batches"],
)
def test_a_mapper_is_named_with_the_record_or_the_size_of_the_batch(mapper: Any, last: str) -> None:
    list(map_task(mapper, Looks()).steps(MemorySplit(ROWS), lambda: 0.0))
    assert seen[-1] == last


def as_read(rows: Any) -> Portions:
    portions = Portions(rows)
    portions.at_once = 100
    return portions


def test_reading_is_told_apart_from_the_record_before_whatever_is_read() -> None:
    class OfSomebodyElse:
        def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
            yield from (look(batch) for batch in ROWS.to_batches(max_chunksize=1))

    list(map_task(Maps(), Looks()).steps(as_read(OfSomebodyElse()), lambda: 0.0))
    assert seen[::2] == ["its input, which it reads"] * ROWS.num_rows


class LooksWhileItGenerates(Generator):
    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        return look(pa.record_batch({"key": ["a"] * rows, "value": [1] * rows}))


def test_generating_rows_is_reading() -> None:
    [split] = GeneratedTable(LooksWhileItGenerates(), 3).splits(3)
    seen.clear()
    list(map_task(Maps(), Looks()).steps(as_read(split), lambda: 0.0))
    assert seen[0] == "its input, which it reads"


def test_other_code_is_none_of_the_users() -> None:
    assert running(sys._getframe()) is None
    assert running(None) is None
