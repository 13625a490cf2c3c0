"""Jobs on days without rows: columns are there whatever input is empty, and a step that names one does not fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest

from dpa import Flow, Process
from dpa.aggregates import Count, Sum
from dpa.driver.backend import Backend
from dpa.flow import Rows
from dpa.simulation.backend import SimulatedBackend
from dpa.testing import LocalBackend

LEFT = pa.table({"id": [1, 2, 2], "day": ["Mon", "Tue", "Tue"], "n": [3, 1, 2]})
RIGHT = pa.table({"id": [2, 3, 4], "day": ["Tue", "Wed", "Thu"], "n": [0.5, 1.5, 2.5]})


@pytest.fixture(params=[LocalBackend(), SimulatedBackend(seed=1)], ids=["local", "simulated"])
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


def types_of(table: pa.Table) -> dict[str, pa.DataType]:
    return dict(zip(table.schema.names, table.schema.types, strict=True))


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


class Values(Process[int, Any]):
    """Emits each value with its key."""

    def zero(self) -> int:
        return 0

    def process(self, key: Any, state: int, value: Any) -> tuple[int, Iterable[dict[str, Any]]]:
        return state + 1, [{"key": str(key), "value": value}]


@pytest.mark.parametrize(
    "reaching", [lambda rows: rows, lambda rows: rows.filter(lambda row: False)], ids=["no rows", "all filtered"]
)
def test_a_process_by_several_columns_that_no_row_reaches_has_its_key_columns(
    backend: Backend, reaching: Callable[[Rows], Rows]
) -> None:
    flow = Flow("tests")
    reaching(flow.read(LEFT[:0])).key_by("id", "day").process(Values())
    assert types_of(flow.run(backend=backend).table()) == {"id": pa.int64(), "day": pa.string()}


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
@pytest.mark.parametrize("empty", ["left", "right", "both"])
def test_columns_of_a_join_can_be_named_where_nothing_is_known_of_a_side_without_rows(
    backend: Backend, how: str, empty: str
) -> None:
    flow = Flow("tests")
    left, right = (
        flow.read(table[:0] if empty in (side, "both") else table).map(same)
        for side, table in (("left", LEFT), ("right", RIGHT))
    )
    pairs = left.key_by("id").join(right.key_by("id"), how)
    pairs.key_by("day", "day_right").reduce(Sum("n_right"), name="sums")
    pairs.filter(same).key_by("day_right").top_k(2, by="n", name="top")
    result = flow.run(backend=backend)
    sums, top = result.table("sums"), result.table("top")
    assert sums.column_names == ["day", "day_right", "n_right"]
    assert set(top.column_names) >= {"day_right", "rank", "n"}
    rows = {("left", "right"): RIGHT, ("left", "full"): RIGHT, ("right", "left"): LEFT, ("right", "full"): LEFT}
    alone = rows.get((empty, how), RIGHT[:0])
    assert sum(filter(None, sums["n_right"].to_pylist())) == (sum(alone["n"].to_pylist()) if alone is RIGHT else 0)
    assert sums.num_rows == len(set(alone["day"].to_pylist()))


def test_a_ranking_by_a_function_of_typed_rows_keeps_their_columns(backend: Backend) -> None:
    flow = Flow("tests")
    ranked = flow.read(LEFT[:0]).key_by(lambda row: row["id"] % 2).top_k(2, by="n", name="ranked")
    ranked.key_by("day").reduce(Sum("n"), name="sums")
    assert types_of(flow.run(backend=backend).table()) == {"day": pa.string(), "n": pa.int64()}


def test_a_ranking_by_a_column_of_nulls_alone_passes_over_all_rows(backend: Backend) -> None:
    flow = Flow("tests")
    rows = flow.read(pa.table({"id": [1, 2], "n": pa.nulls(2)}))
    rows.key_by("id").top_k(1, by="n", name="first").key_by("id").reduce(Count(), name="counts")
    assert types_of(flow.run(backend=backend).table()) == {"id": pa.int64(), "count": pa.int64()}
