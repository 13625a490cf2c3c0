"""Random samples of a DataFrame, over all rows or within each value of a column. Computed by Spark, and not run here.

The same seed gives the same sample of the same files as long as Spark cuts them into the same partitions, which
depends on the number of its cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpa.errors import TableError
from dpa.sources.columns import require_columns
from dpa.spark._errors import as_table_error, quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_DRAW, _PART, _RANK = "_dpa_draw", "_dpa_part", "_dpa_rank"


@dataclass(frozen=True)
class RowSample:
    """Which share of the rows to keep (`fraction`, above 0 and at most 1), within each value of `by` if given."""

    fraction: float
    by: str | None = None
    seed: int = 0


def sampled(frame: DataFrame, sample: RowSample) -> DataFrame:
    """Keep each row with the probability `sample.fraction`.

    Without `by`, rows are drawn one by one (Bernoulli). With `by`, that would leave a value's share as uncertain as
    before, so rows are drawn in proportion: of the n rows that a value has in a partition of the input, fraction * n
    are kept, rounded up or down at random such that every row still has the same chance. Null is a value like any
    other. It costs a shuffle and a sort; a frequent value is ranked a partition at a time, never all in one task.

    Raises:
        TableError: there is no column `by`, it has no equality, or the fraction is out of range.
    """
    if not 0 < sample.fraction <= 1:
        raise TableError(f"sample: the fraction must be above 0 and at most 1, not {sample.fraction}")
    if sample.by is None:
        return frame.sample(withReplacement=False, fraction=sample.fraction, seed=sample.seed)
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    require_columns(frame.columns, [sample.by], "sample: the input")
    by = f.col(quoted(sample.by))
    with as_table_error(f"sample: by {sample.by!r}"):
        drawn = frame.withColumns({_DRAW: f.rand(sample.seed), _PART: f.spark_partition_id()})
        cell = Window.partitionBy(by, _PART).orderBy(_DRAW)
        # Rank i is kept where floor(i * fraction + offset) steps up; the offset, from 0 to 1, is the cell's own.
        offset = f.pmod(f.xxhash64(by, f.col(_PART), f.lit(sample.seed)), f.lit(1 << 20)) / f.lit(1 << 20)
        ranked = drawn.withColumn(_RANK, f.row_number().over(cell))
        steps = f.floor(f.col(_RANK) * sample.fraction + offset)
        before = f.floor((f.col(_RANK) - 1) * sample.fraction + offset)
        return ranked.where(steps > before).drop(_DRAW, _PART, _RANK)


def sample_rows(frame: DataFrame, max_rows: int, seed: int = 0) -> tuple[int, pa.Table]:
    """The number of rows, and about `max_rows` of them drawn at random.

    Raises:
        TableError: Spark cannot compute the rows.
    """
    with as_table_error("drawing a sample of the input"):
        rows = frame.count()
        return rows, (frame if rows <= max_rows else frame.sample(False, max_rows / rows, seed)).toArrow()
