"""`agg` on real Ray actors: of files that are read by queries, and in windows; keys move, and some are split."""

from pathlib import Path

import polars as pl
import polars.testing
import pyarrow.parquet as pq
import pytest

from dpa import Flow, tumbling

pytestmark = pytest.mark.usefixtures("ray")

AMOUNT, USER = pl.col("amount"), pl.col("user")
AGGREGATES = {
    "n": pl.len(),
    "total": AMOUNT.sum(),
    "users": USER.n_unique(),
    "latest": AMOUNT.max_by("second"),
    "spread": AMOUNT.var(),
}


def test_aggregates_of_files_and_of_windows_are_those_of_polars(tmp_path: Path) -> None:
    numbers = pl.int_range(60_000, eager=True)
    rows = pl.DataFrame(
        {
            "page": ["hot" if number % 3 else f"page {number % 997}" for number in range(60_000)],
            "amount": numbers * 7919 % 1009,
            "user": numbers * 31 % 211,
            "second": numbers * 7 % 60_000,
            "at": pl.datetime_range(
                pl.datetime(2026, 1, 1), pl.datetime(2026, 1, 1, 0, 9, 59, 990_000), "10ms", eager=True
            ),
        }
    )
    pq.write_table(rows.to_arrow(), tmp_path / "visits.parquet", row_group_size=5_000)
    flow = Flow("visits")
    given = {"format": "parquet", "path": str(tmp_path / "visits.parquet")}
    visits = flow.read(given, name="visits", time="at")
    visits.key_by("page").agg(**AGGREGATES, name="sent")
    visits.key_by("page").agg(**AGGREGATES, name="folded", combiner=True)
    visits.window(tumbling("1m")).key_by("page").agg(**AGGREGATES, name="windows")
    result = flow.run()
    wanted = rows.group_by("page").agg(each.alias(name) for name, each in AGGREGATES.items())
    for name in ("sent", "folded"):
        same(pl.DataFrame(result.table(name)), wanted, ["page"])
    start = pl.col("at").dt.truncate("1m").alias("window_start")
    by_window = rows.group_by("page", start).agg(each.alias(name) for name, each in AGGREGATES.items())
    found = pl.DataFrame(result.table("windows")).drop("window_end")
    same(found.with_columns(pl.col("window_start").dt.replace_time_zone(None)), by_window, ["page", "window_start"])


def same(found: pl.DataFrame, wanted: pl.DataFrame, key: list[str]) -> None:
    ordered = found.sort(key).select(wanted.columns)
    pl.testing.assert_frame_equal(ordered, wanted.sort(key), check_dtypes=False, rel_tol=1e-9)
