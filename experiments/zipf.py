"""The input that the speed experiments share: Zipf-distributed keys in one Parquet file, and the expected results.

The file is made in row groups from the seed alone, so that memory stays small and two runs read the same bytes. Every
system's result is checked against what was counted meanwhile, in whatever order it gives its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dpa.job import Job

EXPONENT = 1.2
KEYS = 200_000
ROW_GROUP = 1_000_000

Integers = npt.NDArray[np.int64]


class Words:
    """Draws keys `w0`, `w1` ...: the one of rank i with a probability in proportion to (i + 1) ** -exponent."""

    def __init__(self, seed: int, keys: int = KEYS, exponent: float = EXPONENT) -> None:
        weights = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
        self._cumulative = np.cumsum(weights) / weights.sum()
        self._random = np.random.default_rng(seed)
        self.names = pa.array([f"w{rank}" for rank in range(keys)])

    def ranks(self, records: int) -> Integers:
        """The ranks of `records` keys, shape (records,)."""
        found = np.searchsorted(self._cumulative, self._random.random(records), side="right")
        return np.minimum(found, len(self.names) - 1)

    def values(self, records: int) -> Integers:
        """Values from 0 to 99, shape (records,)."""
        return self._random.integers(0, 100, records)


@dataclass(frozen=True, eq=False)
class ZipfTable:
    """A table of `word` and `value` on disk.

    Attributes:
        path: the Parquet file.
        counts: the number of records of each key, by rank.
        sums: the sum of the values of each key, by rank.
    """

    path: Path
    counts: Integers
    sums: Integers

    @property
    def records(self) -> int:
        """The number of rows."""
        return int(self.counts.sum())

    def job(self, mappers: int, reducers: int, **sections: Any) -> Job:
        """A job over this file, by word: it counts every record at a reducer, unless `sections` say otherwise."""
        parallelism = {"mappers": mappers, "reducers": reducers}
        given = {"key": "word", "value": [], "reducer": "count", "combiner": False, "parallelism": parallelism}
        return Job(input={"format": "parquet", "path": str(self.path)}, **{**given, **sections})

    def check(self, system: str, words: Any, numbers: Any, expected: Integers) -> None:
        """Check a result given as Arrow columns: one number for each word that occurs.

        Raises:
            AssertionError: the result is wrong.
        """
        ranks = pc.utf8_slice_codeunits(words, 1).cast(pa.int64()).to_numpy()
        found = np.zeros_like(expected)
        np.add.at(found, ranks, numbers.to_numpy())
        occurring = np.count_nonzero(self.counts)
        if len(ranks) != occurring or not np.array_equal(found, expected):
            wrong = np.count_nonzero(found != expected)
            raise AssertionError(
                f"{system}: {len(ranks)} keys instead of {occurring}, {wrong} of them with a wrong result"
            )


def pairs(record: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """A mapper of a record: its word with its value."""
    yield record["word"], record["value"]


@contextmanager
def zipf_table(
    records: int, seed: int, row_group: int = ROW_GROUP, keys: int = KEYS, exponent: float = EXPONENT
) -> Iterator[ZipfTable]:
    """A context with a temporary file of `records` records."""
    words = Words(seed, keys, exponent)
    counts, sums = (np.zeros(len(words.names), dtype=np.int64) for _ in range(2))
    schema = pa.schema({"word": pa.string(), "value": pa.int64()})
    with TemporaryDirectory(prefix="dpa-zipf-") as directory:
        path = Path(directory) / "zipf.parquet"
        with pq.ParquetWriter(path, schema) as writer:
            for start in range(0, records, row_group):
                rows = min(row_group, records - start)
                ranks, values = words.ranks(rows), words.values(rows)
                counts += np.bincount(ranks, minlength=len(counts))
                sums += np.bincount(ranks, values, len(sums)).astype(np.int64)
                columns = [words.names.take(pa.array(ranks)), pa.array(values)]
                writer.write_table(pa.table(columns, schema=schema), row_group_size=row_group)
        yield ZipfTable(path, counts, sums)
