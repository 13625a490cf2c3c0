"""One cut while it is made: where each stage is in it, and what tasks have said."""

from collections.abc import Iterable, Mapping
from enum import Enum

from dpa.protocol.coordinator._results import EpochOutput
from dpa.protocol.coordinator.stage_progress import StageProgress
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.messages.end import LastTable
from dpa.protocol.wire.snapshots import JobSnapshot, OperatorSnapshot, SourceSnapshot


class CutStep(Enum):
    """Where a stage is in a cut. One that emits is quiet next; one that takes records goes through all the others."""

    EMITTING = "emitting"
    """It reads, or emits its result: not all its tasks have paused."""
    DRAINING = "draining"
    """Records of rows before the cut may still come to it, or are not processed."""
    SETTLED = "settled"
    """All of them are processed, and its table is frozen. Windows that it closes may still emit."""
    QUIET = "quiet"
    """It emits nothing more before the cut."""


class StageInCut:
    """One stage.

    Attributes:
        table: its newest one, once that is frozen.
        exchanges: whether its tasks were asked to exchange states, to close windows and to publish.
        awaited: its tasks that have not paused, or have not closed their windows.
    """

    def __init__(self, progress: StageProgress) -> None:
        self.progress = progress
        self.step = CutStep.QUIET if progress.is_done else CutStep.DRAINING
        self.table: LastTable | None = None
        self.exchanges = False
        self.awaited: set[Address] = set()
        if progress.is_emitting:
            self.step, self.awaited = CutStep.EMITTING, {*progress.addresses}


class CutInProgress:
    """It lives from the pause of the sources until they continue, or until its checkpoint is written.

    Attributes:
        epoch: the one that it ends.
        began_at: in seconds.
        slot: of the store's chain, for its checkpoint; None: it makes none.
        publishing: the stages whose results of the epoch are published, and in which outputs.
        draining: those that take records.
        written: what the driver's archive gave for the states of each task.
        checkpoint: what to write, once all states are marked.
    """

    def __init__(
        self,
        epoch: int,
        began_at: float,
        slot: int | None,
        stages: Iterable[StageProgress],
        publishing: dict[StageProgress, list[EpochOutput]],
    ) -> None:
        self.epoch = epoch
        self.began_at = began_at
        self.slot = slot
        self.publishing = publishing
        self.stages = {stage.name: StageInCut(stage) for stage in stages}
        self.draining = self.at(CutStep.DRAINING)
        self.marked: set[Address] = set()
        self.written: dict[Address, object] = {}
        self.checkpoint: JobSnapshot | None = None

    def at(self, step: CutStep) -> list[StageInCut]:
        return [stage for stage in self.stages.values() if stage.step is step]

    @property
    def is_quiet(self) -> bool:
        frozen = all(stage.table is not None for stage in self.draining)
        return frozen and all(stage.step is CutStep.QUIET for stage in self.stages.values())

    def sources(self) -> Mapping[str, SourceSnapshot]:
        return {
            name: SourceSnapshot(
                stage.splits.rest,
                stage.splits.position,
                stage.ledger.read,
                len(stage.roster.members),
                None if stage.splits.given is None else tuple(stage.splits.given),
                stage.cut_at,
            )
            for name, stage in ((name, found.progress) for name, found in self.stages.items())
            if stage.is_source
        }

    def operators(self) -> Mapping[str, OperatorSnapshot]:
        """What each operator stage has made of all records, without the snapshots, which are yet to be written."""
        found = {}
        for stage in self.draining:
            of, last = stage.progress, stage.table
            assert last is not None
            processed, rows = of.ledger.processed, of.results.rows
            found[of.name] = OperatorSnapshot(last.table, {}, processed, of.cut_at, rows, last.rounds)
        return found
