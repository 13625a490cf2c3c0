"""What the states of a task take of its memory stays within its budget, whatever becomes of them: measured in a process
of its own, whose states are five times as large."""

import multiprocessing
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from dpa.checkpoints import CheckpointStore
from dpa.execution.block import Block, object_array
from dpa.execution.receivers import receiver_of
from dpa.execution.reduce_task import ReduceStage, ReduceTask
from dpa.execution.spill.room import Room
from dpa.protocol.checkpointing import Archive
from dpa.protocol.wire.addresses import Address
from experiments.spill import KINDS, measured

BUDGET, LARGER = 16 * 2**20, 1.2
KEYS = 120_000
BLOCK = 2_000


def task_of(kind: str, keys: int, room: Room) -> ReduceTask:
    task = ReduceTask(ReduceStage(receiver_of(KINDS[kind][0]), "key"), 0, room)
    for start in range(0, keys, BLOCK):
        numbers = range(start, start + BLOCK)
        task.process(Block.of(pa.array(numbers), object_array(numbers), 0))
    return task


def checkpoint(task: ReduceTask, directory: Path) -> None:
    chain = CheckpointStore.open(str(directory)).create("job")
    written = Archive(chain.data, Address("sums", 0), pickle.dumps).start_saving(chain.next, task)()
    assert not isinstance(written, str)


def peak(kind: str, directory: Path) -> float:
    """The most memory that was taken by states and by a checkpoint of them, to the budget."""
    found: dict[str, float] = {}
    for name, part in (("warm", 20), ("states", 1)):
        room = Room(BUDGET // part, path=str(directory / "spill"))
        with measured(found, f"reduce {name}"):
            task = task_of(kind, KEYS // part, room)
        with measured(found, name):
            checkpoint(task, directory / "checkpoints" / name)
    assert task.state_use[1] > 0
    return (found["states, MiB"] - found["warm, MiB"]) / (BUDGET / 2**20)


@pytest.mark.parametrize("kind", ["reducer of dicts", "process of dicts"])
def test_the_peak_is_within_a_fifth_of_the_budget(kind: str, tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(peak, (kind, tmp_path)) < LARGER
