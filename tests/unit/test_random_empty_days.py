"""Random flows have the same columns and types whichever of their inputs are empty, and where a filter lets nothing
through; if no types are declared, the same columns."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from random import Random
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import dpa
from dpa import Flow, Process, Reducer
from dpa.aggregates import Count, Distinct, Max
from dpa.flow import Stream
from dpa.operators import JOINS
from dpa.testing import LocalBackend
from experiments.simulation.backend import SimulatedBackend

TYPES = {
    **dict.fromkeys(("k", "v", "count", "distinct", "rank"), pa.int64()),
    **{"w": pa.float64(), "t": pa.string(), "top": pa.list_(pa.int64())},
    **dict.fromkeys(("at", "window_start", "window_end"), pa.timestamp("us")),
}
"""The types of columns of random flows, by their names without `_right`."""


@dpa.batch_mapper
def with_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return pa.record_batch({"t_right": pa.nulls(batch.num_rows, pa.string()), **columns})


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


class Again(Process[int, Any]):
    """Emits a row for each value, with its key."""

    def zero(self) -> int:
        return 0

    def process(self, key: Any, state: int, value: Any) -> tuple[int, Iterable[dict[str, Any]]]:
        return state + 1, [{"k": key, "v": state}]


class Often(Reducer[int, Any]):
    """How often each key came, as a number and as text."""

    schema: ClassVar = {"v": "int64", "t": "string"}

    def zero(self) -> int:
        return 0

    def reduce(self, state: int, value: Any) -> int:
        return state + 1

    def merge(self, left: int, right: int) -> int:
        return left + right

    def finish(self, state: int) -> dict[str, Any]:
        return {"v": state, "t": str(state)}


class RandomFlow:
    """The flow of a seed, some of whose inputs may have no rows; `is_dry`: a filter lets nothing through."""

    def __init__(self, seed: int, empty: Collection[str] = (), *, is_dry: bool = False) -> None:
        self.draw, self.seed, self.is_dry = Random(seed), seed, is_dry
        self.flow = Flow("random", limits={"batch_records": 4, "in_flight_records": 12, "split_records": 4})
        self.is_windowed, self.has_types = self.draw.random() < 0.3, self.draw.random() < 0.7
        self.key = ["k", "window_start", "window_end"] if self.is_windowed else ["k"]
        self.rows = [
            self._read(name, others, name in empty) for name, others in {"a": "v", "b": "vw", "c": "wt"}.items()
        ]
        steps = [self._join, *self.draw.choices([*[self._join] * 4, *self._others()], k=6)]
        self.draw.shuffle(steps)
        for step in steps:
            self.rows.append(step(*self.draw.choice(self.rows)))
        self._filter(*self._join(*self.rows[-1]), nothing=True)
        for read in self.rows[:3]:
            self._filter(*read)

    def schemas(self) -> dict[str, pa.Schema]:
        """The columns of each result; types are null where nothing declares them."""
        result = self.flow.run(backend=SimulatedBackend(seed=self.seed) if self.seed % 3 == 0 else LocalBackend())
        return {step.name: result.table(step.name).schema for step in self.flow.job().spec.results}

    def _others(self) -> list[Any]:
        return [self._filter, self._map, self._batches, self._union, self._reduce, self._first, self._process]

    def _read(self, name: str, others: str, is_empty: bool) -> tuple[Stream, list[str]]:
        numbers = range(0 if is_empty else 12)
        made = {"v": list(numbers), "w": [n / 4 for n in numbers], "t": [str(n) for n in numbers]}
        rows = {"k": [n % 5 for n in numbers], "at": list(numbers), **{name: made[name] for name in others}}
        table = pa.table(rows, pa.schema([(name, TYPES[name]) for name in rows]))
        read = self.flow.read(table, name=name, time="at")
        if self.is_windowed:
            return read.window(dpa.tumbling(4e-6)), [*rows, *self.key[1:]]
        return read, [*rows]

    def _types(self, names: Iterable[str]) -> dict[str, pa.DataType]:
        return {name: TYPES[name.partition("_right")[0]] for name in names}

    def _join(self, left: Stream, names: list[str]) -> tuple[Stream, list[str]]:
        (right, others), how = self.draw.choice(self.rows), self.draw.choice(JOINS)
        values = [[name for name in each if name not in self.key] for each in (names, others)]
        if self.draw.random() < 0.5:
            values[1] = self.draw.sample(values[1], self.draw.randint(0, len(values[1])))
        if not self.has_types:
            left, right = left.map(same), right.map(same)
        pairs = left.key_by("k", value=values[0]).join(right.key_by("k", value=values[1]), how, parallelism=2)
        found = [*self.key, *values[0]]
        for name in sorted(values[1], key=others.index) if how not in ("semi", "anti") else ():
            found.append(next(name + "_right" * n for n in itertools.count() if name + "_right" * n not in found))
        return pairs, found

    def _filter(self, rows: Stream, names: list[str], *, nothing: bool = False) -> tuple[Stream, list[str]]:
        return rows.filter(lambda row: not (nothing and self.is_dry) and (row["k"] or 0) % 3 > 0), names

    def _map(self, rows: Stream, names: list[str]) -> tuple[Stream, list[str]]:
        return rows.map(same, schema=self._types(names)), names

    def _batches(self, rows: Stream, names: list[str]) -> tuple[Stream, list[str]]:
        return rows.map(with_text), [*dict.fromkeys(["t_right", *names])]

    def _union(self, rows: Stream, names: list[str]) -> tuple[Stream, list[str]]:
        others, more = self.draw.choice([each for each in self.rows if self.has_types or {*each[1]} == {*names}])
        return rows.union(others, allow_missing_columns=True), list(dict.fromkeys([*names, *more]))

    def _reduce(self, rows: Stream, names: list[str]) -> tuple[Stream, list[str]]:
        value = self.draw.choice([name for name in names if name not in self.key])
        reducers = {"count": Count(), "distinct": Distinct(), value: Max(value), "v t": Often()}
        found, reducer = self.draw.choice(list(reducers.items()))
        return rows.key_by("k", value=value).reduce(reducer, parallelism=2), [*self.key, *found.split()]

    def _first(self, rows: Stream, names: list[str]) -> tuple[Stream, list[str]]:
        values = [name for name in names if name not in (*self.key, "rank")]
        rows = rows.key_by("k", value=values).top_k(2, by=self.draw.choice(values), parallelism=2)
        return rows, [*self.key, "rank", *values]

    def _process(self, rows: Stream, names: list[str]) -> tuple[Stream, list[str]]:
        made = rows.key_by("k", value=[]).process(Again(), schema={"k": "int64", "v": "int64"}, parallelism=2)
        return made, [*self.key, "v"]


@pytest.mark.parametrize("seed", range(25))
def test_a_random_flow_has_the_same_columns_and_types_whatever_is_empty(seed: int) -> None:
    whole = RandomFlow(seed)
    wanted = whole.schemas()
    subsets = [some for number in (1, 2, 3) for some in itertools.combinations("abc", number)]
    assert whole.flow.forecast().stages and RandomFlow(seed, "abc").flow.forecast().stages
    for other in (*(RandomFlow(seed, empty) for empty in subsets), RandomFlow(seed, is_dry=True)):
        found = other.schemas()
        assert {name: schema.names for name, schema in found.items()} == {n: s.names for n, s in wanted.items()}
        assert not whole.has_types or found == wanted
