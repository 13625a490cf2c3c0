"""Rows that a class of the user's fetches, batch by batch, as an open feed."""

from __future__ import annotations

import pickle
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from dpa.errors import TableError
from dpa.sources.columns import listed
from dpa.sources.feed import Feed, Page
from dpa.sources.foreign import naming, require_declared
from dpa.sources.splits import memory_splits

_PAGE_SECONDS = 0.05
_NOWHERE = b"nowhere"
"""No position."""

_PAGE_BYTES = 4 * 2**20
"""A page ends with the first batch behind either; its rows lie in the coordinator's memory, and in checkpoints."""


class Poller(ABC):
    """Fetches rows from somewhere. One object does in a job, in the process of the coordinator; it is made where the
    job begins, so what cannot be pickled, such as a connection, is to be made by the first `poll` or `resume`.

    Attributes:
        schema: the columns of the rows.
    """

    schema: pa.Schema

    @abstractmethod
    def poll(self) -> Sequence[Mapping[str, Any]] | pa.RecordBatch | pa.Table | None:
        """The rows that have come since the last call; none if there are none yet; None: there will be no more.

        Rows are dicts, in which a column may be missing, or Arrow data with the columns of `schema`. They are kept in
        memory until they are read: thousands at once are well, millions are not. Should not wait for long.
        """

    @abstractmethod
    def position(self) -> Any:
        """Where the next `poll` goes on. Picklable. Also called before the first `poll`."""

    @abstractmethod
    def resume(self, position: Any) -> None:
        """Have the next `poll` go on at a position, which this object, or one of a process that has died, has given:
        the same rows again, in the same order, and those that have come since."""


class PolledRows(Feed):
    """What a `Poller` fetches. Splits hold the rows themselves."""

    is_open = True

    def __init__(self, poller: Poller, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`name` is what the job file calls the poller; `clock` gives seconds."""
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
        self._at = _NOWHERE  # if the poller fails in the middle, it is to begin again where it was
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
        """Rows as the poller gave them, with the columns of its schema.

        Raises:
            TableError: they have others, or of other types.
            TypeError: they are no rows.
        """
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
