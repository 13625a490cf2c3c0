"""The DPA paper's opening example, words by first letter, with a reducer that costs more than the mapper.

The reducer keeps the distinct anagram classes of each letter: sorting a word's letters in Python takes longer than
cutting it out of a line, so the reducer of the most common letters falls behind.
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from dpa import Reducer, batch_mapper
from jobs.wordcount import WORD


@batch_mapper
def letters(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Each word of the column `value` under its first letter."""
    found = pl.Series("word", batch.column("value")).str.extract_all(WORD).explode().drop_nulls().str.to_lowercase()
    return pa.record_batch({"letter": found.str.slice(0, 1).to_arrow(), "word": found.to_arrow()})


class AnagramClasses(Reducer[set[str], str]):
    """The number of distinct words of each key, words with the same letters counting as one."""

    def zero(self) -> set[str]:
        return set()

    def reduce(self, state: set[str], value: str) -> set[str]:
        state.add("".join(sorted(value)))
        return state

    def merge(self, left: set[str], right: set[str]) -> set[str]:
        return left | right

    def finish(self, state: set[str]) -> dict[str, int]:
        return {"classes": len(state)}
