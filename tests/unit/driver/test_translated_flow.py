import math

import pyarrow as pa
import pytest

from dpa import Flow, Job, session
from dpa.errors import ConfigError, TableError

SALES = pa.table({"country": ["DE", "FR", "DE"], "cents": [5, 7, 1], "weight": [0.5, 1.5, 2.5], "at": [0, 1, 2]})


def test_the_plan_shows_the_query_of_a_flow() -> None:
    flow = Flow()
    sums = flow.read(SALES).key_by("country").reduce({"use": "sum", "args": {"column": "cents"}}, name="sums")
    sums.top_k(2, by="cents", name="best").reference("auto")
    ranked = "row_number() OVER (ORDER BY `cents` DESC, `country` NULLS LAST)"
    assert flow.forecast().config["stages"]["best"]["reference"]["sql"] == (
        "WITH `sums` AS (\n"
        "  SELECT `country`, sum(`cents`) AS `cents` FROM `read` GROUP BY `country`\n"
        "), `best` AS (\n"
        f"  SELECT * FROM (SELECT `country`, `cents`, CAST({ranked} AS BIGINT) AS `rank` "
        "FROM `sums` WHERE `cents` IS NOT NULL) WHERE `rank` <= 2\n"
        ")\nSELECT * FROM `best`"
    )
    job = Job(input=SALES, key="country", reducer={"use": "mean", "args": {"column": "weight"}}, reference="auto")
    assert "avg(`weight`) AS `weight` FROM `mapper` GROUP BY `country`" in job.forecast().config["reference"]["sql"]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda rows: rows.map(lambda row: row, name="some"), "calls .*<lambda>"),
        (lambda rows: rows.key_by(lambda row: 1).reduce("count", name="some"), "calls .*<lambda>"),
        (lambda rows: rows.key_by("country").reduce(max, name="some"), "folds by builtins.max"),
        (lambda rows: rows.key_by("country").reduce("distinct", name="some"), "dpa.aggregates.Distinct"),
        (lambda rows: rows.window(session("1m"), name="some"), "makes sessions"),
    ],
)
def test_a_step_without_a_counterpart_is_named(make, why) -> None:
    flow = Flow()
    rows = make(flow.read(SALES, time={"column": "at", "unit": "s"}))
    if "sessions" in why:
        rows.key_by("country").reduce("count", name="all").reference("auto")
    else:
        rows.reference("auto")
    with pytest.raises(ConfigError, match=rf"stages\.(some|all)\.reference: the step 'some': {why}"):
        flow.forecast()


def test_expressions_without_a_counterpart_are_named() -> None:
    import polars as pl

    from dpa.spark.expressions import translation

    made = translation(pl.Schema({"a": pl.Int64, "s": pl.String, "d": pl.Decimal(38, 10)}))
    for expression, what in (
        (pl.col("a").hash(), r"`col\(\"a\"\).hash\(\)` has no counterpart in Spark"),
        (pl.col("s").str.contains(r"\pL"), "is a regular expression that Java may read differently"),
        (pl.col("d") * pl.col("d"), "may have more digits than Spark's decimals keep"),
        (pl.col("a").eq(math.nan), "has a constant that is infinite or no number"),
        (pl.col("a").cast(pl.Float64).cast(pl.String), "from Float64 to String"),
        (pl.lit("2020").str.to_date("%b"), "has `%b`"),
    ):
        with pytest.raises(TableError, match=what):
            made.columns([expression])
