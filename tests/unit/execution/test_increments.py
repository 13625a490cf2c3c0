"""What a task has now is what it had when that was written, and the increments behind it."""

import pickle
from typing import Any

import pytest
from builders import receiver, table_giving
from hypothesis import given
from hypothesis import strategies as st
from test_receivers import EXAMPLES, blocks_of, rows_of
from test_timers import SECOND, Alarms, block

from dpa.execution.receivers._process import ProcessReceiver
from dpa.execution.receivers._record import RecordReceiver
from dpa.execution.receivers.base import Receiver
from dpa.execution.reduce_task import ReduceStage, ReduceTask
from dpa.execution.snapshots import TaskSnapshot, folded

STEPS = st.sampled_from(["process", "process", "write", "write", "give", "take", "read"])


@pytest.mark.parametrize("kind", [RecordReceiver, ProcessReceiver])
@given(data=st.data(), steps=st.lists(STEPS, min_size=3, max_size=15))
def test_a_snapshot_and_increments_are_what_a_task_has(
    kind: type[Receiver], data: st.DataObject, steps: list[str]
) -> None:
    """Whatever it takes in, gives away and takes back between them."""
    made = receiver(EXAMPLES[kind])
    stage, task = ReduceStage(made, "key"), ReduceTask(ReduceStage(made, "key"), 0)
    task.process(blocks_of([f"key {number}" for number in range(12)], [0])[0])
    chain: list[list[TaskSnapshot]] = [pickle.loads(pickle.dumps([*task.snapshot().slices(5)]))]
    task.mark()
    away: list[Any] = []
    for step in [*steps, "read"]:
        match step:
            case "process":
                numbers = data.draw(st.lists(st.integers(0, 15), min_size=1, max_size=3))
                task.process(blocks_of([f"key {number}" for number in numbers], [0])[0])
            case "give":
                gone = data.draw(st.sets(st.integers(0, 15), min_size=1, max_size=4))
                away += task.extract(
                    table_giving({f"key {number}": int(number in gone) for number in range(16)})
                ).values()
            case "take":
                task.merge([away.pop()] if away and made.can_merge else [])
            case _:
                increment = task.increment()
                found = increment or task.snapshot()
                written = [*(chain if increment else ()), pickle.loads(pickle.dumps([*found.slices(5)]))]
                if step == "write":
                    chain = written
                    task.mark()
                    continue
                again = ReduceTask(stage, 0)
                again.restore(folded(reversed(written)), None)
                whole = ReduceTask(stage, 0)
                whole.restore(pickle.loads(pickle.dumps([task.snapshot()])), None)
                for each in (again, whole):
                    each.finish()
                    each.conform(None)
                assert rows_of(made, [again.share]) == rows_of(made, [whole.share])
                assert again.share.records.sum() == whole.share.records.sum()


def test_what_timers_have_changed_is_in_an_increment() -> None:
    made = receiver(Alarms())
    task = ReduceTask(ReduceStage(made, ()), 0)
    task.process(block([(f"key {number}", 10) for number in range(8)] + [("early", 3), ("gone", 1)]))
    task.mark()
    task.close(3 * SECOND)
    increment = task.increment()
    assert increment is not None and increment.part is not None and increment.gone is not None
    assert (increment.part.keys.to_pylist(), increment.part.states) == (["early"], [[7]])
    assert increment.gone.keys.to_pylist() == ["gone"]
