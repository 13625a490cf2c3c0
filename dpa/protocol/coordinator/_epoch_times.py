"""Where the time goes from the reading of a row until readers see what it has changed.

Sources say how long the rows of an epoch have waited when they pause; from then on all rows of the epoch spend the same
time in each phase. So a few sums are exact means over rows, and bounded in memory."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from dpa.errors import LateRecordError
from dpa.measure.timing import Waited
from dpa.protocol.coordinator._errors import Errors
from dpa.protocol.coordinator.stage_progress import StageProgress
from dpa.protocol.machine import Machine
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.epochs import EndedEpoch, EpochPhase, EpochStats, EpochWait, OpenEpoch, PhaseStats, StageEpoch
from dpa.protocol.wire.instructions import LogEpoch
from dpa.sources.splits import total_rows

_DONE = {  # what a task does in each step of a cut
    EpochPhase.SOURCES: "read to the end of a row and emitted what it had read",
    EpochPhase.QUEUES: "processed what had been emitted to it",
    EpochPhase.TABLES: "settled a routing table",
    EpochPhase.WINDOWS: "closed its windows",
    EpochPhase.RESULTS: "published its share",
    EpochPhase.SNAPSHOTS: "took its snapshot",
}


@dataclass
class _Unseen:
    """Rows of an epoch whose results are staged, and not seen by readers.

    Attributes:
        at: the end of the last phase that they have gone through.
        waits: whether something of them waits for a checkpoint.
        row_seconds: that they have spent in each phase, all rows together.
    """

    rows: int
    at: float
    waits: bool
    row_seconds: dict[EpochPhase, float]

    def spend(self, phase: EpochPhase, now: float) -> None:
        self.row_seconds[phase] += self.rows * (now - self.at)
        self.at = now


class EpochTimes:
    """The coordinator reports each step of one cut at a time. A commit may end after the next cut has begun."""

    def __init__(self) -> None:
        self._phases = {phase: PhaseStats(phase) for phase in EpochPhase}
        self._number = self._rows = 0
        self._seconds = self._longest = 0.0
        self._waited_for: EpochWait | None = None
        self._slowest: EpochWait | None = None
        self._went_on_at = self._began_at = self._step_began_at = 0.0
        self._late = 0.0
        self._steps: dict[EpochPhase, float] = {}
        self._waiting = self._waited = self._oldest = 0.0  # of rows that are in no epoch with results yet
        self._waiting_rows = 0
        self._unseen: dict[int, _Unseen] = {}
        self._seen: tuple[int | None, float] = None, 0.0  # the last epoch that was committed, and for how long

    def open(self, number: int, started_at: float) -> OpenEpoch:
        return OpenEpoch(number, self._went_on_at - started_at, *self._seen)

    @property
    def stats(self) -> EpochStats:
        phases = tuple(found for found in self._phases.values() if found.number)
        return EpochStats(self._number, self._seconds, self._longest, self._waited_for, self._rows, phases)

    def start(self, now: float) -> None:
        self._went_on_at = self._began_at = now

    def begin(self, now: float, due: float) -> None:
        self._waited += self._waiting_rows * (now - self._began_at)
        self._oldest = self._oldest + now - self._began_at if self._waiting_rows else 0.0
        self._late = now - max(due, self._went_on_at)
        self._began_at = self._step_began_at = now
        self._slowest, self._steps = None, {}

    def paused(self, waits: Waited, now: float) -> None:
        since = now - self._began_at
        self._waiting_rows += waits.rows
        self._waited += waits.seconds - waits.rows * since
        self._oldest = max(self._oldest, waits.longest - since)

    def step(self, phase: EpochPhase, task: Address, now: float) -> None:
        """A task was the last for which the cut waited."""
        seconds, self._step_began_at = now - self._step_began_at, now
        self._steps[phase] = self._steps.get(phase, 0.0) + seconds
        if self._slowest is None or seconds > self._slowest.seconds:
            self._slowest = EpochWait(str(task), _DONE[phase], seconds)

    def staged(self, epoch: int, now: float, *, waits: bool) -> None:
        """All that the epoch publishes is staged; `waits`: some of it for a checkpoint."""
        rows, spent = self._waiting_rows, defaultdict[EpochPhase, float](float)
        late, ran = self._late_for_rows, self._began_at - self._went_on_at
        if late > 0:  # rows are taken to have been read evenly: those that came when it was due already waited for less
            spent[EpochPhase.LATE] = max(0.0, min(self._waited, rows * late * (1 - late / (2 * ran))))
        spent[EpochPhase.WAITING] = max(0.0, self._waited - spent[EpochPhase.LATE])
        for phase, seconds in self._steps.items():
            spent[phase] = rows * seconds
        spent[EpochPhase.SOURCES] += min(0.0, self._waited)  # of rows that were read when the cut had begun
        self._unseen[epoch] = _Unseen(rows, now, waits, spent)
        self._waiting_rows, self._waited = 0, 0.0

    def wait(self, phase: EpochPhase, epoch: int, now: float) -> None:
        """Rows of an epoch that waits for a checkpoint have been in a phase of it until now."""
        if epoch in self._unseen and self._unseen[epoch].waits:
            self._unseen[epoch].spend(phase, now)

    def go_on(self, now: float) -> float:
        """The cut is over; returns for how long sources have waited."""
        waited = now - self._began_at
        if self._waited_for is None or waited > self._longest:
            self._longest, self._waited_for = waited, self._slowest
        self._number += 1
        self._seconds += waited
        late = self._late_for_rows
        self._add(EpochPhase.WAITING, self._began_at - self._went_on_at - late)
        for phase, seconds in (*([(EpochPhase.LATE, late)] if late > 0 else []), *self._steps.items()):
            self._add(phase, seconds)
        self._went_on_at = now
        return waited

    @property
    def _late_for_rows(self) -> float:
        """For how long a row waited for the cut when it was due: for none, nothing was late."""
        return max(0.0, min(self._late, self._oldest))

    def has_checkpoint(self, now: float) -> None:
        self._add(EpochPhase.CHECKPOINT, now - self._went_on_at)

    def seen(self, epoch: int, now: float) -> None:
        found = self._unseen.pop(epoch, None)
        if found is None:
            return
        self._seen = epoch, now - found.at
        self._add(EpochPhase.COMMIT, now - found.at)
        found.spend(EpochPhase.COMMIT, now)
        self._rows += found.rows
        for phase, seconds in found.row_seconds.items():
            before = self._phases[phase]
            self._phases[phase] = replace(before, row_seconds=before.row_seconds + seconds)

    def _add(self, phase: EpochPhase, seconds: float) -> None:
        self._phases[phase] = self._phases[phase].with_one(seconds)


class EndedEpochs:
    """The epochs of a job, reported only if its sources are logged."""

    def __init__(self, coordinator: Machine, stages: Mapping[str, StageProgress], errors: Errors, read: int) -> None:
        self._coordinator = coordinator
        self._stages = stages
        self._errors = errors
        self._read_before = read
        self._sources = [stage for stage in stages.values() if stage.is_source]
        self._is_logged = any(stage.spec.input.is_logged for stage in self._sources)
        self._began_at = self._ended_at = 0.0

    def start(self, now: float) -> None:
        self._began_at = self._ended_at = now

    def log(
        self,
        epoch: int,
        at: float,
        waited: float = 0.0,
        slot: int | None = None,
        publishing: Collection[StageProgress] = (),
        *,
        is_last: bool = False,
    ) -> None:
        """An epoch has ended. `publishing`: the stages whose results it publishes."""
        if not self._is_logged:
            return
        late = sum(found.records for found in self._errors.counts if found.error == LateRecordError.__name__)
        ended = EndedEpoch(
            epoch=epoch,
            at=at - self._began_at,
            seconds=at - self._ended_at,
            waited=waited,
            read=self._read_before + sum(stage.ledger.read for stage in self._sources),
            unread=sum(total_rows(stage.splits.rest) for stage in self._sources),
            latest=max(
                (stage.splits.latest for stage in self._sources if stage.splits.latest is not None), default=None
            ),
            late=late,
            left_out=sum(found.records for found in self._errors.counts) - late,
            slot=slot,
            is_last=is_last,
            stages={
                name: StageEpoch(
                    stage.time.reached.watermark,
                    stage.time.closed,
                    stage.ledger.processed,
                    stage.results.newest_rows if stage in publishing else None,
                )
                for name, stage in self._stages.items()
            },
            splits={stage.name: stage.splits.take_read() for stage in self._sources},
        )
        self._ended_at = at
        self._coordinator.instruct(LogEpoch(ended))
