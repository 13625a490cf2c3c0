"""Feeds of users' classes. Their splits travel pickled, and error messages name the feed. A `Poller` is the simple
kind: it fetches rows, batch by batch."""

from __future__ import annotations

import pickle
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from dpa.errors import DpaError, TableError
from dpa.sources.columns import first_difference, listed
from dpa.sources.feed import Feed, Page, never
from dpa.sources.splits import NumberedSplit, RestOfFile, Split, channel_of, memory_splits, unpickled

_PAGE_SECONDS = 0.05
_NOWHERE = b"nowhere"  # no position

_PAGE_BYTES = 4 * 2**20
"""A page ends with the first batch after this time or size: its rows lie in the coordinator's memory, and in
checkpoints."""


@dataclass(frozen=True)
class ForeignSplit(RestOfFile):
    """A split of a foreign feed, still pickled: only tasks that read must be able to import its module.

    Attributes:
        name: of the feed, for messages.
        rows, skipped: how many rows to read, and how many come before them.
        schema: the columns that the feed declares, if any.
    """

    pickled: bytes
    name: str
    rows: int
    schema: pa.Schema | None = None
    skipped: int = 0
    channel: str = ""

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
        """What is left of the split. Raises TableError if this process cannot import its module."""
        split: Split = unpickled(self.pickled, f"the splits of {self.name} cannot be imported where they are read")
        return split.after(self.skipped) if self.skipped else split


class ForeignFeed(Feed):
    """Wraps a feed of a user's class; `name` is what the job file calls it."""

    def __init__(self, feed: Feed, name: str) -> None:
        self._feed = feed
        self._name = name
        self.is_open, self.poll_seconds, self.patience = feed.is_open, feed.poll_seconds, feed.patience

    @cached_property
    def schema(self) -> pa.Schema | None:
        """The columns, asked for once."""
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

    def known_rows(self) -> int | None:
        with naming(f"{self._name}.known_rows"):
            return self._feed.known_rows()

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
    """Check that rows have the columns that their feed declares, in that order. Raises TableError that names the first
    different column, and both types."""
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
    """Turn an error in this block of foreign code into a `TableError` that starts with `what`."""
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


class Poller(ABC):
    """Fetches rows from somewhere. A job has one such object, in the coordinator's process. It is made where the job
    begins, so the first `poll` or `resume` must make what cannot be pickled, such as a connection.

    Attributes:
        schema: the columns of the rows.
    """

    schema: pa.Schema

    @abstractmethod
    def poll(self) -> Sequence[Mapping[str, Any]] | pa.RecordBatch | pa.Table | None:
        """The rows that have come since the last call, perhaps none; None: no more will come.

        Rows are dicts, which may lack columns, or Arrow data with the columns of `schema`. They stay in memory until
        they are read: return thousands at once, not millions. Do not wait long."""

    @abstractmethod
    def position(self) -> Any:
        """Where the next `poll` continues, picklable. Also called before the first `poll`."""

    @abstractmethod
    def resume(self, position: Any) -> None:
        """Have the next `poll` continue at a position of this object, or of one in a process that has died: with the
        same rows in the same order, then with newer ones."""


class PolledRows(Feed):
    """The rows of a `Poller`, which the splits hold.

    Args:
        name: what the job file calls the poller.
        clock: gives seconds.
    """

    is_open = True

    def __init__(self, poller: Poller, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._poller = poller
        self._name = name
        self._clock = clock
        self._begin = self._at = b""

    @property
    def schema(self) -> pa.Schema:
        schema = getattr(self._poller, "schema", None)
        if not isinstance(schema, pa.Schema) or not schema.names:
            raise TableError(f"{self._name}: its attribute `schema` must be a Schema of pyarrow with a column at least")
        return schema

    def poll(self, split_rows: int, position: Any = None) -> Page:
        if not self._at:
            self._begin = self._at = self._position()
        wanted = self._begin if position is None else position
        if wanted != self._at:
            with naming(f"{self._name}.resume"):
                self._poller.resume(pickle.loads(wanted))
        self._at = _NOWHERE  # a poller that fails in the middle must be resumed where it was
        tables: list[pa.Table] = []
        rows = size = 0
        until, is_over = self._clock() + _PAGE_SECONDS, False
        while rows < split_rows and size < _PAGE_BYTES and self._clock() <= until:
            with naming(f"{self._name}.poll"):
                made = self._poller.poll()
                table = None if made is None else self._table(made)
            is_over = table is None
            if table is None or not table.num_rows:
                break
            tables.append(table)
            rows, size = rows + table.num_rows, size + table.nbytes
        self._at = self._position()
        splits = memory_splits(pa.concat_tables(tables), split_rows) if tables else ()
        return Page(splits, None if is_over else self._at)

    def _position(self) -> bytes:
        with naming(f"{self._name}.position"):
            return pickle.dumps(self._poller.position())

    def _table(self, made: Any) -> pa.Table:
        """The poller's rows, with the columns of its schema."""
        schema = self.schema
        if isinstance(made, pa.RecordBatch):
            made = pa.Table.from_batches([made])
        if isinstance(made, pa.Table):
            require_declared(made.schema, schema, "a batch")
            return made.cast(schema)
        if isinstance(made, str | bytes | Mapping) or not isinstance(made, Sequence):
            raise TypeError(f"it gives a {type(made).__name__}, where a list of dicts, Arrow data or None is due")
        for row in made:
            if not isinstance(row, Mapping):
                raise TypeError(f"a row is a dict by column name, not {row!r}")
            if not row.keys() <= set(schema.names):
                other = next(name for name in row if name not in schema.names)
                raise TypeError(f"a row has {other!r}, which is no column of `schema`: it has {listed(schema.names)}")
        return pa.Table.from_pylist(list(made), schema)
