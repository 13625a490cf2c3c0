"""What a task has at a cut is what is written of it, whatever it does meanwhile: all, or increments behind that."""

import pickle
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from builders import receiver, table_giving
from hypothesis import given
from hypothesis import strategies as st
from test_receivers import EXAMPLES, blocks_of, rows_of
from test_timers import SECOND, Alarms, block

from dpa.execution import snapshots
from dpa.execution.receivers._process import ProcessReceiver
from dpa.execution.receivers._record import RecordReceiver
from dpa.execution.receivers.base import Receiver
from dpa.execution.receivers.batch import BatchReceiver
from dpa.execution.reduce_task import ReduceStage, ReduceTask
from dpa.execution.snapshots import TaskSaving, TaskSnapshot, folded

STEPS = st.sampled_from(["process", "process", "cut", "cut", "sweep", "give", "take"])
NUMBERS = st.lists(st.integers(0, 15), min_size=1, max_size=3)


@pytest.fixture(autouse=True)
def few_keys_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "_KEYS", 2)


class Written:
    """What is written at a cut, behind what was written before; and what the task had then, pickled at once."""

    def __init__(self, task: ReduceTask, before: list[list[bytes]]) -> None:
        self.had = pickle.dumps([task.snapshot()])
        self.saving = task.start_saving(pickle.dumps, nullcontext(), increment=bool(before))
        self.chain: list[list[bytes]] = [*(before if self.saving.is_increment else ()), []]
        self._pieces: Iterator[bytes] = self.saving.pieces()
        self.is_over = False
        while not self.saving.goes_on and not self.is_over:
            self.sweep()

    def sweep(self) -> None:
        piece = next(self._pieces, None)
        if piece is None:
            self.saving.end()
            self.is_over = True
        else:
            self.chain[-1].append(piece)

    def check(self, stage: ReduceStage) -> None:
        again, whole = ReduceTask(stage, 0), ReduceTask(stage, 0)
        again.restore(folded([pickle.loads(piece) for piece in pieces] for pieces in reversed(self.chain)), None)
        whole.restore(pickle.loads(self.had), None)
        for each in (again, whole):
            each.finish()
            each.conform(None)
        assert rows_of([again.share]) == rows_of([whole.share])
        assert again.share.records.sum() == whole.share.records.sum()


@pytest.mark.parametrize("kind", [RecordReceiver, ProcessReceiver, BatchReceiver])
@given(data=st.data(), steps=st.lists(STEPS, min_size=3, max_size=25))
def test_what_is_written_is_what_a_task_had_at_the_cut(
    kind: type[Receiver], data: st.DataObject, steps: list[str]
) -> None:
    """Whatever it takes in, gives away and takes back before and behind it, while pieces are taken."""
    made = receiver(EXAMPLES[kind])
    stage, task = ReduceStage(made, "key"), ReduceTask(ReduceStage(made, "key"), 0)

    def process(numbers: Any) -> None:
        task.process(blocks_of([f"key {number}" for number in numbers], [0])[0])

    process(range(12))
    written, away = Written(task, []), list[Any]()
    for step in [*steps, "cut", *steps[:4], "cut"]:
        match step:
            case "process":
                process(data.draw(NUMBERS))
            case "give":
                gone = data.draw(st.sets(st.integers(0, 15), min_size=1, max_size=4))
                away += task.extract(
                    table_giving({f"key {number}": int(number in gone) for number in range(16)})
                ).values()
            case "take":
                task.merge([away.pop()] if away and made.can_merge else [])
            case "sweep" if not written.is_over:
                written.sweep()
            case "cut":
                while not written.is_over:
                    written.sweep()
                written.check(stage)
                written = Written(task, written.chain)


@pytest.mark.parametrize("kind", [RecordReceiver, ProcessReceiver, BatchReceiver])
def test_a_task_may_end_before_all_is_written(kind: type[Receiver]) -> None:
    made = receiver(EXAMPLES[kind])
    stage, task = ReduceStage(made, "key"), ReduceTask(ReduceStage(made, "key"), 0)
    task.process(blocks_of([f"key {number}" for number in range(12)], [0])[0])
    written = Written(task, [])
    task.finish()
    while not written.is_over:
        written.sweep()
    written.check(stage)


def test_what_timers_have_changed_is_in_an_increment() -> None:
    task = ReduceTask(ReduceStage(receiver(Alarms()), ()), 0)
    task.process(block([(f"key {number}", 10) for number in range(8)] + [("early", 3), ("gone", 1)]))
    before = Written(task, [])
    task.close(4 * SECOND)
    while not before.is_over:
        before.sweep()
    states = {key: state for pieces in before.chain for piece in pieces for key, state in of(pickle.loads(piece))}
    assert states.keys() == {*(f"key {number}" for number in range(8)), "early", "gone"}
    after = Written(task, before.chain)
    [head, *parts] = map(pickle.loads, TaskSaving.pieces(after.saving))
    assert {key: state for part in parts for key, state in of(part)} == {"early": [7]}
    assert head.gone.keys.to_pylist() == ["gone"]
    assert states["early"] != [7], "as it was at the cut"


def of(found: TaskSnapshot) -> list[tuple[Any, Any]]:
    if found.part is None:
        return []
    assert isinstance(found.part.states, list)
    return [*zip(found.part.keys.to_pylist(), found.part.states, strict=True)]
