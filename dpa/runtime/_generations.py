"""A job on Ray that survives the death of any of its processes: its generations, one after the other."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from dpa.errors import ConfigError, JobFailedError
from dpa.protocol.plan import RunHooks, RunOutcome, RunPlan
from dpa.protocol.recovery import Recoveries, TaskDiedError
from dpa.protocol.wire.instructions import Answer
from dpa.protocol.wire.nodes import Place
from dpa.runtime._kept_answers import RESTARTED, TOO_LATE
from dpa.runtime.cluster import alive_nodes, is_of_this_process
from dpa.runtime.launch import POLL_SECONDS, Launched, run_on
from dpa.runtime.named_jobs import free_name, named
from dpa.telemetry.mailbox import Mailbox

if TYPE_CHECKING:
    from dpa.runtime._checkpointing import SavedJob

_log = logging.getLogger(__name__)


class Generations:
    """A context with the actors of a job, whatever dies of them. Whatever ends the block ends its actors."""

    def __init__(self, tasks: int, place: Place | None, job: str) -> None:
        """Start the actors of the first generation.

        Args:
            tasks: of all stages.
            place: says on which nodes they are to be; None: Ray spreads them.
            job: its name, by which its coordinator can be found on a Ray that this process has not started.
        """
        self._tasks, self._place = tasks, place
        self._name = None if is_of_this_process() else free_name(job)
        self._ending: list[Launched] = []
        self._needless: SavedJob | None = None
        self._launched = self._launch(0)

    def __enter__(self) -> Generations:
        return self

    def __exit__(self, *raised: object) -> None:
        for launched in (self._launched, *self._ending):
            launched.end(TOO_LATE)
        if self._needless is not None:
            self._launched.wait_for_end()  # a checkpoint that is being written would stay behind
            self._needless.remove(_log.warning)

    def run(self, plan: RunPlan, hooks: RunHooks, mailbox: Mailbox | None) -> RunOutcome:
        """Run a plan to its end.

        Raises:
            JobFailedError: user code failed, or more processes died, one after the other, than the plan bears.
            JobCancelledError: a request asked for it.
            CheckpointError: checkpoints cannot be written or read where they are to be.
        """
        recoveries, until, saved = Recoveries(plan.recovery), 0.0, None
        if plan.checkpoint is not None:
            from dpa.runtime._checkpointing import SavedJob

            saved = SavedJob.create(plan.name, plan.checkpoint)
        while True:
            try:
                self._wait(until, mailbox)
                generation = replace(plan, generation=recoveries.generation)
                outcome = run_on(self._launched, generation, hooks, mailbox, saved)
                self._needless = saved
                return outcome
            except TaskDiedError as error:
                death = replace(error.death, generation=recoveries.generation, at=time.time())
            wait = recoveries.after(death)
            if wait is None:
                raise JobFailedError(recoveries.in_words(), self._launched.last_events())
            until = time.monotonic() + wait
            try:
                self._replace(recoveries.generation, mailbox)
            except ConfigError as error:
                raise JobFailedError(f"{death.in_words()}; the job cannot be begun again: {error}") from error
            hooks.restart(death)

    def _wait(self, until: float, mailbox: Mailbox | None) -> None:
        """Wait until a moment on the monotonic clock, or until the job is cancelled, or the coordinator dies."""
        while (left := until - time.monotonic()) > 0:
            self._launched.poll(min(left, POLL_SECONDS), mailbox)

    def _replace(self, generation: int, mailbox: Mailbox | None) -> None:
        """Start the next generation's actors, and end those of this one meanwhile."""
        dying = self._launched
        self._ending.append(dying)
        dying.begin_end(RESTARTED)
        self._launched = self._launch(generation)
        if mailbox is not None:
            for request in mailbox.waiting:
                mailbox.answer(Answer(request, RESTARTED, refused=True))
        dying.end(RESTARTED)
        dying.wait_for_end()
        self._ending.remove(dying)

    def _launch(self, generation: int) -> Launched:
        placed = None if self._place is None else self._place(alive_nodes())
        return Launched(self._tasks, placed, None if self._name is None else named(self._name, generation))
