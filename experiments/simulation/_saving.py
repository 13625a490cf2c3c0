"""Where a simulated generation's checkpoints are, and what its tasks begin with: in memory, or in a store of
checkpoints, by the code that does so on Ray."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Protocol

from dpa.execution.reduce_task import ReduceTask
from dpa.protocol.checkpointing import Checkpointing
from dpa.protocol.restore import asked, begins_with
from dpa.protocol.task.user_code import Archive, UserCode
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import CheckpointFailed, CheckpointWritten
from dpa.protocol.wire.snapshots import JobSnapshot
from experiments.simulation.job import SimulatedJob


class Saving(Protocol):
    """What a driver does about checkpoints."""

    def archive(self, address: Address) -> Archive:
        """What writes the snapshots of a task."""

    def restore(self, address: Address, code: UserCode) -> None:
        """Let a task's user code begin with its part of the states."""

    def write(self, cut: JobSnapshot) -> CheckpointWritten | CheckpointFailed:
        """Write a checkpoint.

        Raises:
            ClaimLostError: another generation has them.
        """


class KeptCuts(Saving):
    """In memory, pickled: the job can be begun behind any of them."""

    def __init__(self, job: SimulatedJob, seed: int) -> None:
        self._job = job
        self._random = random.Random(f"writes of {seed}")

    def archive(self, address: Address) -> Archive:
        """By slots and tasks that do not matter."""
        return _pickled

    def restore(self, address: Address, code: UserCode) -> None:
        """With those snapshots that the job begins with; not where the task comes while records flow."""
        stage = self._job.graph[address.stage]
        if address.stage in self._job.begins_with and address.index < stage.tasks:
            snapshots, before = self._job.begins_with[address.stage], self._job.before
            stage_before = None if before is None else asked(before[address.stage])[address.stage]
            code.reduce_task.restore(*begins_with(stage, snapshots, address.index, stage_before))

    def write(self, cut: JobSnapshot) -> CheckpointWritten | CheckpointFailed:
        """It may fail, as the job says."""
        if self._random.random() < self._job.write_failures:
            return CheckpointFailed("the disk is full", cut.slot)
        return CheckpointWritten(cut.slot + 1)


class StoredCheckpoints(Saving):
    """In a chain of a store."""

    def __init__(self, checkpointing: Checkpointing) -> None:
        self._checkpointing = checkpointing

    def archive(self, address: Address) -> Archive:
        """By files."""
        return self._checkpointing.beginning(address).archive.start_saving

    def restore(self, address: Address, code: UserCode) -> None:
        """With what is in the files."""
        self._checkpointing.beginning(address).restore(code)

    def write(self, cut: JobSnapshot) -> CheckpointWritten | CheckpointFailed:
        """As a slot of the chain."""
        return self._checkpointing.write(cut, lambda warning: None)


def _pickled(slot: int, task: ReduceTask) -> Callable[[], object]:
    pickled = pickle.dumps(task.snapshot().read())
    return lambda: pickled
