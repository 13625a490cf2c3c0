"""Carries out the instructions that run user code. A driver adds time: it measures the seconds, or makes them up."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from dpa.errors import ProtocolError
from dpa.execution.block import Block, joined
from dpa.execution.emission import Emission
from dpa.execution.failures import note_unread
from dpa.execution.mapping import Emitted
from dpa.execution.reduce_task import ReduceStage, ReduceTask
from dpa.execution.rows import OneBatch, Portions, Rows
from dpa.execution.spill.room import Room
from dpa.execution.trials import Trial, TriedRows
from dpa.protocol.task.delivery import Delivery, TaskOutput
from dpa.protocol.wire.events import (
    Event,
    ExtractDone,
    FinishDone,
    ProcessDone,
    PublishDone,
    RangesExtracted,
    SnapshotDone,
    SnapshotMarked,
    StatesInstalled,
    StepDone,
    WriteDone,
)
from dpa.protocol.wire.instructions import (
    CloseSplit,
    Extract,
    ExtractRanges,
    Finish,
    InstallStates,
    Instruction,
    NextStep,
    OpenResult,
    OpenSplit,
    ProcessBlocks,
    Publish,
)
from dpa.protocol.wire.messages.cuts import TakeSnapshot
from dpa.protocol.wire.messages.end import Deliver
from dpa.sources.splits import GappedRows, NumberedSplit, gapped
from dpa.tolerance import Failed, no_gaps

StageTask: TypeAlias = Emission | ReduceStage
"""The work of a stage's tasks: a source emits the rows that it reads, an operator receives records."""

Archive: TypeAlias = Callable[[int, ReduceTask], Callable[[], object]]
"""Marks a task's states for a slot of the store's chain. Returns a function that writes them, on any thread, while the
task continues; that returns how to find them again."""


def _nothing() -> None:
    """Write nothing."""


def no_archive(slot: int, task: ReduceTask) -> Callable[[], object]:
    return _nothing


class UserCode:
    """The user code of one task, with its states.

    Attributes:
        emission: what becomes of its rows in the stages that follow; None if none do.
        output: its share of the stage's result; None before it is delivered.
    """

    def __init__(
        self,
        task: StageTask,
        index: int,
        clock: Callable[[], float],
        delivery: Delivery | None = None,
        archive: Archive = no_archive,
        trial: Trial | None = None,
        room: Room | None = None,
    ) -> None:
        """The user code of task `index`.

        Args:
            clock: gives seconds.
            delivery: where its shares of results go; None: nowhere.
            archive: writes its snapshots.
            trial: tries each block before it is processed; None: nothing is tried.
            room: memory for its states; None: as much as they need.
        """
        self.output: TaskOutput | None = None
        self.emission = task if isinstance(task, Emission) else task.emission
        self._time = task.time if isinstance(task, Emission) else None
        self._letters = task.letters
        self._reading = task.reading if isinstance(task, Emission) else None
        self._opened: NumberedSplit | None = None
        self._trial = trial
        self._deaths = None if trial is None else task.deaths
        self._tried: TriedRows | None = None
        self._gapped: GappedRows | None = None
        self._reduce_task = None if isinstance(task, Emission) else ReduceTask(task, index, room)
        self._index = index
        self._clock = clock
        self._delivery = delivery
        self._archive = archive
        self._writes: Callable[[], object] = _nothing
        self._steps: Iterator[Emitted] = iter(())
        self._portions = Portions(OneBatch(pa.record_batch({})))

    @property
    def reduce_task(self) -> ReduceTask:
        assert self._reduce_task is not None
        return self._reduce_task

    @property
    def state_use(self) -> tuple[int, int]:
        return (0, 0) if self._reduce_task is None else self._reduce_task.state_use

    def carry_out(self, instruction: Instruction) -> Event | None:
        """Run user code; returns the event that answers the instruction, with 0 seconds, or None if none does. Raises
        ExecutorError if user code failed."""
        match instruction:
            case OpenSplit() | OpenResult():
                self._open(instruction.split if isinstance(instruction, OpenSplit) else self.reduce_task.rows())
                return None
            case CloseSplit():
                self._portions.close()
                return None
            case NextStep(rows, read_at):
                self._portions.at_once, self._portions.read_at = rows, read_at
                step = self._with_dropped(next(self._steps, None))
                return StepDone(step, failed=self._failed(), event_time=self._portions.greatest)
            case ProcessBlocks(given, _, closed):
                if closed is not None:  # a new task may get rows of windows that the others have closed
                    self.reduce_task.note_closed(closed)
                before = self.reduce_task.dead
                blocks = tuple(emitted for block in joined(given) for emitted in self._processed(block))
                dead, opens = self.reduce_task.dead - before, self.reduce_task.first_open
                return ProcessDone(0.0, blocks, dead=dead, failed=self._failed(), opens=opens)
            case Extract() | ExtractRanges() | InstallStates():
                return self._move_states(instruction)
            case Publish(parts, epoch, closes, publishes):
                self.reduce_task.merge(parts)
                blocks = () if closes is None else self.reduce_task.close(closes)
                deliver = (publishes and self._delivery) or Delivery()
                staged, rows = deliver.publish(self.reduce_task, self._index, publishes, epoch)
                opens, failed = self.reduce_task.first_open, self._failed()
                return PublishDone(staged, blocks=blocks, opens=opens, rows=rows, failed=failed)
            case TakeSnapshot(slot):
                self._writes = self._archive(slot, self.reduce_task)
                return SnapshotMarked()
            case Finish():
                return self._finish(instruction)
            case Deliver(schema, is_first, epoch):
                self._deliver(schema, is_first, epoch)
                return WriteDone()
        raise ProtocolError(f"user code cannot carry out a {type(instruction).__name__}")

    def write_snapshot(self) -> SnapshotDone:
        """May run on any thread, while other user code runs."""
        return SnapshotDone(self._writes())

    def _move_states(self, instruction: Extract | ExtractRanges | InstallStates) -> Event:
        match instruction:
            case Extract(table):
                return ExtractDone(self.reduce_task.extract(table))
            case ExtractRanges(table, most):
                return RangesExtracted(self.reduce_task.extract_piece(table, most))
            case InstallStates(parts, rows, merges):
                self.reduce_task.add_rows(rows)
                take_in = self.reduce_task.merge if merges else self.reduce_task.install
                take_in(parts)
                return StatesInstalled(self.reduce_task.first_open)

    def _finish(self, instruction: Finish) -> FinishDone:
        schema = self.reduce_task.finish(instruction.parts)
        # Without states a receiver counts no keys, so there is no load by key to report.
        if instruction.ring_table is None or not self.reduce_task.receiver.keeps_states:
            return FinishDone(schema)
        return FinishDone(schema, tuple(self.reduce_task.loads(instruction.ring_table).tolist()))

    def _deliver(self, schema: pa.Schema | None, is_first: bool, epoch: int) -> None:
        if self._delivery is None:
            self.reduce_task.conform(schema, is_first=is_first)
        else:
            self.output = self._delivery.deliver(self.reduce_task, self._index, schema, is_first=is_first, epoch=epoch)

    def _processed(self, block: Block) -> tuple[tuple[int, Block], ...]:
        if self._trial is None or self._deaths is None:
            return self.reduce_task.process(block)
        return self.reduce_task.process_tried(block, self._trial, self._deaths)

    def _failed(self) -> Failed | None:
        return None if self._letters is None else self._letters.take()

    def _open(self, rows: Rows) -> None:
        assert self.emission is not None
        self._gapped = gapped(rows)
        self._opened = rows if isinstance(rows, NumberedSplit) else None
        if self._letters is not None:
            opened = self._opened
            self._letters.reads = None if opened is None else (opened.number, opened.file, opened.skipped)
            self._letters.before = no_gaps if self._gapped is None else self._gapped.gaps.before
        self._portions, self._tried = Portions(self._gapped or rows, self._time), None
        if self._trial is not None and self._deaths is not None and self._reduce_task is None:
            self._tried = TriedRows(self._portions, self._trial, self._deaths)
        self._steps = self.emission.steps(self._tried or self._portions, self._clock)

    def _with_dropped(self, step: Emitted | None) -> Emitted | None:
        """Count dropped and missing rows as read by a step."""
        dropped = 0
        if self._tried is not None:
            dropped, self._tried.dropped = self._tried.dropped, 0
        if self._gapped is not None:
            gaps, opened = self._gapped.gaps, self._opened
            dropped += gaps.passed(dropped + (0 if step is None else step.read))
            for place, record in gaps.unread:
                assert self._reading is not None  # else the split does not tolerate it
                found = None if opened is None else (opened.number, opened.file, opened.skipped + place)
                note_unread(self._reading, record, found)
            gaps.unread.clear()
        if not dropped:
            return step
        return Emitted((), dropped, 0) if step is None else replace(step, read=step.read + dropped)
