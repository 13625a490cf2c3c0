"""What is said of each epoch that has ended, where the job has a log of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dpa.errors import LateRecordError
from dpa.protocol.coordinator.errors import Errors
from dpa.protocol.coordinator.stage_progress import StageProgress
from dpa.protocol.machine import Machine
from dpa.protocol.wire.epochs import EndedEpoch, StageEpoch
from dpa.protocol.wire.instructions import LogEpoch
from dpa.sources.splits import total_rows


class EndedEpochs:
    """Those of a job; nothing is said where its sources are not logged."""

    def __init__(self, coordinator: Machine, stages: Mapping[str, StageProgress], errors: Errors, read: int) -> None:
        """`read`: rows that were read before the checkpoint with which the job begins."""
        self._coordinator = coordinator
        self._stages = stages
        self._errors = errors
        self._read_before = read
        self._sources = [stage for stage in stages.values() if stage.is_source]
        self._is_logged = any(stage.spec.is_logged for stage in self._sources)
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
        """An epoch has ended at some moment; `publishing`: the stages of which it publishes results."""
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
                    stage.publications.newest_rows if stage in publishing else None,
                )
                for name, stage in self._stages.items()
            },
            splits={stage.name: stage.splits.take_read() for stage in self._sources},
        )
        self._ended_at = at
        self._coordinator.instruct(LogEpoch(ended))
