"""What can be told of the keys before a job runs: the most frequent ones, and how many records a sample's keys have.

Spark counts; which reducer a key would go to is for the caller to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dpa.tables._errors import explained, quoted, require_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SKETCHED = ("string", "tinyint", "smallint", "int", "bigint")
"""Types whose frequent values Spark finds with a sketch. `approx_top_k` refuses others or, in 4.3, finds nothing."""


@dataclass(frozen=True)
class TopKeys:
    """The most frequent keys and their records, most frequent first, and the number of all `rows`.

    `exact` says whether the counts are; if not, they come from a sketch that may miss or miscount rare keys.
    """

    keys: tuple[tuple[Any, int], ...]
    rows: int
    exact: bool


def key_counts(frame: DataFrame, key: str, limit: int) -> TopKeys:
    """The `limit` most frequent values of a column, null among them, in one pass over the rows.

    Raises:
        TableError: there is no such column, or its values cannot be grouped.
    """
    from pyspark.sql import functions as f

    require_columns(frame.columns, [key], "the input")
    with explained(f"counting the values of {key!r}"):
        keys = frame.select(f.col(quoted(key)).alias("key"))
        if dict(keys.dtypes)["key"] in _SKETCHED:
            row = keys.selectExpr(f"approx_top_k(key, {limit:d}) AS top", "count(*) AS rows").collect()[0]
            return TopKeys(tuple((item.item, item["count"]) for item in row.top), row.rows, exact=len(row.top) < limit)
        counts = keys.groupBy("key").count()
        top = counts.orderBy(f.desc("count"), "key").limit(limit).collect()
        return TopKeys(tuple((item.key, item["count"]) for item in top), keys.count(), exact=True)


def key_table(frame: DataFrame, key: str, most_rows: int = 1_000_000, seed: int = 0) -> pa.Table:
    """The distinct keys of a sample of about `most_rows` rows, in the columns `key` and `records` (int64).

    Raises:
        TableError: there is no such column, or its values cannot be grouped.
    """
    from pyspark.sql import functions as f

    require_columns(frame.columns, [key], "the input")
    with explained(f"counting the values of {key!r}"):
        _, drawn = _thinned(frame.select(f.col(quoted(key)).alias("key")), most_rows, seed)
        return drawn.groupBy("key").agg(f.count(f.lit(1)).alias("records")).toArrow()


def sample_rows(frame: DataFrame, most_rows: int, seed: int = 0) -> tuple[int, pa.Table]:
    """The number of rows, and about `most_rows` of them drawn at random.

    Raises:
        TableError: Spark cannot compute the rows.
    """
    with explained("drawing a sample of the input"):
        rows, drawn = _thinned(frame, most_rows, seed)
        return rows, drawn.toArrow()


def _thinned(frame: DataFrame, most_rows: int, seed: int) -> tuple[int, DataFrame]:
    rows = frame.count()
    return rows, frame if rows <= most_rows else frame.sample(False, most_rows / rows, seed)
