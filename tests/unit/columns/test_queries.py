"""Verbs on columns as one query over a batch."""

import datetime as dt
import pickle

import polars as pl
import polars.selectors as cs
import pyarrow as pa
import pytest
from random_columns import TRUNCATES

from dpa.columns.arrow import to_frame
from dpa.columns.query import Query, Sql, Verb

DAY = dt.date(2020, 1, 1)
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
def test_a_verb_does_what_polars_does(verb: Verb, columns: list[str]) -> None:
    made = query(verb)(ROWS)
    wanted = verb.lazy(to_frame(ROWS).lazy()).collect()
    assert made.schema.names == wanted.columns == columns
    assert to_frame(made).equals(wanted)


def test_columns_that_stay_as_they_were_keep_their_types() -> None:
    renamed = Verb("rename", columns=("day",), new=("date",))
    selected = Verb("select", (cs.by_name("date", "kind"), pl.col("n").alias("m"), (pl.col("n") + 1).alias("n")))
    made = query(renamed, selected)(ROWS)
    assert made.schema.types == [pa.date64(), ROWS.schema.field("kind").type, pa.int8(), pa.int8()]


def test_a_column_that_is_computed_anew_has_the_type_that_polars_gives() -> None:
    made = query(Verb("with_columns", (pl.col("day").dt.offset_by("1us"), pl.col("kind").cast(pl.String))))(ROWS)
    assert made.schema.types[1:3] == [pa.timestamp("ms"), pa.string()]


def test_a_query_gives_the_same_types_for_no_rows() -> None:
    for verb in (Verb("explode", columns=("tags",)), Verb("unnest", columns=("place",))):
        assert query(verb)(ROWS[:0]).schema == query(verb)(ROWS).schema


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
