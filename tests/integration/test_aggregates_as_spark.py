"""The ready-made reducers beside the real Spark: types and values of decimals, and what is not a number."""

import math
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import ArithmeticException

from dpa.aggregates import Distinct, Max, Mean, Min, Sum, TopK
from dpa.errors import ExecutorError
from dpa.executors import AnyReducer
from dpa.testing import run_local

NAN, INF = math.nan, math.inf
DECIMALS = [(5, 2), (10, 2), (18, 0), (28, 10), (30, 10), (34, 30), (38, 0), (38, 2), (38, 18), (38, 34), (38, 38)]


def decimals(digits: int, scale: int) -> pa.Table:
    """Keys with long, short, negative and null decimals: a and b have 7 and 6, c has only nulls, and the mean of the 11
    of d is 0.4545... of the last digit, which is nothing if it is rounded once."""
    long = 10 ** min(digits, 33) // 7
    numbers = [long, -1, None, long // 9, 2, -long // 3, 0, 5, long // 11, None, 1, 1, -3, 1, 4]
    values = [None if number is None else Decimal(number).scaleb(-scale, Context(prec=40)) for number in numbers]
    keys = ["a", "b"] * 7 + ["a"]
    kind = pa.decimal128(digits, scale)
    ones = [Decimal(int(number < 5)).scaleb(-scale) for number in range(11)]
    return pa.table({"key": [*keys, "c", *"d" * 11], "value": pa.array([*values, None, *ones], kind)})


def floats(kind: pa.DataType) -> pa.Table:
    values = {"some": [1.0, NAN, INF, None, NAN, -1.0], "all": [NAN, None, NAN], "none": [0.5, -2.0], "nulls": [None]}
    pairs = [(key, value) for key, of_key in values.items() for value in of_key]
    return pa.table({"key": [key for key, _ in pairs], "value": pa.array([value for _, value in pairs], kind)})


DECIMAL_COLUMNS = {"sum": Sum(), "mean": Mean(), "min": Min(), "max": Max(), "distinct": Distinct()}
FLOAT_COLUMNS = {**DECIMAL_COLUMNS, "top": TopK(3)}
SQL = {
    "sum": "sum(value)",
    "mean": "avg(value)",
    "min": "min(value)",
    "max": "max(value)",
    "distinct": "count(DISTINCT value)",
    "top": "slice(sort_array(collect_list(double(value)), false), 1, 3)",
}


def ours(table: pa.Table, columns: dict[str, AnyReducer]) -> pa.Table:
    """A column of each reducer, in an order of keys that is always the same."""
    found = {name: run_local(None, reducer, table, batch_records=2) for name, reducer in columns.items()}
    keys = next(iter(found.values()))["key"]
    return pa.table({"key": keys, **{name: result.column(1) for name, result in found.items()}})


def sparks(spark: Any, table: pa.Table, columns: dict[str, AnyReducer]) -> pa.Table:
    asked = [f"{SQL[name]} AS {name}" for name in columns]
    spark.createDataFrame(table).createOrReplaceTempView("given")
    try:
        return spark.sql(f"SELECT key, {', '.join(asked)} FROM given GROUP BY key ORDER BY key").toArrow()
    finally:
        spark.catalog.dropTempView("given")  # other tests use the same session


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        *((decimals(*kind), DECIMAL_COLUMNS) for kind in DECIMALS),
        *((floats(kind), FLOAT_COLUMNS) for kind in (pa.float64(), pa.float32())),
    ],
    ids=[*(f"decimal({digits}, {scale})" for digits, scale in DECIMALS), "double", "float"],
)
def test_ready_made_reducers_give_the_values_and_types_that_spark_gives(
    spark: Any, table: pa.Table, columns: dict[str, AnyReducer]
) -> None:
    found, expected = ours(table, columns), sparks(spark, table, columns)
    assert repr(found.to_pylist()) == repr(expected.to_pylist())  # as text, since NaN is not equal to itself
    for name in columns.keys() - {"top"}:
        assert found.schema.field(name).type == expected.schema.field(name).type, name


def test_what_does_not_fit_in_sparks_decimal_is_an_error_here_too(spark: Any) -> None:
    table = pa.table({"key": ["a", "a"], "value": pa.array([Decimal("9" * 38)] * 2)})
    for column, where in (("sum", r"38, 0"), ("mean", r"38, 4")):
        with pytest.raises(ArithmeticException):
            sparks(spark, table, {column: DECIMAL_COLUMNS[column]})
        with pytest.raises(ExecutorError, match=rf"does not fit in decimal128\({where}\)"):
            ours(table, {column: DECIMAL_COLUMNS[column]})
