"""What tasks write in slot after slot is what they begin with, whatever of the storage fails in between."""

import pickle
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from builders import receiver, table_giving
from hypothesis import given, settings
from hypothesis import strategies as st

from dpa import Process, Reducer
from dpa.checkpoints import CheckpointStore, TaskParts
from dpa.errors import CheckpointError
from dpa.execution.block import Block
from dpa.execution.reduce_task import ReduceStage, ReduceTask
from dpa.execution.spill.room import Room
from dpa.protocol.checkpointing import Archive, read_snapshots
from dpa.protocol.wire.addresses import Address
from dpa.routing.table import RoutingTable
from experiments.simulated_jobs._files import SimulatedFiles

KEYS = [f"key {number}" for number in range(24)]
State = dict[int, int]


class Counts(Reducer[State, int]):
    """How often each value came of a key, in a state that changes in place."""

    def zero(self) -> State:
        return {}

    def reduce(self, state: State, value: int) -> State:
        state[value] = state.get(value, 0) + 1
        return state

    def merge(self, left: State, right: State) -> State:
        for value, times in right.items():
            left[value] = left.get(value, 0) + times
        return left


class CountsAlone(Counts):
    """The same without a merge."""

    merge = Reducer.merge


class Counting(Process[State, int]):
    """The same as a process."""

    def zero(self) -> State:
        return {}

    def process(self, key: str, state: State, value: int) -> tuple[State, list[dict[str, Any]]]:
        return {**state, value: state.get(value, 0) + 1}, []


class World:
    """Some tasks of one stage, the chain that they write to, and what they must have."""

    def __init__(self, executor: Any, draw: random.Random) -> None:
        made = receiver(executor)
        self.stage = ReduceStage(made, "key" if made.gives_key else ())
        self.draw = draw
        self.room = draw.choice([None, None, None, Room(1), Room(20_000)])
        self.files = SimulatedFiles(draw)
        self.files.late = 0.3
        self.store = CheckpointStore(self.files)
        self.chain = self.store.create("job")
        self.model: dict[str, State] = {}
        self.begin(2)

    def begin(self, tasks: int) -> None:
        """A new generation of empty tasks."""
        self.table = self.any_table(tasks)
        self.tasks = [ReduceTask(self.stage, index, self.room) for index in range(tasks)]
        self.archives = [Archive(self.chain.data, Address("s", index), pickle.dumps) for index in range(tasks)]

    def any_table(self, tasks: int) -> RoutingTable:
        return table_giving({key: self.draw.randrange(tasks) for key in KEYS})

    def process(self) -> None:
        count = self.draw.choice([1, 2, 5, 40])
        rows = [(self.draw.choice(KEYS), self.draw.randrange(3)) for _ in range(count)]
        values = np.array([value for _, value in rows], dtype=object)
        block = Block.of(pa.array([key for key, _ in rows]), values, 0, 0)
        for owner, own in block.by_key(self.table.owners_of(block.hashes)):
            self.tasks[owner].process(own)
        for key, value in rows:
            state = self.model.setdefault(key, {})
            state[value] = state.get(value, 0) + 1

    def move(self) -> None:
        """Some keys get other owners, and may come back with the next move."""
        self.table = self.any_table(len(self.tasks))
        for parts in [task.extract(self.table) for task in self.tasks]:
            for owner, part in parts.items():
                self.tasks[owner].install([pickle.loads(pickle.dumps(part))])

    def checkpoint(self, failures: float = 0.0) -> None:
        """All mark what they have for the next slot, and write it, perhaps while more comes; what they wrote is
        committed and collected, as far as the storage works."""
        self.files.failures = failures
        slot, model = self.chain.next, pickle.dumps(self.model)
        writes = [archive.start_saving(slot, task) for archive, task in zip(self.archives, self.tasks, strict=True)]
        if self.draw.random() < 0.5:
            self.process()
        written = [write() for write in writes]
        done = [each for each in written if not isinstance(each, str)]
        try:
            if len(done) == len(written) and self.draw.random() < 0.9:  # else another task has failed
                tasks = [TaskParts("s", index, each) for index, each in enumerate(done)]
                known = self.chain.data.write(slot, "coordinator", [model])
                self.chain.commit(epoch=slot, coordinator=known, tasks=tasks, records=0, seconds=0.0)
                self.chain.collect(self.draw.choice([1, 2]))
        except CheckpointError:
            pass  # it may be there nevertheless
        self.files.failures = 0.0

    def roll_back(self) -> None:
        """Begin with the newest checkpoint, in any number of tasks."""
        self.chain = self.store.chain(self.chain.job)
        found = self.chain.claim()
        self.begin(self.draw.choice([1, 2, 3]))
        self.model = {} if found is None else pickle.loads(self.chain.data.read(found.coordinator))
        files = [] if found is None else [[part.file for part in task.parts] for task in found.tasks]
        for task in self.tasks:
            task.restore(read_snapshots(self.chain.data, files), self.table)
        self.check()

    def check(self) -> None:
        found: dict[str, State] = {}
        for part in (part for task in self.tasks for part in task.snapshot().parts()):
            assert isinstance(part.states, list)
            for key, state in zip(part.keys.to_pylist(), part.states, strict=True):
                whole = found.setdefault(key, {})
                for value, times in state.items():
                    whole[value] = whole.get(value, 0) + times
        assert found == self.model


@pytest.mark.parametrize("executor", [Counts(), CountsAlone(), Counting()])
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32), steps=st.lists(st.sampled_from("ppppmccccfr"), min_size=5, max_size=40))
def test_a_job_begins_with_what_its_newest_checkpoint_has_whatever_has_failed(
    executor: Any, seed: int, steps: list[str]
) -> None:
    world = World(executor, random.Random(seed))
    for step in [*steps, "r"]:
        match step:
            case "p":
                world.process()
            case "m":
                world.move()
            case "c":
                world.checkpoint()
            case "f":
                world.checkpoint(failures=0.3)
            case _:
                world.check()
                world.roll_back()
