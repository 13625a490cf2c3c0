"""What a cut has of each stage: the coordinator's view."""

from __future__ import annotations

from dpa.protocol.coordinator.stage_progress import StageProgress
from dpa.protocol.wire.cut import OperatorCut, SourceCut
from dpa.protocol.wire.messages.end import LastTable


def source_cut(stage: StageProgress) -> SourceCut:
    """What a source has read."""
    return SourceCut(
        stage.splits.rest,
        stage.splits.position,
        stage.ledger.read,
        len(stage.members),
        None if stage.splits.given is None else tuple(stage.splits.given),
        stage.cut_at,
    )


def operator_cut(stage: StageProgress, last: LastTable) -> OperatorCut:
    """What an operator stage has made of all records, but for the snapshots, which are yet to be written; `last`: its
    newest table."""
    return OperatorCut(last.table, {}, stage.ledger.processed, stage.cut_at, stage.publications.rows, last.rounds)
