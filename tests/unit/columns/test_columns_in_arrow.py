"""Every Arrow type goes to polars and comes back as it was."""

import polars as pl
import pyarrow as pa
import pytest
from arrow_columns import COLUMNS, DAY, of

from dpa._util.inference import known
from dpa.columns.arrow import to_batch, to_frame
from dpa.errors import TableError


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_a_column_comes_back_as_it_was(column: pa.Array) -> None:
    for rows in (column, column[1:], column[:2], column[:0]):
        batch = known(pa.record_batch({"x": rows, "row": pa.array(range(len(rows)))}))
        found = to_batch(to_frame(batch), batch.schema)
        assert found.schema.equals(batch.schema, check_metadata=True)
        assert found.to_pylist() == batch.to_pylist()


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_a_column_goes_through_a_query_that_leaves_out_rows(column: pa.Array) -> None:
    batch = known(pa.record_batch({"x": column, "row": pa.array(range(len(column)))}))
    kept = to_frame(batch).lazy().filter(pl.col("row") > 0).collect()
    found = to_batch(kept, batch.schema)
    assert found.schema == batch.schema
    assert found.column("x").to_pylist() == batch.column("x")[1:].to_pylist()


def test_a_table_of_several_chunks_is_one_frame() -> None:
    table = pa.concat_tables([pa.table({"x": of((1, 2, 3), pa.month_day_nano_interval())[0]}) for _ in range(2)])
    assert to_batch(to_frame(table), table.schema).equals(table.combine_chunks().to_batches()[0])


def test_a_column_of_another_type_gets_the_plain_one_of_polars() -> None:
    batch = pa.record_batch({"x": pa.array([DAY], pa.date64()), "y": pa.array(["a"], pa.large_string())})
    frame = to_frame(batch).with_columns(x=pl.lit("text"), new=pl.concat_list("y"), kind=pl.lit("a", pl.Categorical))
    assert to_batch(frame, batch.schema).schema == pa.schema(
        {"x": pa.string(), "y": pa.large_string(), "new": pa.list_(pa.string()), "kind": pa.string()}
    )


def test_no_expression_works_on_bytes_that_stand_for_another_type() -> None:
    frame = to_frame(pa.record_batch({"x": of((1, 2, 3), pa.month_day_nano_interval())[0]}))
    assert frame.select(pl.col("x").is_null()).to_series().to_list() == [False, True, False]
    with pytest.raises(pl.exceptions.PolarsError):
        frame.select(pl.col("x") + 1)


def test_a_nested_column_that_polars_cannot_hold_is_refused_by_name() -> None:
    batch = pa.record_batch({"x": pa.array([[(1, 2, 3)]], pa.list_(pa.month_day_nano_interval()))})
    with pytest.raises(
        TableError, match="the column 'x' is list<item: month_day_nano_interval>, which contains a type"
    ):
        to_frame(batch)
