"""Epochs that have ended: what they did, for a log; how long they took, and their rows to be seen, phase by phase."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from dpa.sources.splits import Split


class EpochPhase(Enum):
    """What happens from the moment at which a row is read until readers see what it has changed, in this order."""

    words: str  # of a table, beside the value

    WAITING = "waiting", "for the epoch's end to be due"
    # No task had reported, tasks came or went, or readers did not see the epoch before yet.
    LATE = "late", "until it began to end"
    SOURCES = "sources", "stop, and push what waits"
    QUEUES = "queues", "run empty"
    TABLES = "tables", "are settled and frozen"
    # Those of stages that publish nothing at this end: states are exchanged, rows emitted.
    WINDOWS = "windows", "are closed"
    RESULTS = "results", "are exchanged and staged"
    SNAPSHOTS = "snapshots", "of states are taken"
    # If it cannot be written, until another one is.
    CHECKPOINT = "checkpoint", "is written, sources go on"
    COMMIT = "commit", "until readers see it"

    def __new__(cls, value: str, words: str) -> EpochPhase:
        made = object.__new__(cls)
        made._value_, made.words = value, words
        return made


@dataclass(frozen=True)
class PhaseStats:
    """One phase of all epochs.

    Attributes:
        phase: `waiting` until the epoch is due to end; `late` until it begins to end; `sources` stop; `queues` drain;
            `tables` are frozen; `windows` close; `results` are exchanged and staged; `snapshots` of states are taken;
            the `checkpoint` is written; `commit`.
        number: number of epochs that had this phase.
        seconds: seconds in all of them together.
        longest: seconds in the longest of them.
        row_seconds: seconds that all rows of `rows` together spent in this phase; 0 if their results did not wait for
            it.
    """

    phase: EpochPhase
    number: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    row_seconds: float = 0.0

    @property
    def mean(self) -> float:
        return self.seconds / self.number if self.number else 0.0

    def with_one(self, seconds: float) -> PhaseStats:
        longest = max(self.longest, seconds)
        return replace(self, number=self.number + 1, seconds=self.seconds + seconds, longest=longest)


@dataclass(frozen=True)
class EpochWait:
    """Whom the end of an epoch waited for.

    Attributes:
        task: name of the task.
        what: what the task did.
        seconds: how long the other tasks waited.
    """

    task: str
    what: str
    seconds: float


@dataclass(frozen=True)
class EpochStats:
    """The epochs that cuts of the stream have ended.

    Attributes:
        number: number of epochs.
        seconds: seconds that sources waited for cuts, in total.
        longest: the longest of these waits.
        waited_for: what the longest wait was mostly for; None before the first.
        rows: rows read before an epoch whose results readers see, each counted once, when the first such epoch was
            committed. Rows of the last epoch, which ends with the job, are not counted, nor rows of a task that left
            before the epoch ended.
        phases: where the time of these epochs and rows went, in order; only phases that occurred.
    """

    number: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    waited_for: EpochWait | None = None
    rows: int = 0
    phases: tuple[PhaseStats, ...] = ()

    @property
    def visible_after(self) -> float | None:
        """Mean seconds from the reading of a row until readers see what it has changed: the sum of `of_row` of all
        phases. None: they have seen none."""
        return sum(found.row_seconds for found in self.phases) / self.rows if self.rows else None

    def of_row(self, found: PhaseStats) -> float:
        """Seconds that a row spent in a phase, in the mean."""
        return found.row_seconds / self.rows if self.rows else 0.0


@dataclass(frozen=True)
class OpenEpoch:
    """The epoch that is open, and the newest that was committed.

    Attributes:
        number: of the open one, from 1.
        began: seconds from the start of the stream to its start.
        committed: number of the newest epoch of this generation whose results readers see; None before the first.
        commit_seconds: how long its commit took, in seconds.
    """

    number: int
    began: float
    committed: int | None = None
    commit_seconds: float = 0.0


@dataclass(frozen=True)
class StageEpoch:
    """A stage at the end of an epoch.

    Attributes:
        watermark: event time, in microseconds since 1970; None: nothing is known.
        closed: its windows that end by this event time are closed; None: none is.
        processed: records, in this generation.
        published: rows of its result that the epoch publishes; None: it publishes none.
    """

    watermark: int | None
    closed: int | None
    processed: int
    published: int | None


@dataclass(frozen=True, eq=False)
class EndedEpoch:
    """An epoch.

    Attributes:
        at: when it ended, in seconds of the stream.
        seconds: since the epoch before ended, or the stream began.
        waited: seconds that sources waited for its end.
        read: rows of the input that were read by then, since the job was begun.
        unread: rows that had come, and were not read.
        latest: the greatest event time that this generation had read, in microseconds since 1970; None: there is none.
        late: records that were late by then.
        left_out: records that were left out by then for another reason.
        slot: of the checkpoint chain, for which the epoch's states are written; None: there is no checkpoint.
        splits: by source, what the epoch has read.
    """

    epoch: int
    at: float
    seconds: float
    waited: float
    read: int
    unread: int
    latest: int | None
    late: int
    left_out: int
    slot: int | None
    is_last: bool
    stages: Mapping[str, StageEpoch]
    splits: Mapping[str, tuple[Split, ...]] = field(repr=False)
