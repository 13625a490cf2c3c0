"""Inputs that nobody would draw by hand, through the readers and steps: a result, or an error of dpa's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpa import Flow, batch_mapper, tumbling
from dpa.aggregates import Sum
from dpa.errors import ConfigError, DpaError, KeyTypeError, TableError
from dpa.routing.hashing import hash_column
from dpa.testing import LocalBackend
from experiments.fuzz_inputs.running import fuzzed

CASES = 120
"""Drawn by one seed: `python -m experiments.fuzz_inputs` draws others."""


def test_inputs_drawn_at_random_give_results_or_errors_in_words() -> None:
    found = fuzzed(seed=37, cases=CASES)
    assert not found.offenders, "\n".join(found.offenders)
    assert found.cases == CASES and found.outcomes["result"] > CASES // 5


def kept(record: dict[str, Any]) -> bool:
    return True


NOW = 1_700_000_000_000
KINDS: dict[str, pa.Array] = {
    "views": pa.array(["a", None, "b"], pa.string_view()),
    "views of bytes": pa.array([b"a", None, b"b"], pa.binary_view()),
    "dictionaries of times": pa.array([NOW, None, NOW], pa.timestamp("ms")).dictionary_encode(),
    "views in structs": pa.StructArray.from_arrays([pa.array(["a", None, "b"], pa.string_view())], names=["a"]),
    "views in lists": pa.array([["a"], None, []], pa.list_(pa.string_view())),
    # without a null, which Arrow 25 writes to Parquet and does not read
    "views in lists of a size": pa.array([["a"], ["c"], ["b"]], pa.list_(pa.string_view(), 1)),
    "views in maps": pa.array([[("a", "b")], None, []], pa.map_(pa.string(), pa.string_view())),
    "JSON": pa.ExtensionArray.from_storage(pa.json_(pa.string_view()), pa.array(["1", None, "2"], pa.string_view())),
    "runs": pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([1, 2])),
    "nulls": pa.nulls(3),
    "structs of nothing": pa.array([{}, None, {}], pa.struct([])),
    "uuids": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16, None, b"1" * 16], pa.binary(16))),
}


def of_rows(rows: pa.Table, place: Path) -> Any:
    return rows


def of_parquet(rows: pa.Table, place: Path) -> Any:
    pq.write_table(rows, place / "rows.parquet")
    return {"format": "parquet", "path": str(place / "rows.parquet")}


@pytest.mark.parametrize("given", [of_rows, of_parquet], ids=["in memory", "Parquet"])
@pytest.mark.parametrize("name", KINDS)
def test_columns_of_any_type_go_through_filters_windows_and_joins(
    name: str, given: Callable[[pa.Table, Path], Any], tmp_path: Path
) -> None:
    rows = pa.table({"k": [1, 2, 1], "at": pa.array([NOW] * 3, pa.timestamp("ms")), "x": KINDS[name]})
    if given is of_parquet and name in ("runs", "structs of nothing"):
        pytest.skip("Parquet has no such columns")
    flow = Flow("kinds", limits={"batch_records": 2})
    read = flow.read(given(rows, tmp_path), name="rows", time="at").filter(kept)
    read.window(tumbling("1h")).filter(kept).key_by("k").reduce("count", name="windows")
    read.key_by("k").join(read.filter(lambda record: False).key_by("k"), "left", name="joined")
    result = flow.run(backend=LocalBackend())
    assert sorted(result.table("windows").column("count").to_pylist()) == [1, 2]
    wanted, found = (table.column("x").to_pylist() for table in (rows, result.table("joined")))
    assert sorted(map(str, found)) == sorted(map(str, wanted))


@pytest.mark.parametrize("kind", [pa.list_view(pa.int64()), pa.dense_union([pa.field("a", pa.int64())])], ids=str)
def test_types_on_which_nothing_works_are_said(kind: pa.DataType) -> None:
    flow = Flow("kinds")
    with pytest.raises(TableError, match=r"the column 'x' is .*, on which no step works: leave it out"):
        flow.read(pa.table({"x": pa.nulls(2, kind)}))


def twice() -> pa.Table:
    """Made where it is needed: Ray cannot pickle one."""
    return pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["k", "v", "v"])


@batch_mapper
def doubled(batch: pa.RecordBatch) -> pa.Table:
    return twice()


def test_two_columns_of_one_name_are_said_whoever_gives_them(tmp_path: Path) -> None:
    flow = Flow("twice")
    flow.read(of_parquet(twice(), tmp_path), name="rows").key_by("k").reduce("count", name="counts")
    with pytest.raises(ConfigError, match="more than one column named 'v'"):
        flow.run(backend=LocalBackend())

    flow = Flow("twice")
    flow.read(pa.table({"k": [1]})).map(doubled).key_by("k").reduce("count", name="counts")
    with pytest.raises(DpaError, match="more than one column named 'v'"):
        flow.run(backend=LocalBackend())


@batch_mapper
def of_polars(batch: pa.RecordBatch) -> pa.Table:
    return pa.table({"k": pa.array(["a"] * batch.num_rows, pa.string_view()), "v": batch.column("v")})


def test_views_that_a_batch_function_gives_are_keys() -> None:
    flow = Flow("views")
    rows = flow.read(pa.table({"v": [1, 2]})).map(of_polars).filter(kept)
    rows.key_by("k", value="v").reduce(Sum("v"), name="sums")
    assert flow.run(backend=LocalBackend()).table("sums").to_pylist() == [{"k": "a", "v": 3}]


@pytest.mark.parametrize("made", [pl.DataFrame, pd.DataFrame, pa.table], ids=["polars", "pandas", "Arrow"])
def test_a_name_with_nul_is_refused_as_polars_would_end_the_process(made: Callable[[Any], Any]) -> None:
    with pytest.raises(TableError, match="names have no NUL"):
        Flow("nul").read(made({"a\0b": [1]}))


def test_times_that_pandas_has_none_for_are_null() -> None:
    flow = Flow("none")
    records = [{"at": pd.NaT, "n": 1}, {"at": pd.Timestamp(0, tz="UTC"), "n": 2}, {"at": pd.NaT, "n": 4}]
    flow.read(records).key_by("at").reduce("count", name="counts")
    found = flow.run(backend=LocalBackend()).table("counts").to_pylist()
    assert sorted(row["count"] for row in found) == [1, 2] and [row["count"] for row in found if row["at"] is None] == [
        2
    ]


@pytest.mark.parametrize("keys", [2, 1_000], ids=["few", "many"])
def test_a_key_that_is_not_utf_8_is_an_error_of_keys(keys: int) -> None:
    column = pa.array([b"\xff" + str(number).encode() for number in range(keys)]).view(pa.string())
    with pytest.raises(KeyTypeError, match="UTF8"):
        hash_column(column)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.999])
def test_a_parquet_file_that_ends_early_is_said(share: float, tmp_path: Path) -> None:
    given = of_parquet(pa.table({"k": np.arange(1_000)}), tmp_path)
    whole = (tmp_path / "rows.parquet").read_bytes()
    (tmp_path / "rows.parquet").write_bytes(whole[: int(share * len(whole))])
    flow = Flow("short")
    flow.read(given).key_by("k").reduce("count", name="counts")
    with pytest.raises(ConfigError, match="not a Parquet file that can be read"):
        flow.run(backend=LocalBackend())


@pytest.mark.parametrize("kind", ["duration[s]", "halffloat", "fixed_size_binary[3]", "map<string, int64>"])
def test_a_type_that_json_has_not_is_said_before_a_broker_is_asked(kind: str) -> None:
    flow, columns = Flow("declared"), {"k": "string", "x": kind}
    read = {"servers": "localhost:1", "topic": "none", "value": "json", "columns": columns}
    flow.read({"format": "kafka", "kafka": read}).key_by("k").reduce("count")
    with pytest.raises(ConfigError, match=r"the column 'x' is declared as .*: declare a type that JSON has"):
        flow.run(backend=LocalBackend())


def test_a_dictionary_with_null_among_its_values_is_ranked() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 2], pa.int8()), pa.array([1.5, None, 2.5]))
    flow = Flow("nulls")
    flow.read(pa.table({"k": [1, 1, 2, 2], "v": column})).key_by("k").top_k(1, by="v", name="top")
    found = flow.run(backend=LocalBackend()).table("top").to_pylist()
    assert sorted((row["k"], row["v"]) for row in found) == [(1, 1.5), (2, 2.5)]
