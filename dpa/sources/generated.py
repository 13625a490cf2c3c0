"""Generated inputs: every row is a pure function of a seed and its position, so any task can make any part of a table.

Nothing here reads a clock or sleeps by itself: a `ReadRate` is given both."""

from __future__ import annotations

import pickle
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from dpa.errors import TableError
from dpa.sources.feed import Feed, Page, never
from dpa.sources.splits import unpickled

BLOCK_ROWS = 4_096
"""Rows generated at a time, with their own random numbers. Another value would give other tables."""

_RELEASE_SECONDS = 0.02  # stream time of the rows that a paced split releases together
_SPLIT_SECONDS = 1.0  # stream time of a paced split: short, so that tasks run out of splits at about the same time


class Generator(ABC):
    """Makes the rows of an input. Must be picklable and small: it travels with every split."""

    @abstractmethod
    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        """Return the rows at positions `start` to `start + rows - 1`.

        Must depend on nothing but the arguments and the generator itself, and return the same column names and types
        for any part. Rows after the table's end may be asked for, and are dropped.

        Args:
            random: the only source of randomness, seeded for this part.
        """


@dataclass(frozen=True)
class ReadRate:
    """How fast a split is read. Record i is released i / `rate` seconds after the split was opened, by the thread that
    reads, so its work between two batches delays nothing.

    Attributes:
        rate: records a second of this split: the input's rate divided by the tasks that read it.
        clock: gives seconds, from any start.
        sleep: blocks for some seconds.
    """

    rate: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def rows_in(self, seconds: float) -> int:
        """Records released in that time, at least one."""
        return max(1, round(self.rate * seconds))

    def released(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield each batch when its last record is due."""
        opened, rows = self.clock(), 0
        for batch in batches:
            rows += batch.num_rows
            early = opened + rows / self.rate - self.clock()
            if early > 0:
                self.sleep(early)
            yield batch


@dataclass(frozen=True)
class GeneratedSplit:
    """A range of a generated table's rows. The `Generator` is pickled, so that only tasks that read import the user's
    module."""

    generator: bytes
    schema: pa.Schema
    seed: int
    start: int
    rows: int
    padding: int = 0
    pace: ReadRate | None = None

    def after(self, rows: int) -> GeneratedSplit:
        return replace(self, start=self.start + rows, rows=self.rows - rows)

    def joined(self, following: object) -> GeneratedSplit | None:
        if not isinstance(following, GeneratedSplit):
            return None
        is_next = following == replace(self, start=self.start + self.rows, rows=following.rows)
        return replace(self, rows=self.rows + following.rows) if is_next else None

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        if self.pace is None:
            yield from self._generated(batch_rows)
        else:
            due_together = self.pace.rows_in(_RELEASE_SECONDS)
            yield from self.pace.released(self._generated(min(batch_rows, due_together)))

    def _generated(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        generator = unpickled(self.generator, "the input's generator cannot be imported where it is read")
        block = lru_cache(maxsize=1)(lambda number: self._block(generator, number))
        end = self.start + self.rows
        for first in range(self.start, end, batch_rows):
            last = min(first + batch_rows, end)
            parts = [
                _part(block(number), first - number * BLOCK_ROWS, last - number * BLOCK_ROWS)
                for number in range(first // BLOCK_ROWS, -(-last // BLOCK_ROWS))
            ]
            yield from pa.Table.from_batches(parts).combine_chunks().to_batches()

    def _block(self, generator: Generator, number: int) -> pa.RecordBatch:
        made = padded(_generated_block(generator, self.seed, number), self.padding)
        if made.schema != self.schema:
            found = ", ".join(f"{field.name}: {field.type}" for field in made.schema)
            where = f"at row {number * BLOCK_ROWS} than at row 0"
            raise TableError(f"{_name(generator)}.batch returned columns of other names or types {where}: {found}")
        return made


@dataclass(frozen=True)
class GeneratedTable(Feed):
    """A table that a generator makes; nothing is held in memory.

    Attributes:
        seed: tables that differ only in rows or padding agree on the rows that they share.
        padding: bytes of zeros in each row's column `padding`; 0 for no such column.
        pace: how fast to read each split; None: as fast as possible, as samples always are.
    """

    generator: Generator
    rows: int
    seed: int = 0
    padding: int = 0
    pace: ReadRate | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns, found by generating the first rows. Raises TableError if the generator does not make them."""
        return padded(_generated_block(self.generator, self.seed, 0), self.padding).schema

    def poll(self, split_rows: int, position: Any = None) -> Page:
        return Page(self.splits(split_rows))

    def splits(self, split_rows: int) -> list[GeneratedSplit]:
        """Cut the table into splits of `split_rows` rows, or of about a second if that is fewer, in order. Raises
        TableError if the generator cannot be pickled."""
        return self.splits_from(0, self.rows, split_rows)

    def splits_from(self, first: int, last: int, split_rows: int) -> list[GeneratedSplit]:
        """Cut the rows from `first` to before `last`, as `splits` does."""
        try:
            packed = pickle.dumps(self.generator)
        except Exception as error:
            raise TableError(f"{_name(self.generator)} cannot be pickled: {error}") from None
        size = split_rows if self.pace is None else min(split_rows, self.pace.rows_in(_SPLIT_SECONDS))
        return [
            GeneratedSplit(packed, self.schema, self.seed, start, min(size, last - start), self.padding, self.pace)
            for start in range(first, last, size)
        ]

    def rows_now(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        for split in replace(self, pace=None).splits(BLOCK_ROWS):
            yield from split.batches(batch_rows)

    def known_rows(self) -> int:
        return self.rows

    def sample(self, max_rows: int, seed: int = 0, enough: Callable[[], bool] = never) -> pa.Table:
        blocks, wanted = -(-self.rows // BLOCK_ROWS), -(-max_rows // BLOCK_ROWS)
        splits = replace(self, pace=None).splits(BLOCK_ROWS)
        parts: dict[int, list[pa.RecordBatch]] = {}
        for number in np.random.default_rng(seed).permutation(blocks)[:wanted].tolist():
            parts[number] = list(splits[number].batches(BLOCK_ROWS))
            if enough():
                break
        return pa.Table.from_batches((batch for number in sorted(parts) for batch in parts[number]), self.schema)


class EndlessTable(Feed):
    """A generated table without end. At a rate, rows come in time, counted from the first poll.

    Args:
        table: its rows, continued; it has as many as a poll gives at most.
        rate: rows a second; None: all are there.
        clock: gives seconds, from any start.
    """

    is_open = True

    def __init__(self, table: GeneratedTable, rate: float | None = None, clock: Callable[[], float] = float) -> None:
        self.table = table
        self._rate = rate
        self._clock = clock
        self._began: float | None = None

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def poll(self, split_rows: int, position: Any = None) -> Page:
        first = position or 0
        last = first + self.table.rows
        if self._rate is not None:
            now = self._clock()
            if self._began is None:
                self._began = now - first / self._rate
            last = max(first, min(last, int((now - self._began) * self._rate)))
        return Page(self.table.splits_from(first, last, split_rows), last)

    def rows_now(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        return self.table.rows_now(batch_rows)

    def sample(self, max_rows: int, seed: int = 0, enough: Callable[[], bool] = never) -> pa.Table:
        return self.table.sample(max_rows, seed, enough)


def padded(batch: pa.RecordBatch, size: int) -> pa.RecordBatch:
    """The batch with a column `padding` of `size` zero bytes a row; unchanged if `size` is 0."""
    if not size:
        return batch
    zeros = pa.repeat(pa.scalar(bytes(size), pa.binary()), batch.num_rows)
    return pa.record_batch([*batch.columns, zeros], names=[*batch.schema.names, "padding"])


def _generated_block(generator: Generator, seed: int, number: int) -> pa.RecordBatch:
    start = number * BLOCK_ROWS
    try:
        made = generator.batch(start, BLOCK_ROWS, np.random.default_rng([seed % 2**64, number]))
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise TableError(f"{_name(generator)}.batch failed on {BLOCK_ROWS} rows from {start}: {what}") from error
    if not isinstance(made, pa.RecordBatch) or made.num_rows != BLOCK_ROWS:
        found = f"{made.num_rows} rows" if isinstance(made, pa.RecordBatch) else type(made).__name__
        raise TableError(f"{_name(generator)}.batch must return a RecordBatch of {BLOCK_ROWS} rows, not {found}")
    return made


def _part(block: pa.RecordBatch, first: int, last: int) -> pa.RecordBatch:
    """A block's rows from `first` to before `last`, which may lie outside of it."""
    first = max(first, 0)
    return block.slice(first, min(last, BLOCK_ROWS) - first)


def _name(generator: Generator) -> str:
    return f"{type(generator).__module__}.{type(generator).__qualname__}"
