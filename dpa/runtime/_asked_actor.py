"""What the coordinator's actor does for who asks a running job for something, or how it is."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import ray

from dpa.protocol.coordinator.machine import CoordinatorMachine, CoordinatorState
from dpa.protocol.plan import CancelJob, Request, RunPlan
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import CheckpointFailed, Event, Tick
from dpa.protocol.wire.instructions import Answer
from dpa.protocol.wire.metrics import Snapshot
from dpa.protocol.wire.nodes import TaskProcess
from dpa.runtime._kept_answers import TOO_LATE, KeptAnswers
from dpa.runtime._relay_actor import RelayedActor

if TYPE_CHECKING:
    from dpa.protocol.checkpointing import Checkpointing


class AskedActor(RelayedActor):
    """Answers requests; a job that is to end without a result ends at once, or behind a last checkpoint."""

    _machine: CoordinatorMachine
    _plan: RunPlan

    def __init__(self) -> None:
        super().__init__()
        self._answers = KeptAnswers()
        self._changed = threading.Event()
        self._is_cancelled = False
        self._saving: CancelJob | None = None
        self._processes: dict[Address, TaskProcess] = {}
        self._checkpointing: Checkpointing | None = None
        self._started = 0.0

    @ray.method(concurrency_group="control", num_returns=0)
    def ask(self, request: Request) -> None:
        """Do what a request asks for, or do not; `answers` has the answer."""
        self._answers.expect(request.request)
        if isinstance(request, CancelJob):
            self._cancel(request)
        elif self._started:
            self._shell.post(request)
        else:
            self._answers.keep(Answer(request.request, "the job is starting", refused=True))

    @ray.method(concurrency_group="control")
    def answers(self, requests: Sequence[int]) -> list[Answer]:
        """The answers to these requests, as far as there are any; each is given once."""
        return self._answers.fetched(requests)

    @ray.method(concurrency_group="control")
    def status(self) -> tuple[str, Snapshot, dict[Address, TaskProcess]] | None:
        """The job's name, its statistics without their history, and where its tasks are; None if it has not begun."""
        if not self._started:
            return None
        with self._shell.lock:
            return self._plan.name, self._machine.snapshot(history=False), dict(self._processes)

    def _cancel(self, request: CancelJob) -> None:
        """Have the next `poll` say that the job is cancelled, unless one may have said that it is done; if it is to be
        saved first, once the next checkpoint is written."""
        with self._shell.lock if self._started else nullcontext():
            if self._started and self._machine.state is CoordinatorState.DONE:
                self._answers.keep(Answer(request.request, TOO_LATE, refused=True))
                return
            if request.saves and self._started and self._checkpointing is not None:
                self._end_behind_checkpoint(request)
                return
            # who polls this looks for the answer once more, and then never again
            self._answers.keep(Answer(request.request, "the job ends, and publishes nothing"))
            self._is_cancelled = True
        self._changed.set()

    def _end_behind_checkpoint(self, request: CancelJob) -> None:
        if not self._machine.may_be_cut:
            why = "no checkpoint can be made now, as a stage begins or has all its input"
            self._answers.keep(Answer(request.request, f"{why}; try again, or cancel the job", refused=True))
            return
        self._saving = request
        self._shell.post(Tick(cuts=True))

    def _written(self, event: Event) -> None:
        """End a job that is to end behind a last checkpoint, once that is written."""
        stop, self._saving = self._saving, None
        if stop is None:
            return
        if isinstance(event, CheckpointFailed):
            why = "goes on, as no checkpoint could be written"
            self._answers.keep(Answer(stop.request, f"the job {why}: {event.reason}", refused=True))
        else:
            self._cancel(CancelJob(stop.request))
