"""The phases, statistics, warnings and survived deaths of a run, for its observers and for the report."""

from dataclasses import replace
from functools import reduce
from operator import add

from dpa._secrets import hidden
from dpa._util.words import plural
from dpa.driver.interrupts import ProgramEnd
from dpa.driver.summary import Stopwatch, with_figures
from dpa.protocol.plan import RunOutcome
from dpa.protocol.recovery import Death, SavedJob
from dpa.protocol.wire.metrics import CheckpointStats, Snapshot
from dpa.result import RecoveryReport, Report
from dpa.telemetry.observers import Observers
from dpa.telemetry.tracker import RunTracker

_STREAM_ENDED = ("merge", "done")  # phases of a snapshot in which its numbers of the stream are final
_TASKS_ENDED = ("done", "failed")  # phases of the last snapshot of a run


class RunProgress:
    """The phases, numbers and deaths of a run so far.

    Attributes:
        program_end: raises KeyboardInterrupt if a Ctrl-C is ending the program.
    """

    def __init__(self, observers: Observers) -> None:
        self.program_end = ProgramEnd()
        self._warnings: list[str] = []
        self._observers = observers
        self._stopwatch = Stopwatch()
        self._tracker = RunTracker()
        self._snapshot: Snapshot | None = None
        self._errors_seen: set[tuple[str, str]] = set()
        self._deaths: list[RecoveryReport] = []
        self._dead_checkpoints: list[CheckpointStats] = []
        self._no_checkpoint = CheckpointStats()

    def enter(self, phase: str, ago: float = 0.0) -> None:
        """Begin a phase, which began `ago` seconds before now."""
        self.program_end.begin_phase()
        self._stopwatch.enter(phase, ago)
        self._observers.phase(phase)

    def leave_phase(self) -> None:
        self._stopwatch.enter(None)

    def update(self, snapshot: Snapshot) -> None:
        self.program_end.check()
        if self._stopwatch.phase == "startup" and snapshot.at > 0:
            self.enter("stream", ago=snapshot.at)
        self._snapshot = snapshot
        tracked = replace(self._tracker.update(snapshot), recoveries=tuple(self._deaths))
        self._observers.update(tracked)  # the stream's last numbers come before the next phase
        self._note_flow(snapshot)
        self._note_errors(snapshot)
        if self._stopwatch.phase == "stream" and snapshot.phase in _STREAM_ENDED:
            self.enter("merge")
        if snapshot.phase in _TASKS_ENDED:
            self.leave_phase()  # ending what they ran on is no part of a phase

    def warn(self, message: str) -> None:
        """Show a warning, and keep it for the report."""
        self._warnings.append(hidden(message))
        self._observers.warn(message)

    def show(self, message: str) -> None:
        """Show what another part of the report says."""
        self._observers.warn(message)

    def begin(self, job: SavedJob, *, resumes: bool) -> None:
        """Begin a job with checkpoints. A resumed job reports the death of its last driver."""
        self._no_checkpoint = CheckpointStats(read=job.read, read_before=job.read)
        if resumes:
            behind = f"resumed after {plural(job.read, 'row')} of the input, with the checkpoints of {job.job}"
            self._deaths.append(RecoveryReport(job.generation - 1, 0.0, "driver", "", behind, rows=None))
            self.show(behind)

    def restart(self, death: Death) -> None:
        """Note a death. The numbers of the next generation begin again."""
        saved = (self._snapshot and self._snapshot.checkpoints) or self._no_checkpoint
        if self._snapshot is not None and self._snapshot.generation < death.generation:  # which has said nothing yet
            saved = CheckpointStats(read=saved.read, read_before=saved.read)
        behind, rows = saved.read, max(0, self._tracker.newest.records.read - (saved.read - saved.read_before))
        self._dead_checkpoints.append(saved)
        self._tracker = RunTracker()
        at = max(0.0, death.at - self._stopwatch.began)
        cause = hidden(death.cause)
        self._deaths.append(RecoveryReport(death.generation, at, str(death.task), death.node, cause, rows))
        where = f"after {plural(behind, 'row')}" if behind else "at the start"
        begins = f"generation {death.generation + 1} begins {where} of the input"
        again = f"reads {plural(rows, 'row')} again, as last reported"
        self.show(f"{death.in_words()}; {begins} and {again}; all numbers begin again")
        self.enter("startup")

    def end(self, outcome: RunOutcome) -> None:
        times = outcome.times
        stream, merge = times.stream_ended - times.stream_started, times.merged - times.stream_ended
        self._stopwatch.correct(stream=stream, merge=merge)
        self._snapshot = outcome.snapshot

    def report(self, known: Report, outcome: RunOutcome | None, first_generation: int | None) -> Report:
        """`known` with what is known here. `first_generation`: this driver's first; None: the job makes no
        checkpoints."""
        known = replace(
            known,
            seconds=self._stopwatch.seconds(None if outcome is None else outcome.times.first_record),
            warnings=tuple(self._warnings),
            recoveries=tuple(self._deaths),
            checkpoints=None if first_generation is None else self._checkpoints(first_generation),
        )
        if outcome is None:
            return with_figures(known, self._snapshot, {}, self._snapshot.use if self._snapshot is not None else {})
        return with_figures(known, self._snapshot, outcome.outputs, outcome.use)

    def _checkpoints(self, first_generation: int) -> CheckpointStats:
        known, snapshot = self._dead_checkpoints, self._snapshot
        generation = first_generation + len(known)
        if snapshot is not None and snapshot.checkpoints is not None and snapshot.generation == generation:
            known = [*known, snapshot.checkpoints]
        return reduce(add, known, self._no_checkpoint)

    def _note_errors(self, snapshot: Snapshot) -> None:
        """Warn of an error of user code the first time that a step has one of its type."""
        for found in snapshot.errors:
            if (found.step, found.error) not in self._errors_seen:
                self._errors_seen.add((found.step, found.error))
                what = "a dead letter" if found.kept else "skipped"
                self.show(f"{found.example}; the record is {what}, as are other such records of {found.step}")

    def _note_flow(self, snapshot: Snapshot) -> None:
        """Note how far the generation after a death has come, and when records flow again."""
        last = self._deaths[-1] if self._deaths else None
        if last is None or last.seconds is not None:
            return
        seconds = self._stopwatch.since_began - last.at
        if last.begun is None:
            last = replace(last, begun=seconds - snapshot.at)
        if last.restored is None and snapshot.at > 0:
            last = replace(last, restored=max(last.begun or 0.0, seconds - snapshot.at))  # `begun` may be noted late
        if self._tracker.newest.records.handled:
            last = replace(last, seconds=seconds)
            since = "the start of this driver" if last.rows is None else f"the death of {last.task} was noticed"
            self.show(f"records flow again, {seconds:.1f} s after {since}")
        self._deaths[-1] = last
