"""Carries out the instructions that run user code. What a driver adds is time: it measures or makes up the seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import pyarrow as pa

from dpa.errors import ProtocolError
from dpa.execution.emission import Emission
from dpa.execution.mapping import Emitted
from dpa.execution.reduce_task import ReduceStage, ReduceTask, TaskSnapshot
from dpa.execution.rows import OneBatch, Portions, Rows
from dpa.execution.states import Reduced
from dpa.protocol.task.delivery import Delivery, TaskOutput
from dpa.protocol.wire.events import (
    Event,
    ExtractDone,
    FinishDone,
    MergeDone,
    ProcessDone,
    RangesExtracted,
    SnapshotDone,
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
    MergeStates,
    NextStep,
    OpenResult,
    OpenSplit,
    ProcessBlock,
    Write,
    WriteSnapshot,
)
from dpa.routing.table import RoutingTable

StageTask: TypeAlias = Emission | ReduceStage
"""What the tasks of a stage do: a source emits the rows that it reads, an operator receives records."""

Archive: TypeAlias = Callable[[int, TaskSnapshot], object]
"""Writes a task's snapshot for a slot of the store's chain, and returns how it is found again."""


def no_archive(slot: int, snapshot: TaskSnapshot) -> object:
    """Writes nothing: there are no checkpoints."""
    return None


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
    ) -> None:
        """Of task `index`; `clock` gives seconds, `delivery` says where its shares of results go, None: nowhere;
        `archive` writes its snapshots."""
        self.output: TaskOutput | None = None
        self.emission = task if isinstance(task, Emission) else task.emission
        self._reduce_task = None if isinstance(task, Emission) else ReduceTask(task, index)
        self._index = index
        self._clock = clock
        self._delivery = delivery
        self._archive = archive
        self._round_table: RoutingTable | None = None
        self._steps: Iterator[Emitted] = iter(())
        self._portions = Portions(OneBatch(pa.record_batch({})))

    @property
    def reduce_task(self) -> ReduceTask:
        """The states, and in the end the share, of an operator."""
        assert self._reduce_task is not None
        return self._reduce_task

    @property
    def is_mergeable(self) -> bool:
        """Whether an operator's two states of one key can be merged."""
        receiver = self.reduce_task.receiver
        return receiver.keeps_states and receiver.can_merge

    def carry_out(self, instruction: Instruction) -> Event | None:
        """Run user code; returns the event that answers the instruction, with 0 seconds, or None if none does.

        Raises:
            ExecutorError: user code failed.
        """
        match instruction:
            case OpenSplit() | OpenResult():
                self._open(instruction.split if isinstance(instruction, OpenSplit) else self.reduce_task.rows())
                return None
            case CloseSplit():
                self._portions.close()
                return None
            case NextStep(rows):
                self._portions.at_once = rows
                return StepDone(next(self._steps, None))
            case ProcessBlock(block):
                return ProcessDone(0.0, self.reduce_task.process(block))
            case Extract(table):
                return ExtractDone(self.reduce_task.extract(table))
            case ExtractRanges(table, most):
                return RangesExtracted(self.reduce_task.extract_piece(table, most))
            case InstallStates(parts, rows, merges):
                self.reduce_task.keep(rows)
                take_in = self.reduce_task.merge if merges else self.reduce_task.install
                take_in(parts)
                return StatesInstalled()
            case MergeStates(table, parts, number):
                self.reduce_task.merge(parts)
                self._round_table = table
                return MergeDone(self._published(number), 0.0)
            case WriteSnapshot(slot):
                return SnapshotDone(self._archive(slot, self.reduce_task.snapshot()))
            case Finish(parts, ring_table):
                schema = self.reduce_task.finish(parts)
                if ring_table is None or not self.reduce_task.receiver.keeps_states:  # which counts no keys
                    return FinishDone(schema)
                return FinishDone(schema, tuple(self.reduce_task.loads(ring_table).tolist()))
            case Write(schema, is_first):
                self._deliver(schema, is_first)
                return WriteDone()
        raise ProtocolError(f"user code cannot carry out a {type(instruction).__name__}")

    def partial_share(self) -> Reduced:
        """The task's share of the newest round of aggregation; the states stay as they are."""
        assert self._round_table is not None
        return self.reduce_task.preview(self._round_table)

    def _published(self, number: int) -> int:
        """Publish the share of a round of aggregation, if the job does; returns the number of keys published."""
        if self._delivery is None or self._delivery.rounds is None:
            return 0
        return self._delivery.publish(self.partial_share().table, self._index, number)

    def _deliver(self, schema: pa.Schema | None, is_first: bool) -> None:
        if self._delivery is None:
            self.reduce_task.conform(schema)
        else:
            self.output = self._delivery.deliver(self.reduce_task, self._index, schema, is_first=is_first)

    def _open(self, rows: Rows) -> None:
        assert self.emission is not None
        self._portions = Portions(rows)
        self._steps = self.emission.steps(self._portions, self._clock)
