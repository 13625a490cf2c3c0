"""Finds the record that ends its process, such as by a crash in C or `os._exit`. Work is first tried in another
process; if that dies, the work is halved, down to a record that dies alone."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa

from dpa.execution._held import to_show
from dpa.execution.block import Block
from dpa.execution.failures import UserCodeError, bisected, pickled, shown, text_of
from dpa.execution.rows import Rows
from dpa.execution.states import StatePart
from dpa.tolerance import ErrorCount, Letter, Origin, Tolerance

Work: TypeAlias = "pa.RecordBatch | tuple[StatePart | None, Block]"
"""Work to try: rows of a source task, or records of an operator task with the states of their keys."""

Trial: TypeAlias = Callable[[Work], str | None]
"""Tries work in another process; returns how that died, or None. An exception of user code is no death."""

DIED = "ProcessDied"
"""The error type of such dead letters."""


class _DeathError(UserCodeError):
    """A process that tried work has died."""


def survived(
    trial: Trial, work: Callable[[int, int], Work], rows: int, dies: Callable[[int, UserCodeError], None]
) -> Iterator[tuple[int, int]]:
    """Spans of rows that survive, in order. `work` gives a span's work, once earlier spans are processed; `dies` is
    called for each other row."""

    def attempt(start: int, stop: int) -> None:
        if (died := trial(work(start, stop))) is not None:
            raise _DeathError(died)

    for start, stop, _ in bisected(attempt, rows, dies):
        yield start, stop


class TriedRows:
    """Rows without those that end a process.

    Attributes:
        dropped: how many have been left out since this was last set to 0.
    """

    def __init__(self, rows: Rows, trial: Trial, tolerance: Tolerance) -> None:
        self.dropped = 0
        self._rows = rows
        self._trial = trial
        self._tolerance = tolerance
        self._given = 0

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """In order; smaller batches where rows are left out."""
        for batch in self._rows.batches(batch_rows):
            yield from self._alive(batch)

    def _alive(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        def dies(row: int, error: UserCodeError) -> None:
            [record] = to_show(batch.slice(row, 1))
            note_death(self._tolerance, error, record, origin=Origin(self._given, 1))
            self.dropped += 1
            letters = self._tolerance.letters
            if letters.reads is not None:  # what is read from here on lies one row further than what is given
                number, file, skipped = letters.reads
                letters.reads = (number, file, skipped + 1)

        def part(start: int, stop: int) -> pa.RecordBatch:
            return batch.slice(start, stop - start)

        for start, stop in survived(self._trial, part, batch.num_rows, dies):
            self._given += stop - start
            yield part(start, stop)


def note_death(
    tolerance: Tolerance, died: UserCodeError, record: Any, key: Any = None, origin: Origin | None = None
) -> None:
    """Note a record that is left out because every process that works on it dies."""
    message = f"the process that works on it dies: {died}"
    count = ErrorCount(tolerance.step, DIED, tolerance.keeps, 1, f"record {shown(record)}: {message}")
    letter = None
    if tolerance.keeps:
        known, data = None if key is None else text_of(key), pickled((key, record))
        letter = Letter(tolerance.step, "", "", known, text_of(record), DIED, message, "", data)
    tolerance.letters.add(count, letter, origin)
