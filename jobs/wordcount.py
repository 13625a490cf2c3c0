"""Words of text: the mapper of `configs/wordcount.yaml`."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from dpa import batch_mapper

WORD = r"[A-Za-z_][A-Za-z_0-9]*"
"""What counts as a word; the reference in the job file says the same."""


@batch_mapper
def words(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The words of the column `value`, in lower case, as the column `word`."""
    found = pl.Series(batch.column("value")).str.extract_all(WORD).explode().drop_nulls().str.to_lowercase()
    return pa.record_batch({"word": found.to_arrow()})
