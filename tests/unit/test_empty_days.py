"""Jobs on days without rows: a step that names a column does not fail. That each result has the same columns and types,
whatever input is empty, is in `test_random_empty_days`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dpa import Flow
from dpa.aggregates import Count, Sum
from dpa.driver.backend import Backend
from dpa.testing import run_local

EMPTY = pa.schema({"id": pa.int64(), "day": pa.string(), "n": pa.int64()}).empty_table()


def types_of(table: pa.Table) -> dict[str, pa.DataType]:
    return dict(zip(table.schema.names, table.schema.types, strict=True))


def test_a_ranking_by_a_function_of_typed_rows_keeps_their_columns(backend: Backend) -> None:
    flow = Flow("tests")
    ranked = flow.read(EMPTY).key_by(lambda row: row["id"] % 2).top_k(2, by="n", name="ranked")
    ranked.key_by("day").reduce(Sum("n"), name="sums")
    assert types_of(flow.run(backend=backend).table()) == {"day": pa.string(), "n": pa.int64()}


def test_a_ranking_by_a_column_of_nulls_alone_passes_over_all_rows(backend: Backend) -> None:
    flow = Flow("tests")
    rows = flow.read(pa.table({"id": [1, 2], "n": pa.nulls(2)}))
    rows.key_by("id").top_k(1, by="n", name="first").key_by("id").reduce(Count(), name="counts")
    assert types_of(flow.run(backend=backend).table()) == {"id": pa.int64(), "count": pa.int64()}


@pytest.mark.parametrize("records", [[], [{"word": "to", "n": 1}]], ids=["none", "one"])
def test_records_in_memory_may_be_none(backend: Backend, records: list[Any]) -> None:
    flow = Flow("tests")
    flow.read(records, name="bare").key_by("word").reduce(Sum("n"), name="sums")
    flow.read(records, name="declared", schema={"word": "string", "n": "int16"}).top_k(1, by="n", name="top")
    result = flow.run(backend=backend)
    assert types_of(result.table("top")) == {"rank": pa.int64(), "word": pa.string(), "n": pa.int16()}
    assert result.table("sums").column_names == ["word", "n"]
    assert run_local(None, Sum("n"), records, key="word").column_names == ["word", "n"]
    assert [result.table(name).num_rows for name in ("top", "sums")] == [len(records)] * 2
