"""Errors of user code and readers that a step's `on_error` tolerates: the record is left out and counted and, as a
*dead letter*, kept with what is known about it (docs/dead-letters.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

OnError: TypeAlias = Literal["fail", "dead_letter", "skip"]
"""The effect of an error of user code: the job fails, or the record is skipped, or it becomes a dead letter."""


UNREAD, READING = "UnreadableRecord", "read"
"""Type of the error, and method, of a record that a reader cannot read."""


@dataclass(frozen=True)
class Origin:
    """The input rows that a row of a task came from: `rows` rows from `first` on. `aligned`: as many rows were made,
    one of each."""

    first: int
    rows: int
    aligned: bool = True

    def part(self, start: int, rows: int, number: int) -> Origin:
        """The origin of `rows` of `number` rows, from row `start` on."""
        return Origin(self.first + start, rows) if self.aligned and number == self.rows else self

    def found(self) -> Origin:
        """The same, where it takes work to find out which rows these are."""
        return self


@dataclass(frozen=True)
class Letter:
    """A record on which user code raised, or which could not be read.

    Attributes:
        step: of the job.
        executor, method: what raised; `read`, where it could not be read.
        key, record: for people: what it raised on, cut to a readable length; no key before the record has one.
        error, message, traceback: the exception's type, its text, and where in user code it was raised, shortened.
        data: the key and the record as they were, pickled; None if they cannot be. Of a record that could not be read,
            what else it takes to read it, and its bytes.
        split: of a record that a source task made, the number of the split.
        file: that the split reads; None if it reads none.
        offset, rows: the record was made of one of `rows` rows of the split, from the one at `offset` on.
        task: which task it was.
        sender, edge, block: of a record that a task received: who sent it, on which edge, in which of its blocks; None
            where several were processed together.
        epoch, generation: the stretch of the input that it belongs to, and the job's life in which it was read.
    """

    step: str
    executor: str
    method: str
    key: str | None
    record: str
    error: str
    message: str
    traceback: str
    data: bytes | None
    split: int | None = None
    file: str | None = None
    offset: int | None = None
    rows: int | None = None
    task: str = ""
    sender: str | None = None
    edge: int | None = None
    block: int | None = None
    epoch: int = 0
    generation: int = 0


@dataclass(frozen=True)
class ErrorCount:
    """Errors of one type in one step.

    Attributes:
        step: the step of the job.
        error: the exception's type.
        kept: whether the records are dead letters; otherwise they were skipped.
        records: number of records.
        example: message of the first error.
    """

    step: str
    error: str
    kept: bool
    records: int
    example: str


def summed(counts: Sequence[ErrorCount]) -> tuple[ErrorCount, ...]:
    """One count for each step, type and kind, the greatest first."""
    found: dict[tuple[str, str, bool], ErrorCount] = {}
    for each in counts:
        place = (each.step, each.error, each.kept)
        known = found.get(place)
        found[place] = each if known is None else replace(known, records=known.records + each.records)
    return tuple(sorted(found.values(), key=lambda each: (-each.records, each.step, each.error)))


@dataclass(frozen=True)
class Failed:
    """The failures since the last call; `earlier`: older letters, which lie in the job's checkpoint store."""

    counts: tuple[ErrorCount, ...] = ()
    letters: tuple[Letter, ...] = ()
    earlier: int = 0


NONE_FAILED = Failed()


def no_gaps(row: int) -> int:
    """For splits without missing rows."""
    return 0


@dataclass
class Letters:
    """Collects the failures of one process until its task takes them.

    Attributes:
        count: records so far, as they came.
        reads: the number of the split that is read, its file, and the offset at which reading began; None: no split is.
        before: how many rows of it are not there before one that was read, by the number of that.
    """

    count: int = 0
    reads: tuple[int, str | None, int] | None = None
    before: Callable[[int], int] = no_gaps
    _counts: list[ErrorCount] = field(default_factory=list)
    _letters: list[Letter] = field(default_factory=list)

    def add(
        self, count: ErrorCount, letter: Letter | None, origin: Origin | None = None, came: int | None = None
    ) -> None:
        """`origin`: the input rows of the record; `came`: the number of records if a sender has combined them."""
        self.count += count.records if came is None else came
        self._counts.append(count)
        if letter is None:
            if len(self._counts) > _MANY:
                self._counts = [*summed(self._counts)]
            return
        if self.reads is not None and origin is not None:
            (number, file, skipped), origin = self.reads, origin.found()
            offset = skipped + origin.first + self.before(origin.first)
            letter = replace(letter, split=number, file=file, offset=offset, rows=origin.rows)
        self._letters.append(letter)

    def take(self) -> Failed | None:
        """The failures since the last call, or None."""
        if not self._counts:
            return None
        failed = Failed(summed(self._counts), tuple(self._letters))
        self._counts, self._letters = [], []
        return failed


_MANY = 1_000  # most counts before they are summed


@dataclass(frozen=True)
class Tolerance:
    """How the errors of one step's user code are tolerated.

    Attributes:
        step: its name.
        letters: where they are noted.
        keeps: whether records become dead letters; else they are skipped.
        merges: whether states of one key may be merged at any time.
    """

    step: str
    letters: Letters
    keeps: bool = True
    merges: bool = False
