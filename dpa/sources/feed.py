"""Feeds: what a source gives a job to read. `dpa.sources.memory`, `parquet` and `generated` have the first ones."""

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
"""Most splits that an open feed gives at once: they wait in the coordinator, and lie in checkpoints."""

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


@dataclass(frozen=True)
class Position:
    """Where the next poll of an open feed goes on.

    Attributes:
        value: what the last page gave, picklable; None before the first one.
    """

    value: Any = None


@dataclass(frozen=True, kw_only=True)
class Until:
    """When inputs that are open are closed: at the first of these that comes, or at Ctrl-C. What has come by then is
    still processed."""

    seconds: Annotated[Duration, Gt(0)] | None = None
    """Seconds of the stream, or a text as `500ms`, `2m` or `1h`; null: any."""
    records: Annotated[int, Ge(1)] | None = None
    """Rows read of all inputs together, at least; null: any number. The split in which the last one is is read to its
    end."""
    idle: Annotated[Duration, Gt(0)] | None = None
    """Seconds in which nothing has come while all that had come was read; null: the job waits however long it takes."""


class Feed(ABC):
    """An input that can be read: its columns, and its splits, page by page.

    A feed does not note how far it has been read. That is a position, from which every feed of the same input goes on,
    in another process too.

    Attributes:
        is_open: whether more may come while the job runs: then it is polled meanwhile, again and again, and its
            position is kept in checkpoints. All pages of a feed that is closed are polled before the job begins.
        poll_seconds: how long to wait before an open feed is polled again that has given nothing.
        patience: most seconds for which a running job waits for its place to answer; None: as the job says.
    """

    is_open = False
    poll_seconds = 0.05
    patience: float | None = None

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

        The same position gives the same rows again. Nobody calls this of a feed that is closed. An open feed gives a
        page without splits, with a position, where nothing has come yet; it answers within a second or so, with
        `PAGE_SPLITS` at most, and may give more behind a position once more has come.

        Args:
            split_rows: about how many rows a split should have.

        Raises:
            TableError: the input cannot be read.
        """

    def release(self, position: Any, unread: Sequence[Split]) -> None:
        """A checkpoint has been written from which a job goes on behind a position, once the splits `unread` are read:
        what was kept for anything else can go."""
        return

    def lag(self, position: Any) -> Mapping[str, int] | None:
        """By channel of its splits, how many rows have come that lie behind a position; None: it does not know."""
        return None

    def sample(self, max_rows: int, seed: int = 0, enough: Callable[[], bool] = never) -> pa.Table:
        """About `max_rows` rows drawn at random, in order; all if there are no more. Splits are read in random order
        until `enough` says so: what has been read by then, and one split at least, is the sample. Of a feed that is
        open, the first page is sampled.

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
    """Gives the splits of an open feed with their numbers."""

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
            table = parts[place][1]()
            found[place] = table.take(pa.array(rows[rows < table.num_rows]))  # some rows of a split may not be there
        if found and enough():
            break
    return [found[place] for place in sorted(found)]
