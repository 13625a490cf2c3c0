"""Assigns rows to windows of event time, and notes those that are in none."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa._util.words import plural
from dpa.errors import ExecutorError, LateRecordError, NoTimeError
from dpa.execution._held import to_show
from dpa.execution._parts import CHANGED, ends_of, starts_of, with_windows, without_window
from dpa.execution.block import Block, Values
from dpa.execution.failures import shown, tolerated
from dpa.execution.keys import encode
from dpa.routing.hashing import hash_column
from dpa.routing.keys import in_words, to_python
from dpa.tolerance import ErrorCount, Tolerance
from dpa.windows.options import END, START, Windows
from dpa.windows.times import EventTime, Sessions, Times, assigned, fitting, joined

_FEW = 1_000  # windows that a batch may span, beside one for each row, to be numbered without sorting


@dataclass(frozen=True)
class Windowing:
    """The windows of a stage's records, which are the last two components of the key.

    Attributes:
        windows: of which kind they are.
        seed: of the hash of keys. That of a session's key is without the session, which changes as it grows.
        late: how late records are noted; None: they are not.
    """

    windows: Windows
    seed: int = 0
    late: Tolerance | None = None

    def require_windows(self, keys: pa.StructArray) -> None:
        """Raises ExecutorError if user code has changed a window into an impossible one."""
        if not len(keys):
            return
        starts, ends, windows = starts_of(keys), ends_of(keys), self.windows
        lengths = ends - starts
        if windows.is_session:
            wrong = lengths < windows.size_us
        else:
            wrong = (lengths != windows.size_us) | ((starts - windows.offset_us) % windows.slide_us != 0)
        if wrong.any():
            first = int(np.argmax(wrong))
            what = f"{_shown(int(starts[first]))} to {_shown(int(ends[first]))} is none of the {windows.describe()}"
            raise ExecutorError(f"{what}; {CHANGED}")


@dataclass(frozen=True)
class Assign:
    """Assigns windows to rows: a row for each, with the columns `window_start` and `window_end`. Rows without a time
    are in no window; `untimed`: how they are noted, or None."""

    windows: Windows
    time: EventTime
    untimed: Tolerance | None = None

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows in windows. Raises NoTimeError if a row has no time, and such rows are dead letters; ExecutorError
        if there is no time column, or its values are no times."""
        times, has = self.time.of(batch)
        zone = self.time.zone(batch.schema)
        fits = fitting(times, self.windows)
        if has is not None or not fits.all():
            has = fits if has is None else has & fits
            batch, times = self._timed(batch, has), times[has]
        rows, starts = assigned(times, self.windows)
        if rows is not None:
            batch = batch.take(pa.array(rows))
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        return pa.record_batch({**columns, **self._columns(starts, zone)})

    def _timed(self, batch: pa.RecordBatch, has: npt.NDArray[np.bool_]) -> pa.RecordBatch:
        without, [first, *_] = len(has) - int(has.sum()), np.flatnonzero(~has)
        [record] = to_show(batch.slice(first, 1))
        why = f"the column {self.time.column!r} has no time, or one whose window is not in the years 1 to 9999"
        what = f"{plural(without, 'row')} in no window: {why}; the first: {shown(record)}"
        if self.untimed is not None and self.untimed.keeps:
            raise NoTimeError(what)
        if self.untimed is not None:
            self.untimed.letters.add(ErrorCount(self.untimed.step, NoTimeError.__name__, False, without, what), None)
        return batch.filter(pa.array(has))

    def _columns(self, starts: Times, zone: str | None) -> dict[str, pa.Array]:
        kind, times = pa.timestamp("us", zone), ((START, 0), (END, self.windows.size_us))
        if self.windows.is_session or not len(starts):
            return {name: pa.array(starts + more, kind) for name, more in times}
        first, last, slide = int(starts.min()), int(starts.max()), self.windows.slide_us
        if (last - first) // slide > len(starts) + _FEW:
            return {name: pa.array(starts + more, kind) for name, more in times}
        places = pa.array(((starts - first) // slide).astype(np.int32))
        distinct = np.arange(first, last + 1, slide)
        return {name: pa.DictionaryArray.from_arrays(places, pa.array(distinct + more, kind)) for name, more in times}


def session_block(column: pa.StructArray, values: Values, seed: int, *, join: bool = True) -> Block:
    """A block whose windows are sessions of one record each. Overlapping ones are joined unless `join` is False. Hashes
    are of keys without sessions."""
    if join:
        sessions, found = joined_sessions(column)
        codes = found.of.astype(np.int32)
    else:
        sessions, codes = encode(column)
    return Block(sessions, hash_column(without_window(sessions), seed), codes, values)


def joined_block(block: Block) -> Block:
    sessions, found = joined_sessions(block.keys)
    return replace(block, keys=sessions, hashes=block.hashes[found.first], codes=found.of.astype(np.int32)[block.codes])


def joined_sessions(column: pa.StructArray) -> tuple[pa.StructArray, Sessions]:
    """Keys with joined sessions, and these sessions."""
    keys, codes = encode(without_window(column))
    found = joined(codes, starts_of(column), ends_of(column))
    return with_windows(keys.take(pa.array(codes[found.first])), column.type, found.starts, found.ends), found


def note_late(windowing: Windowing, executor: object, block: Block, end: int) -> None:
    """Note records of a closed window, which are left out."""
    tolerance, records = windowing.late, int(block.mapped().sum())
    if tolerance is None:
        return
    error = LateRecordError(f"its window ended at {_shown(end)}, and had been closed")
    if not tolerance.keeps or block.combined:
        counted = ErrorCount(tolerance.step, type(error).__name__, False, records, str(error))
        tolerance.letters.add(counted, None, came=block.rows)
        return
    keys = to_python(block.keys.take(pa.array(block.codes)))
    values = block.values if isinstance(block.values, np.ndarray) else to_show(block.columns)
    for key, value in zip(keys, values, strict=True):
        on = f"key {in_words(key)} and value {shown(value)}"
        tolerated(tolerance, executor, "window", on, error, value, key)


def _shown(time: int) -> str:
    return str(np.datetime64(time, "us"))
