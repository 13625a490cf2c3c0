"""Feeds: what a source gives a job to read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from annotated_types import Ge, Gt

from dpa._util.durations import Duration
from dpa.sources.splits import NumberedSplit, Split

PAGE_SPLITS = 32
"""Most splits in a page of an open feed: they wait in the coordinator, and are part of checkpoints."""

_SPLIT_ROWS = 65_536  # rows of a split, and of a batch, where this process reads a feed


def never() -> bool:
    """No sample is enough before it is complete."""
    return False


@dataclass(frozen=True)
class Page:
    """The answer to a poll.

    Attributes:
        splits: in the order of their rows.
        position: where the next poll continues, picklable; None: the feed is closed, and these are its last splits.
    """

    splits: Sequence[Split]
    position: Any = None


@dataclass(frozen=True)
class Position:
    """Where the next poll of an open feed continues: what the last page gave, picklable; None before the first."""

    value: Any = None


@dataclass(frozen=True, kw_only=True)
class Until:
    """When inputs that are open are closed: at the first of these that comes, or at Ctrl-C. What has come by then is
    still processed."""

    seconds: Annotated[Duration, Gt(0)] | None = None
    """Close after this much time of the stream, in seconds; null: no limit."""
    records: Annotated[int, Ge(1)] | None = None
    """Close once at least this many rows have been read from all inputs together; what tasks have been given by then is
    still read. Null: no limit."""
    idle: Annotated[Duration, Gt(0)] | None = None
    """Close once everything is read and nothing has come for this many seconds; null: never."""


class Feed(ABC):
    """An input that can be read: its columns, and its splits, page by page.

    A feed does not note how far it has been read. That is a position, from which any feed of the same input continues,
    in another process too.

    Attributes:
        is_open: whether rows may come while the job runs. An open feed is polled again and again, and checkpoints hold
            its position. All pages of a closed feed are polled before the job begins.
        poll_seconds: how long to wait after an open feed has given nothing.
        patience: how many seconds a running job waits if the input does not answer; None: as the job says.
    """

    is_open = False
    poll_seconds = 0.05
    patience: float | None = None

    @property
    @abstractmethod
    def schema(self) -> pa.Schema | None:
        """The columns; None if unknown, as for an empty list. Raises TableError if the input cannot be read."""

    @abstractmethod
    def poll(self, split_rows: int, position: Any = None) -> Page:
        """The page at a position, which an earlier page gave; None: the first one.

        The same position gives the same rows again, and perhaps newer ones. There is no poll after a page without a
        position. An open feed gives a page without splits, with a position, if nothing has come. It answers within a
        second or so, with `PAGE_SPLITS` at most.

        Args:
            split_rows: about how many rows a split should have.

        Raises:
            TableError: the input cannot be read.
        """

    def release(self, position: Any, unread: Sequence[Split]) -> None:
        """Forget what lies before a position, except for the splits `unread`: a checkpoint has been written from which
        the job would continue so."""
        return

    def lag(self, position: Any) -> Mapping[str, int] | None:
        """How many rows have come after a position, by channel of the splits, about; None: unknown. Asked every few
        seconds while the job runs, perhaps while another thread polls."""
        return None

    def rows_now(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows in order, from the first, at most `batch_rows` at a time, as fast as they can be read; of an open
        feed, those that are there now. Nothing is read before it is asked for.

        Raises:
            TableError: the input cannot be read.
        """
        for split in all_splits(self, _SPLIT_ROWS):
            yield from split.batches(batch_rows)

    def known_rows(self) -> int | None:
        """How many rows there are; None if they must be read to be counted."""
        return None

    def sample(self, max_rows: int, seed: int = 0, enough: Callable[[], bool] = never) -> pa.Table:
        """About `max_rows` rows drawn at random, in order; all if there are no more. Of an open feed, the first page is
        sampled.

        Args:
            enough: says whether the splits read so far suffice. They are read in random order, one at least.

        Raises:
            TableError: the input cannot be read.
        """
        splits = self.poll(_SPLIT_ROWS).splits if self.is_open else all_splits(self, _SPLIT_ROWS)
        parts = [(split.rows, partial(table_of, [split])) for split in splits]
        drawn = drawn_from(parts, max_rows, np.random.default_rng(seed), enough)
        return pa.concat_tables(drawn) if drawn else (self.schema or pa.schema([])).empty_table()


def all_splits(feed: Feed, split_rows: int) -> Iterator[Split]:
    """Poll a feed until it is closed; an open one also until nothing more has come."""
    page = feed.poll(split_rows)
    yield from page.splits
    while page.position is not None and (page.splits or not feed.is_open):
        page = feed.poll(split_rows, page.position)
        yield from page.splits


class NumberedFeed(Feed):
    """Numbers the splits of an open feed."""

    is_open = True

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self.poll_seconds, self.patience = feed.poll_seconds, feed.patience

    @property
    def schema(self) -> pa.Schema | None:
        return self._feed.schema

    def poll(self, split_rows: int, position: Any = None) -> Page:
        inner, number = position or (None, 0)
        page = self._feed.poll(split_rows, inner)
        splits = [NumberedSplit(split, number + place) for place, split in enumerate(page.splits)]
        return Page(splits, None if page.position is None else (page.position, number + len(splits)))

    def release(self, position: Any, unread: Sequence[Split]) -> None:
        self._feed.release(None if position is None else position[0], unread)

    def lag(self, position: Any) -> Mapping[str, int] | None:
        return self._feed.lag(None if position is None else position[0])


def table_of(splits: Sequence[Split], schema: pa.Schema | None = None) -> pa.Table:
    """The rows of splits; `schema` is needed if there may be none."""
    return pa.Table.from_batches((batch for split in splits for batch in split.batches(_SPLIT_ROWS)), schema)


def drawn_from(
    parts: Sequence[tuple[int, Callable[[], pa.Table]]],
    max_rows: int,
    random: np.random.Generator,
    enough: Callable[[], bool] = never,
) -> list[pa.Table]:
    """Draw rows at random from a table in parts; returns them in order, or all if there are no more than `max_rows`.

    Args:
        parts: each part's number of rows, and a function that reads it. They are read in random order.
        enough: says whether the rows read so far, one at least, suffice.
    """
    ends = np.cumsum([0, *(rows for rows, _ in parts)])
    drawn = np.sort(random.choice(ends[-1], min(max_rows, ends[-1]), replace=False, shuffle=False))
    found: dict[int, pa.Table] = {}
    for place in random.permutation(len(parts)).tolist():
        rows = drawn[(drawn >= ends[place]) & (drawn < ends[place + 1])] - ends[place]
        if len(rows):
            table = parts[place][1]()
            found[place] = table.take(pa.array(rows[rows < table.num_rows]))  # some rows of a split may not be there
        if found and enough():
            break
    return [found[place] for place in sorted(found)]
