"""Aggregates of `agg`, as SQL, have the same values in a real Spark."""

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from dpa.columns.aggregation import Aggregation
from dpa.errors import TableError
from dpa.executors import Groups
from dpa.spark import compute
from dpa.spark.aggregates import aggregates
from dpa.spark.comparison import compare

NAN, INF = float("nan"), float("inf")

ROWS = pl.DataFrame(
    {
        "id": [0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 4],
        "a": [1, 2, 2, None, -7, 0, 5, None, None, 9, 2**62],
        "i": [1, 100, 100, 27, None, -1, 0, 5, 5, 1, 1],
        "x": [1.5, -0.0, NAN, 0.0, None, 1e300, INF, None, None, 0.1, -2.5],
        "d": [None, *(f"{each}.05" for each in range(10))],
        "p": [True, None, False, True, False, False, None, None, None, True, False],
        "s": ["b", "a", None, "a", "", "ü", "z", None, None, "q", "q"],
        "t": [3, 1, 3, None, 2, 2, None, None, 1, 1, None],
    },
    schema_overrides={"i": pl.Int8},
).with_columns(pl.col("d").cast(pl.Decimal(10, 2)))

a, i, x, d, p, s, t = map(pl.col, ROWS.columns[1:])

ALIKE = {
    "len": pl.len(),
    "count": a.count(),
    "nulls": a.null_count(),
    "sum": a.sum(),
    "sum of short integers": i.sum(),
    "sum of floats": x.sum(),
    "sum of decimals": d.sum(),
    "sum of booleans": p.sum(),
    "mean": a.mean(),
    "mean of floats": x.mean(),
    "mean of decimals": d.mean(),
    "least": x.min(),
    "greatest": x.max(),
    "least text": s.min(),
    "greatest decimal": d.max(),
    "variance": i.var(),
    "deviation": i.std(),
    "of the population": i.std(ddof=0),
    "different": x.n_unique(),
    "different texts": s.n_unique(),
    "different without null": s.drop_nulls().n_unique(),
    "listed": s.implode(),
    "listed floats": x.implode(),
    "any": p.any(),
    "all": p.all(),
    "any with nulls": p.any(ignore_nulls=False),
    "all with nulls": p.all(ignore_nulls=False),
    "last": s.sort_by("t").last(),
    "first": s.sort_by("t").first(),
    "first of falling": a.sort_by("t", descending=True).first(),
    "last of falling": a.sort_by("t", descending=True).last(),
    "nulls last": a.sort_by("t", nulls_last=True).last(),
    "falling, nulls last": s.sort_by("t", descending=True, nulls_last=True).first(),
    "by two": a.sort_by("t", "s").last(),
    "value of the greatest": s.max_by("t"),
    "value of the least": a.min_by("x"),
    "greatest two": a.top_k(2),
    "least two": x.bottom_k(2),
    "of some rows": a.filter(x > 0).sum(),
    "number of some rows": a.filter(p).count(),
    "of a derived column": (a.cast(pl.Float64) / 2 + i).sum(),
    "around": (a.sum() - a.min()) / pl.len(),
    "around, in SQL": pl.sql_expr("sum(t * 2) / count(*)"),
    "sql sum": pl.sql_expr("sum(a)"),
    "sql count": pl.sql_expr("count(distinct s)"),
    "sql mean": pl.sql_expr("round(avg(i), 1)"),
    "sql condition": pl.sql_expr("sum(a) filter (where i > 1)"),
}


def of_polars(expression: pl.Expr) -> pa.Table:
    """The result for each `id`, of states of two halves that are merged."""
    made = Aggregation({"v": expression})
    halves = [ROWS[::2], ROWS[1::2]]
    states = []
    for half in halves:
        keys, ids = np.unique(half["id"].to_numpy(), return_inverse=True)
        [values] = half.to_arrow(compat_level=pl.CompatLevel.oldest()).combine_chunks().to_batches()
        groups = Groups(pa.array(keys), ids.astype(np.int32), values)
        states.append((keys, made.reduce(groups)))
    keys, ids = np.unique(np.concatenate([keys for keys, _ in states]), return_inverse=True)
    [both] = pa.Table.from_batches([state for _, state in states]).combine_chunks().to_batches()
    merged = made.merge(Groups(pa.array(keys), ids.astype(np.int32), both))
    found = made.finish(merged)
    return pa.table({"id": pa.array(keys), "v": found.column("v")})


def differences(spark, expressions: dict[str, pl.Expr]) -> dict[str, str]:
    """How Spark's results differ from dpa's, by name. One query computes all; where it fails, each has its own."""
    schema = pl.Schema({name: kind for name, kind in ROWS.schema.items() if name != "id"})
    found = aggregates(expressions, schema)
    view = {"input": ROWS.to_arrow(compat_level=pl.CompatLevel.oldest())}
    listed = ", ".join(f"{text} AS `{name}`" for name, text in found.columns.items())
    try:
        other = compute(spark, view, f"SELECT id, {listed} FROM input GROUP BY id")
    except TableError as error:
        if len(expressions) == 1:
            return dict.fromkeys(expressions, f"{listed}: {error}")
        return {name: why for each in expressions.items() for name, why in differences(spark, dict([each])).items()}
    compared = {}
    for name, expression in expressions.items():
        of_spark = other.select(["id", name]).rename_columns(["id", "v"])
        compared[name] = compare(of_polars(expression), of_spark, "id", found.tolerances.get(name, 1e-12))
    return {name: f"{found.columns[name]}: {each.differences}" for name, each in compared.items() if not each.matches}


def test_aggregates_have_in_spark_the_values_that_they_have_in_dpa(spark) -> None:
    found = differences(spark, ALIKE)
    assert not found, "\n".join(f"{name}: {why}" for name, why in found.items())


def test_estimated_numbers_are_near(spark) -> None:
    pytest.importorskip("datasketches")
    assert not differences(spark, {"near": s.approx_n_unique()})


def test_quantiles_are_refused_as_sketches_estimate_them() -> None:
    with pytest.raises(TableError, match="quantile"):
        aggregates({"v": a.quantile(0.5)}, ROWS.schema)
