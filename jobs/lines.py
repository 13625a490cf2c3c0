"""Lines of text, generated: the input of word count as the elastic allocator and N-Storm run it, for
`configs/generated_wordcount.yaml`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpa import Generator
from dpa.sources.distributions import names, zipf


class Lines(Generator):
    """Lines of one to `length` words out of `words`, which are Zipf-distributed; the column is `value`."""

    def __init__(self, words: int = 50_000, exponent: float = 1.1, length: int = 8) -> None:
        self.words = words
        self.exponent = exponent
        self.length = length

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        drawn = names(zipf(random, rows * self.length, self.words, self.exponent), self.words)
        kept = np.arange(self.length) < random.integers(1, self.length + 1, (rows, 1))
        ends = np.cumsum(np.append(0, kept.sum(axis=1)), dtype=np.int32)
        lines = pa.ListArray.from_arrays(ends, drawn.filter(kept.ravel()))
        return pa.record_batch({"value": pc.binary_join(lines, " ")})
