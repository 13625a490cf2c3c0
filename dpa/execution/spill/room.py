"""The memory for a task's states, and local disk for the others, to be read again by the hashes of their keys.

Files have no name, so nothing outlives the process, however it ends. What needs a name is in a directory of the
process; the next process that needs one removes those of dead processes."""

import os
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa._util.disk import why
from dpa._util.owned import OwnedDirectory, sweep
from dpa.errors import JobFailedError
from dpa.execution.states import StatePart
from dpa.routing.hashing import ALL_HASHES, Hashes, Interval
from dpa.routing.table import Owners

_PREFIX = "dpa-spill-"

_PIECES = 32
_LEAST_PIECE = 4096

BINS = 4096
"""Equal stretches of the hash circle, for which sizes are tracked."""

BIN_BITS = 20
"""Hashes in a stretch differ only in this many last bits."""


@dataclass(frozen=True)
class Room:
    """Memory and disk for a task's states.

    Attributes:
        memory: bytes of it.
        seed: of the hashes of keys.
        path: a directory on a local disk; None: the machine's temporary one.
        dumps: pickles what `pickle` cannot: objects of classes that only travel by value.
    """

    memory: int
    seed: int = 0
    path: str | None = None
    dumps: Callable[[Any], bytes] = pickle.dumps

    @property
    def piece(self) -> int:
        """Bytes of spilled states in memory at a time; few, as merging takes several times as much."""
        return max(_LEAST_PIECE, self.memory // _PIECES)

    @property
    def place(self) -> Path:
        return Path(self.path or gettempdir())

    @contextmanager
    def writing(self, raises: type[Exception] = OSError) -> Iterator[None]:
        """`raises`: the errors of what writes in this block. Raises JobFailedError, with the remedy, instead."""
        try:
            yield
        except raises as error:
            mend = "name a directory on a local disk in limits.spill_path, or raise limits.state_mb"
            raise JobFailedError(f"states cannot be spilled to {self.place}: {why(error)}; {mend}") from None

    def file(self) -> BinaryIO:
        """An unnamed file, for this user alone. The system removes it when it is closed."""
        with self.writing():
            self.place.mkdir(mode=0o700, parents=True, exist_ok=True)
            return cast(BinaryIO, TemporaryFile(prefix=_PREFIX, dir=self.place))

    def directory(self) -> OwnedDirectory:
        with self.writing():
            sweep(self.place, _PREFIX)
            return OwnedDirectory.make(self.place, _PREFIX, mode=0o700)

    def pickled(self, found: Any) -> bytes:
        try:
            return pickle.dumps(found, protocol=pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, AttributeError, TypeError):
            return self.dumps(found)

    def on_disk(self, table: pa.Table) -> pa.Table:
        """The table mapped from a file: only the pages in use are in memory."""
        if not table.nbytes:
            return table
        with self.writing(), self.file() as file:
            with pa.ipc.new_file(pa.PythonFile(file, "w"), table.schema) as writer:
                writer.write_table(table)
            file.flush()
            mapped = mmap(file.fileno(), 0, access=ACCESS_READ)
        return pa.ipc.open_file(pa.py_buffer(mapped)).read_all()

    def column_on_disk(self, column: pa.Array) -> pa.Array:
        return self.on_disk(pa.table({"column": column})).column(0).chunk(0)


def read_at(file: BinaryIO, offset: int, size: int) -> bytes:
    """Raises OSError where the file has fewer bytes."""
    found = os.pread(file.fileno(), size, offset)
    while len(found) < size:
        more = os.pread(file.fileno(), size - len(found), offset + len(found))
        if not more:
            raise OSError("a file of spilled states has become shorter")
        found += more
    return found


class Shelf(ABC):
    """States of keys.

    Attributes:
        keys: about how many it has.
        bytes: that they take on disk.
        written: bytes that were ever put.
    """

    keys = bytes = written = 0

    @abstractmethod
    def put(self, part: StatePart) -> None:
        """If it already has states of these keys, reading gives both, and the reader merges them."""

    @abstractmethod
    def read(self, interval: Interval = ALL_HASHES) -> Iterator[StatePart]:
        """The states of keys with these hashes, the oldest first if a key has several."""

    @abstractmethod
    def drop(self, interval: Interval) -> None:
        """Forget the states of all keys with these hashes."""

    @abstractmethod
    def recall(self, hashes: Hashes) -> StatePart | None:
        """Take out the states of keys with one of these hashes, if states cannot be merged; None without any."""

    @abstractmethod
    def close(self) -> None:
        """Forget all."""

    def cuts(self, size: int, within: Interval = ALL_HASHES) -> list[Interval]:
        """Intervals that cover `within`, with at most about `size` bytes each."""
        bins = np.cumsum(self._sizes()) // max(1, size)
        starts = ((np.flatnonzero(np.diff(bins)) + 1).astype(np.int64) << BIN_BITS).tolist()
        first, last = within
        starts = [first, *(start for start in starts if first < start <= last)]
        return list(zip(starts, [*(start - 1 for start in starts[1:]), last], strict=True))

    @abstractmethod
    def _sizes(self) -> npt.NDArray[np.float64]:
        """Bytes in each stretch, approximately; shape (BINS,)."""


def bins_of(hashes: Hashes) -> npt.NDArray[np.uint32]:
    found: npt.NDArray[np.uint32] = hashes >> np.uint32(BIN_BITS)
    return found


@dataclass(frozen=True)
class Everything:
    """All keys have owner 0."""

    seed: int

    def owners_of(self, hashes: Hashes) -> Owners:
        return np.zeros(len(hashes), dtype=np.int32)
