"""Feeds: what a source gives a job to read. `dpa.sources.memory`, `parquet` and `generated` have the first ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from dpa.sources.splits import Split

_SPLIT_ROWS = 65_536
"""Rows of a split, and of a batch of it, where a feed is read in this process."""


def never() -> bool:
    """No sample is enough before it is complete."""
    return False


@dataclass(frozen=True)
class Page:
    """What a poll of a feed gives.

    Attributes:
        splits: in the order of their rows.
        position: where the next poll goes on, picklable; None: nothing comes after these splits, the feed is closed.
    """

    splits: Sequence[Split]
    position: Any = None


class Feed(ABC):
    """An input that can be read: its columns, and its splits, page by page.

    A feed does not note how far it has been read. That is a position, from which every feed of the same input goes on,
    in another process too. So far a job polls all pages before it begins: a feed must be closed at some time. One
    without an end will be polled while the job runs, its position kept in checkpoints, and its watermark asked for.
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema | None:
        """The columns; None if they are not known, as for an empty list.

        Raises:
            TableError: the input cannot be read.
        """

    @abstractmethod
    def poll(self, split_rows: int, position: Any = None) -> Page:
        """The page that begins at a position, which an earlier page gave; None: the first one.

        The same position gives the same rows again. Nobody calls this of a feed that is closed.

        Args:
            split_rows: about how many rows a split should have.

        Raises:
            TableError: the input cannot be read.
        """

    def sample(self, max_rows: int, seed: int = 0, enough: Callable[[], bool] = never) -> pa.Table:
        """About `max_rows` rows drawn at random, in order; all if there are no more. Splits are read in random order
        until `enough` says so: what has been read by then, and one split at least, is the sample.

        Raises:
            TableError: the input cannot be read.
        """
        parts = [(split.rows, partial(table_of, [split])) for split in all_splits(self, _SPLIT_ROWS)]
        drawn = drawn_from(parts, max_rows, np.random.default_rng(seed), enough)
        return pa.concat_tables(drawn) if drawn else (self.schema or pa.schema([])).empty_table()


def all_splits(feed: Feed, split_rows: int) -> Iterator[Split]:
    """Poll a feed until it is closed."""
    page = feed.poll(split_rows)
    yield from page.splits
    while page.position is not None:
        page = feed.poll(split_rows, page.position)
        yield from page.splits


def table_of(splits: Sequence[Split], schema: pa.Schema | None = None) -> pa.Table:
    """The rows of splits in memory; `schema` is needed if there may be none."""
    return pa.Table.from_batches((batch for split in splits for batch in split.batches(_SPLIT_ROWS)), schema)


def drawn_from(
    parts: Sequence[tuple[int, Callable[[], pa.Table]]],
    max_rows: int,
    random: np.random.Generator,
    enough: Callable[[], bool] = never,
) -> list[pa.Table]:
    """Rows drawn at random from a table in parts, in order; all if there are no more than `max_rows`.

    Args:
        parts: the number of rows of each part, and what reads it. They are read in random order.
        enough: whether what has been read, some rows at least, suffices.
    """
    ends = np.cumsum([0, *(rows for rows, _ in parts)])
    drawn = np.sort(random.choice(ends[-1], min(max_rows, ends[-1]), replace=False, shuffle=False))
    found: dict[int, pa.Table] = {}
    for place in random.permutation(len(parts)).tolist():
        rows = drawn[(drawn >= ends[place]) & (drawn < ends[place + 1])] - ends[place]
        if len(rows):
            found[place] = parts[place][1]().take(pa.array(rows))
        if found and enough():
            break
    return [found[place] for place in sorted(found)]
