"""How long the epochs of a stream took to end, and the rows that they ended to be seen by readers, phase by phase."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class EpochPhase(Enum):
    """What happens from the moment at which a row is read until readers see what it has changed, in this order."""

    WAITING = "waiting"
    """For the end of the epoch to be due."""
    LATE = "late"
    """From then until it began to end: nobody had reported, tasks came or went, or readers did not see the epoch before
    yet."""
    SOURCES = "sources"
    """They read to the end of a row, and push what waits for credit."""
    QUEUES = "queues"
    """Run empty, stage after stage."""
    TABLES = "tables"
    """The load balancer settles and freezes the routing tables."""
    WINDOWS = "windows"
    """Of stages that publish nothing at this end are closed: states are exchanged, rows emitted."""
    RESULTS = "results"
    """States are exchanged, and each task stages its share."""
    SNAPSHOTS = "snapshots"
    """Of states are marked."""
    CHECKPOINT = "checkpoint"
    """Is written, states and all, while sources go on; where it fails, until another one is."""
    COMMIT = "commit"
    """Until all that the epoch publishes is committed, while sources go on."""


@dataclass(frozen=True)
class PhaseStats:
    """One phase of all epochs.

    Attributes:
        phase: `waiting` for the end of the epoch to be due; `late`, until it began to end; `sources`, that stop;
            `queues`, that run empty; `tables`, that are frozen; `windows`, that are closed; `results`, that are
            exchanged and staged; `snapshots` of states; the `checkpoint`, that is written; the `commit`.
        number: of epochs that had it.
        seconds: of all these together.
        longest: of one of them.
        row_seconds: that the rows of `rows` spent in it, all rows together; 0 of a phase for which their results did
            not wait.
    """

    phase: EpochPhase
    number: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    row_seconds: float = 0.0

    @property
    def mean(self) -> float:
        """Seconds of an epoch that had it."""
        return self.seconds / self.number if self.number else 0.0


@dataclass(frozen=True)
class EpochWait:
    """For whom the end of an epoch waited.

    Attributes:
        task: its name.
        what: what it did.
        seconds: for how long the others waited.
    """

    task: str
    what: str
    seconds: float


@dataclass(frozen=True)
class EpochStats:
    """The epochs that cuts of the stream have ended.

    Attributes:
        number: how many.
        seconds: in which sources waited for cuts, all together.
        longest: the longest of these waits.
        waited_for: whom the longest one waited for most; None before the first.
        rows: that were read before an epoch of which readers see the results, each counted once: when the first such
            epoch was committed. Those of the last epoch, which ends with the job, are not counted, nor are those of a
            task that has left before the epoch ended.
        phases: where the time of these epochs and rows went, in order; those that there were.
    """

    number: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    waited_for: EpochWait | None = None
    rows: int = 0
    phases: tuple[PhaseStats, ...] = ()

    @property
    def visible_after(self) -> float | None:
        """Seconds from the reading of a row until readers see what it has changed, in the mean; None: they have seen
        none. It is the sum of `of_row` of all phases."""
        return sum(found.row_seconds for found in self.phases) / self.rows if self.rows else None

    def of_row(self, found: PhaseStats) -> float:
        """Seconds that a row spent in a phase, in the mean."""
        return found.row_seconds / self.rows if self.rows else 0.0
