"""A job on Ray that survives the death of any of its processes: one generation runs after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dpa.errors import CheckpointError, ConfigError, JobFailedError
from dpa.protocol.plan import RunHooks, RunOutcome, RunPlan
from dpa.protocol.recovery import Recoveries, TaskDiedError
from dpa.protocol.wire.instructions import Answer
from dpa.protocol.wire.nodes import Place
from dpa.runtime._answers import RESTARTED, TOO_LATE
from dpa.runtime._kept_processes import KeptProcesses
from dpa.runtime._machines import ENDED, Machines
from dpa.runtime.cluster import is_of_this_process
from dpa.runtime.launch import POLL_SECONDS, Launched
from dpa.runtime.named_jobs import free_name, named
from dpa.telemetry.mailbox import Mailbox

if TYPE_CHECKING:
    from dpa.checkpoints import CheckpointStore


class Generations:
    """A context with the actors of a job. Its end ends them."""

    def __init__(self, tasks: int, place: Place | None, job: str) -> None:
        """Start the actors of the first generation, for this number of tasks of stages. `place` chooses their nodes;
        None: Ray spreads them. On a Ray of others, requests find the coordinator by the `job`'s name."""
        self._tasks, self._place = tasks, place
        self._name = None if is_of_this_process() else free_name(job)
        self._writes = False
        self._machines = Machines()
        self._machines.check()
        self._launched = self._launch(0)

    def __enter__(self) -> Generations:
        return self

    def __exit__(self, *raised: object) -> None:
        self._launched.end(TOO_LATE)
        self._machines.end()
        if self._writes:
            self._launched.wait_for_end()  # a checkpoint that is being written would stay behind those that are removed

    def run(self, plan: RunPlan, hooks: RunHooks, mailbox: Mailbox | None) -> RunOutcome:
        """Run a plan to its end. JobFailedError if user code failed, or more processes died, one after the other, than
        the plan bears; JobCancelledError if a request asked for that; CheckpointError if checkpoints cannot be
        read."""
        recoveries, until, store = Recoveries(plan.recovery), 0.0, None
        if plan.saved is not None:
            from dpa.checkpoints import CheckpointStore

            store, recoveries.generation = CheckpointStore.open(plan.saved.options.path), plan.saved.generation
            self._writes = True
        newest = _newest(store, plan)
        while True:
            try:
                self._wait(until, mailbox)
                generation = replace(
                    plan,
                    generation=recoveries.generation,
                    tries=recoveries.suspects,
                    attempts_left=recoveries.attempts_left,
                )
                return self._launched.run(generation, hooks, mailbox, store, self._machines)
            except TaskDiedError as error:
                death = replace(error.death, generation=recoveries.generation, at=time.time())
            for machine in self._machines.check():
                if machine == death.node:
                    death = replace(death, cause=f"its machine is lost: {ENDED}")
                else:
                    hooks.warn(f"the machine {machine} is left out: {ENDED}")
            before, newest = newest, max(newest, _newest(store, plan))
            wait = recoveries.after(death, has_progressed=newest > before)
            if wait is None:
                raise JobFailedError(recoveries.in_words(), self._launched.last_events())
            until, waits = time.monotonic() + wait, recoveries.waits()
            try:
                _tried(partial(self._replace, recoveries.generation, mailbox), waits)
            except ConfigError as error:
                raise JobFailedError(f"{death.in_words()}; the job cannot be begun again: {error}") from error
            _tried(partial(hooks.restart, death), waits)

    def _wait(self, until: float, mailbox: Mailbox | None) -> None:
        """Wait until a moment on the monotonic clock. JobCancelledError and TaskDiedError as of `Launched.poll`."""
        while (left := until - time.monotonic()) > 0:
            self._launched.poll(min(left, POLL_SECONDS), mailbox)

    def _replace(self, generation: int, mailbox: Mailbox | None) -> None:
        """Let the processes that live be of the next generation, start others for the dead, and end the rest."""
        dying = self._launched
        kept = dying.freed(generation, self._machines.avoided(), self._machines.lost)
        try:
            self._launched = self._launch(generation, kept)
        except BaseException:
            kept.end_spares()
            raise
        finally:
            kept.end_others()
        if mailbox is not None:
            for request in mailbox.waiting:
                mailbox.answer(Answer(request, RESTARTED, refused=True))
        dying.wait_for_end(kept.taken)

    def _launch(self, generation: int, kept: KeptProcesses | None = None) -> Launched:
        placed = None if self._place is None else self._place(self._machines.usable())
        return Launched(self._tasks, placed, None if self._name is None else named(self._name, generation), kept)


def _tried(begin: Callable[[], object], waits: Iterator[float]) -> None:
    """Do this, again after each of these waits in seconds: a lost machine, or the place of a result, may come back."""
    for wait in waits:
        try:
            begin()
        except (ConfigError, JobFailedError):
            time.sleep(wait)
        else:
            return
    begin()


def _newest(store: CheckpointStore | None, plan: RunPlan) -> int:
    """The number of a job's newest checkpoint; -1 if there is none, or it cannot be read."""
    if store is None or plan.saved is None:
        return -1
    try:
        found = store.chain(plan.saved.job).newest()
    except CheckpointError:  # the coordinator, which reads it next, reports why
        return -1
    return -1 if found is None else found.number
