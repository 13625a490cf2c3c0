"""Verbs on columns as one query over a batch, and every Arrow type to polars and back."""

import pickle

import polars as pl
import polars.selectors as cs
import pyarrow as pa
import pytest
from arrow_columns import COLUMNS, DAY, of
from random_columns import TRUNCATES

from dpa._util.inference import known
from dpa.columns.arrow import to_batch, to_frame
from dpa.columns.query import Query, Sql, Verb
from dpa.errors import TableError

ROWS = pa.record_batch(
    {
        "n": pa.array([1, 2, None], pa.int8()),
        "day": pa.array([DAY] * 3, pa.date64()),
        "kind": pa.array(["a", "b", "a"], pa.dictionary(pa.int8(), pa.string())),
        "tags": pa.array([["x", "y"], [], None]),
        "place": [{"lat": 1.0, "lon": 2.0}, {"lat": 3.0, "lon": 4.0}, None],
    }
)


def query(*verbs: Verb) -> Query:
    return Query(verbs)


@pytest.mark.parametrize(
    ("verb", "columns"),
    [
        (Verb("filter", (pl.col("n") > 1,)), ["n", "day", "kind", "tags", "place"]),
        (Verb("with_columns", (pl.col("n").alias("m"),)), ["n", "day", "kind", "tags", "place", "m"]),
        (Verb("select", (pl.col("n"), pl.col("day").alias("on"))), ["n", "on"]),
        (Verb("drop", columns=("tags", "place")), ["n", "day", "kind"]),
        (Verb("rename", columns=("n", "day"), new=("day", "n")), ["day", "n", "kind", "tags", "place"]),
        (Verb("explode", columns=("tags",)), ["n", "day", "kind", "tags", "place"]),
        (Verb("unnest", columns=("place",)), ["n", "day", "kind", "tags", "lat", "lon"]),
    ],
    ids=lambda each: each.word if isinstance(each, Verb) else "",
)
def test_a_verb_does_what_polars_does_and_gives_the_same_types_for_no_rows(verb: Verb, columns: list[str]) -> None:
    made = query(verb)(ROWS)
    wanted = verb.lazy(to_frame(ROWS).lazy()).collect()
    assert made.schema.names == wanted.columns == columns
    assert to_frame(made).equals(wanted)
    assert query(verb)(ROWS[:0]).schema == made.schema


def test_columns_that_stay_as_they_were_keep_their_types() -> None:
    renamed = Verb("rename", columns=("day",), new=("date",))
    selected = Verb("select", (cs.by_name("date", "kind"), pl.col("n").alias("m"), (pl.col("n") + 1).alias("n")))
    made = query(renamed, selected)(ROWS)
    assert made.schema.types == [pa.date64(), ROWS.schema.field("kind").type, pa.int8(), pa.int8()]
    made = query(Verb("with_columns", (pl.col("day").dt.offset_by("1us"), pl.col("kind").cast(pl.String))))(ROWS)
    assert made.schema.types[1:3] == [pa.timestamp("ms"), pa.string()], "of polars, where it is computed anew"


@pytest.mark.skipif(not TRUNCATES, reason="polars has no `date_trunc`")
def test_sql_that_needs_types_is_translated_where_they_are_known() -> None:
    month = Sql("date_trunc('month', day)", "month")
    made = query(Verb("with_columns", (month, pl.lit(1).alias("one"))))(ROWS)
    assert made.schema.names == [*ROWS.schema.names, "month", "one"]
    assert query(Verb("filter", (Sql("date_trunc('year', day) = day"),)))(ROWS).num_rows == 3
    assert query(Verb("select", (month,)))(ROWS).schema.names == ["month"]


def test_several_verbs_are_one_query() -> None:
    first = query(Verb("with_columns", (pl.col("n").alias("m"),)))
    both = first.then(query(Verb("filter", (pl.col("m") > 1,))))
    assert both(ROWS).to_pylist() == [{**ROWS.to_pylist()[1], "m": 2}]
    assert "FILTER" in both.lazy(pl.LazyFrame({"n": [1]})).explain()


@pytest.mark.filterwarnings("ignore::polars.exceptions.PolarsInefficientMapWarning")
def test_a_query_can_be_pickled() -> None:
    plus = 2
    computed = pl.col("n").map_elements(lambda n: n + plus, return_dtype=pl.Int64)
    made = pickle.loads(pickle.dumps(query(Verb("select", (computed,)))))
    assert made(ROWS).to_pylist() == [{"n": 3}, {"n": 4}, {"n": None}]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_a_column_comes_back_as_it_was_also_through_a_query_that_leaves_out_rows(column: pa.Array) -> None:
    for rows in (column, column[1:], column[:2], column[:0]):
        batch = known(pa.record_batch({"x": rows, "row": pa.array(range(len(rows)))}))
        found = to_batch(to_frame(batch), batch.schema)
        assert found.schema.equals(batch.schema, check_metadata=True)
        assert found.to_pylist() == batch.to_pylist()
        found = to_batch(to_frame(batch).lazy().filter(pl.col("row") > 0).collect(), batch.schema)
        assert found.schema == batch.schema
        assert found.column("x").to_pylist() == batch.column("x")[1:].to_pylist()


def test_bytes_that_stand_for_another_type_are_one_frame_and_no_expression_works_on_them() -> None:
    table = pa.concat_tables([pa.table({"x": of((1, 2, 3), pa.month_day_nano_interval())[0]}) for _ in range(2)])
    assert to_batch(to_frame(table), table.schema).equals(table.combine_chunks().to_batches()[0])
    frame = to_frame(pa.record_batch({"x": of((1, 2, 3), pa.month_day_nano_interval())[0]}))
    assert frame.select(pl.col("x").is_null()).to_series().to_list() == [False, True, False]
    with pytest.raises(pl.exceptions.PolarsError):
        frame.select(pl.col("x") + 1)


def test_a_column_of_another_type_gets_the_plain_one_of_polars_and_one_that_it_cannot_hold_is_refused() -> None:
    batch = pa.record_batch({"x": pa.array([DAY], pa.date64()), "y": pa.array(["a"], pa.large_string())})
    frame = to_frame(batch).with_columns(x=pl.lit("text"), new=pl.concat_list("y"), kind=pl.lit("a", pl.Categorical))
    assert to_batch(frame, batch.schema).schema == pa.schema(
        {"x": pa.string(), "y": pa.large_string(), "new": pa.list_(pa.string()), "kind": pa.string()}
    )
    batch = pa.record_batch({"x": pa.array([[(1, 2, 3)]], pa.list_(pa.month_day_nano_interval()))})
    with pytest.raises(
        TableError, match="the column 'x' is list<item: month_day_nano_interval>, which contains a type"
    ):
        to_frame(batch)
