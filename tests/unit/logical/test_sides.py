"""The columns of both sides of a join must be known before a job runs, as they decide the names of its result."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import dpa
from dpa import Flow, Process
from dpa.aggregates import Count
from dpa.errors import ConfigError
from dpa.flow import Stream

ROWS = [{"word": "to", "n": 1}, {"word": "be", "n": 2}, {"word": "to", "n": 3}]


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def every(row: dict[str, Any]) -> bool:
    return True


@dpa.batch_mapper
def renamed(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.rename_columns(["term", *batch.schema.names[1:]])


class Seen(Process[int, Any]):
    """Emits nothing."""

    def zero(self) -> int:
        return 0

    def process(self, key: Any, state: int, value: Any) -> tuple[int, list[dict[str, Any]]]:
        return state, []


Sides = Callable[[Stream, Stream], Stream]
UNNAMED: dict[str, tuple[str, Sides]] = {
    "map": ("made", lambda rows, made: made),
    "filter after a map": ("made", lambda rows, made: made.filter(every)),
    "union": ("made", lambda rows, made: rows.union(made)),
    "union of any columns": ("made", lambda rows, made: rows.union(made, allow_missing_columns=True)),
    "flat_map": ("flat", lambda rows, made: made.flat_map(lambda row: [row], name="flat")),
    "batch function": ("made", lambda rows, made: made.map(renamed)),
    "reducer": ("largest", lambda rows, made: rows.key_by("word").reduce(max, name="largest")),
    "process": ("seen", lambda rows, made: rows.key_by("word").process(Seen(), name="seen")),
    "first rows": ("made", lambda rows, made: made.key_by("word").top_k(1, by="n")),
    "semi join": ("made", lambda rows, made: made.key_by("word").join(rows.key_by("word"), "semi")),
}
"""Rows whose columns are known only while a job runs, and the step that could declare them."""


@pytest.mark.parametrize(("hiding", "rows_of"), UNNAMED.values(), ids=UNNAMED)
@pytest.mark.parametrize("input", [{"format": "parquet", "path": "none"}, ROWS], ids=["not looked at", "in memory"])
def test_a_join_of_columns_that_are_not_known_is_refused_when_it_is_checked(
    hiding: str, rows_of: Sides, input: Any
) -> None:
    for swapped, how in itertools.product((False, True), ("inner", "left", "right", "full")):
        flow = Flow("tests")
        rows = flow.read(input, name="rows")
        sides = [rows, rows_of(rows, rows.map(same, name="made"))]
        left, right = reversed(sides) if swapped else sides
        left.key_by("word").join(right.key_by("word"), how, name="pairs")
        mend = f"declare the `schema` of '{hiding}', or name the columns that the join takes in `value`"
        with pytest.raises(ConfigError, match=rf"stages\.pairs\.join: .* are not known before the job runs: {mend}"):
            flow.check()


NAMED: dict[str, Sides] = {
    "value": lambda rows, made: made.key_by("word", value="n").join(rows.key_by("word")),
    "declared map": lambda rows, made: (
        made.map(same, schema={"word": "string", "n": "int8"}).key_by("word").join(rows.key_by("word"))
    ),
    "join of named columns": lambda rows, made: (
        made.key_by("word", value="n").join(rows.key_by("word"), "full").key_by("word").join(rows.key_by("word"))
    ),
    "ready-made reducer": lambda rows, made: (
        made.key_by("word").reduce(Count()).key_by("word").join(rows.key_by("word"))
    ),
    "ready-made reducer of objects": lambda rows, made: (
        made.key_by("word", value="n").reduce("top_k").key_by("word").join(rows.key_by("word"))
    ),
    "right side of a semi join": lambda rows, made: (
        rows.key_by("word").join(made.key_by("word"), "semi").key_by("word").join(rows.key_by("word"))
    ),
    "left side of an anti join": lambda rows, made: made.key_by("word").join(rows.key_by("word"), "anti"),
}


@pytest.mark.parametrize("build", NAMED.values(), ids=NAMED)
@pytest.mark.parametrize("input", [{"format": "parquet", "path": "none"}, ROWS], ids=["not looked at", "in memory"])
def test_a_join_needs_no_more_than_the_names_of_columns(build: Sides, input: Any) -> None:
    flow = Flow("tests")
    rows = flow.read(input)
    build(rows, rows.map(same))
    flow.check()


def test_a_column_that_a_join_of_named_columns_lacks_is_named() -> None:
    flow = Flow("tests")
    rows = flow.read(ROWS, name="rows")
    pairs = rows.map(same).key_by("word", value="n").join(rows.key_by("word"), name="pairs")
    pairs.key_by("m").reduce(Count())
    with pytest.raises(ConfigError, match="the step 'pairs' has no column 'm'; it has word, n, n_right"):
        flow.check()
