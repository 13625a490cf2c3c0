"""Executors that random jobs choose from: see `random_jobs`. All of them read the columns `k` and `v`, and `l` if it is
there."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dpa import BatchReducer, Groups, Mapper, Reducer, batch_mapper

Record = dict[str, Any]


def key_of(record: Record) -> Any:
    """Its key, which is composite if there is a column `l`."""
    return (record["k"], record["l"]) if "l" in record else record["k"]


def pairs(record: Record) -> Iterator[tuple[Any, Any]]:
    yield key_of(record), record["v"]


def none_or_two(record: Record) -> Iterator[tuple[Any, Any]]:
    """Drops odd values, and yields even ones twice."""
    if record["v"] % 2 == 0:
        yield key_of(record), record["v"]
        yield key_of(record), record["v"]


class Scaled(Mapper):
    """Multiplies values."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def map(self, record: Record) -> list[tuple[Any, Any]]:
        return [(key_of(record), record["v"] * self.factor)]


@batch_mapper
def batches(batch: pa.RecordBatch) -> pa.RecordBatch:
    """As they are, but without values below zero."""
    return batch.filter(pc.greater_equal(batch["v"], 0))


def largest(left: int, right: int) -> int:
    return max(left, right)


class Extent(Reducer[list[int], int]):
    """The least and the greatest value, in a state that is changed in place."""

    def zero(self) -> list[int]:
        return []

    def reduce(self, state: list[int], value: int) -> list[int]:
        state[:] = [min([*state, value]), max([*state, value])]
        return state

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        both = left + right
        return [min(both), max(both)] if both else []

    def finish(self, state: list[int]) -> dict[str, int]:
        return {"least": state[0], "greatest": state[1]}


class Number(Reducer[int, Any]):
    """Counts, and cannot merge."""

    def zero(self) -> int:
        return 0

    def reduce(self, state: int, value: Any) -> int:
        return state + 1


class SumAndCount(BatchReducer):
    """Two columns of states, which the result has too."""

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({"total": groups.sum("v"), "number": pa.array(groups.sizes(), pa.int64())})

    def merge(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({"total": groups.sum("total"), "number": groups.sum("number")})


class Draining(Reducer[list[int], int]):
    """Collects all values; its `finish` empties the state."""

    def zero(self) -> list[int]:
        return []

    def reduce(self, state: list[int], value: int) -> list[int]:
        state.append(value)
        return state

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        return left + right

    def finish(self, state: list[int]) -> int:
        total = sum(state)
        state.clear()
        return total


FATAL = 4_711
"""The value on which the executors below go wrong."""


class RaisesInMap(Mapper):
    def map(self, record: Record) -> list[tuple[Any, Any]]:
        if record["v"] == FATAL:
            raise ValueError("cannot map this")
        return [(key_of(record), record["v"])]


def raises_in_reduce(left: int, right: int) -> int:
    if FATAL in (left, right):
        raise ValueError("cannot reduce this")
    return left + right


def exits_in_reduce(left: int, right: int) -> int:
    if FATAL in (left, right):
        sys.exit(0)
    return left + right


def dies_in_reduce(left: int, right: int) -> int:
    if FATAL in (left, right):
        os.kill(os.getpid(), signal.SIGKILL)
    return left + right


class RaisesInFinish(Extent):
    def finish(self, state: list[int]) -> dict[str, int]:
        if state[1] >= FATAL:
            raise ValueError("cannot finish this")
        return super().finish(state)


class MixesTypes(Extent):
    """Text for one key, integers for all others."""

    def finish(self, state: list[int]) -> Any:
        return "text" if state[1] >= FATAL else state[1]
