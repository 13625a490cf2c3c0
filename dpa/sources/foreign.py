"""Feeds that other packages bring: their splits travel pickled, and their failures are said in the name of the feed."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from dpa.errors import DpaError, TableError
from dpa.sources.columns import first_difference, listed
from dpa.sources.feed import Feed, Page, never
from dpa.sources.splits import NumberedSplit, Split, channel_of, unpickled


@dataclass(frozen=True)
class ForeignSplit:
    """A split of a foreign feed, still pickled: only the tasks that read must be able to import its module.

    Attributes:
        pickled: the split.
        name: of the feed, for messages.
        rows: how many of its rows are read.
        schema: the columns that the feed declares; None if it declares none.
        skipped: how many come before those.
        channel: as `channel_of` the split.
    """

    pickled: bytes
    name: str
    rows: int
    schema: pa.Schema | None = None
    skipped: int = 0
    channel: str = ""

    def after(self, rows: int) -> ForeignSplit:
        return replace(self, rows=self.rows - rows, skipped=self.skipped + rows)

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        given = 0
        with naming(f"reading a split of {self.name}"):
            for batch in self.unpacked().batches(batch_rows):
                if not isinstance(batch, pa.RecordBatch):
                    raise TypeError(f"`batches` gives a {type(batch).__name__}, where a RecordBatch of pyarrow is due")
                require_declared(batch.schema, self.schema, f"a split of {self.name}")
                given += batch.num_rows
                yield batch
            if given != self.rows:
                raise ValueError(f"the split has {self.rows} rows by its `rows`, and {given} by its `batches`")

    def unpacked(self) -> Split:
        """What is left of the split itself.

        Raises:
            TableError: this process cannot import its module.
        """
        split: Split = unpickled(self.pickled, f"the splits of {self.name} cannot be imported where they are read")
        return split.after(self.skipped) if self.skipped else split


class ForeignFeed(Feed):
    """A feed of somebody else's class."""

    def __init__(self, feed: Feed, name: str) -> None:
        """`name` is what the job file calls it."""
        self._feed = feed
        self._name = name
        self.is_open, self.poll_seconds, self.patience = feed.is_open, feed.poll_seconds, feed.patience

    @cached_property
    def schema(self) -> pa.Schema | None:
        """The columns, as the feed says when it is first asked."""
        with naming(f"{self._name}.schema"):
            schema = self._feed.schema
            if schema is not None and not isinstance(schema, pa.Schema):
                raise TypeError(f"it is a {type(schema).__name__}, where a Schema of pyarrow, or None, is due")
            return schema

    def poll(self, split_rows: int, position: Any = None) -> Page:
        with naming(f"{self._name}.poll"):
            page = self._feed.poll(split_rows, position)
            if not isinstance(page, Page):
                raise TypeError(f"it gives a {type(page).__name__}, where a dpa.Page is due")
            return Page([self._packed(split) for split in page.splits], page.position)

    def release(self, position: Any, unread: Sequence[Split]) -> None:
        with naming(f"{self._name}.release"):
            inner = [split.split if isinstance(split, NumberedSplit) else split for split in unread]
            self._feed.release(position, [split.unpacked() for split in inner if isinstance(split, ForeignSplit)])

    def lag(self, position: Any) -> Mapping[str, int] | None:
        with naming(f"{self._name}.lag"):
            return self._feed.lag(position)

    def sample(self, max_rows: int, seed: int = 0, enough: Callable[[], bool] = never) -> pa.Table:
        with naming(f"{self._name}.sample"):
            drawn = self._feed.sample(max_rows, seed, enough)
            if not isinstance(drawn, pa.Table):
                raise TypeError(f"it gives a {type(drawn).__name__}, where a Table of pyarrow is due")
            require_declared(drawn.schema, self.schema, f"the sample of {self._name}")
            return drawn

    def _packed(self, split: Split) -> ForeignSplit:
        if not isinstance(split, Split):
            raise TableError(f"{type(split).__name__} is no split: it lacks `rows`, `after` or `batches`")
        return ForeignSplit(pickle.dumps(split), self._name, split.rows, self.schema, channel=channel_of(split))


def require_declared(given: pa.Schema, declared: pa.Schema | None, giver: str) -> None:
    """Check that rows have the columns that their feed declares, in that order.

    Raises:
        TableError: names the first column that differs, and both types.
    """
    if declared is None or given == declared:
        return
    difference = first_difference(declared, given)
    if difference is not None:
        name, wanted, found = difference
        has = f"no column {name!r}" if found == "missing" else f"the column {name!r} as {found}"
        declares = "does not declare it" if wanted == "missing" else f"declares it as {wanted}"
        raise TableError(f"{giver} has {has}, and the feed's `schema` {declares}")
    if given.names != declared.names:
        raise TableError(f"{giver} has the columns {listed(given.names)}, and `schema` orders {listed(declared.names)}")


@contextmanager
def naming(what: str) -> Iterator[None]:
    """A block of foreign code.

    Raises:
        TableError: it failed; `what` begins the message.
    """
    try:
        yield
    except TableError:
        raise
    except Exception as error:
        if isinstance(error, DpaError):
            raise TableError(f"{what}: {error}") from error
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename}:{last.lineno}"
        raise TableError(f"{what}: {type(error).__name__}: {error} ({where})") from error
