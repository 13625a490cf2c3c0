"""What every kind of receiver keeps to. A kind is a file, its name in `KINDS`, and an example here."""

import pickle
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from builders import Total, key_lists, receiver, tables, written
from hypothesis import given
from hypothesis import strategies as st

from dpa.aggregates import Sum, TopRows
from dpa.execution.block import Block
from dpa.execution.keys import column_of
from dpa.execution.receivers import KINDS, receiver_of
from dpa.execution.receivers._join import JoinReceiver
from dpa.execution.receivers._process import ProcessReceiver
from dpa.execution.receivers._record import RecordReceiver
from dpa.execution.receivers.base import Receiver
from dpa.execution.receivers.batch import BatchReceiver, RowsReceiver
from dpa.execution.reduce_task import ReduceStage, ReduceTask
from dpa.execution.rows import plain
from dpa.execution.states import Reduced
from dpa.executors import Process
from dpa.operators import JoinOptions
from dpa.routing.keys import Key


class CountsThem(Process[int, int]):
    """Emits how many values a key had, at the end."""

    def zero(self) -> int:
        return 0

    def process(self, key: Any, state: int, value: int) -> tuple[int, Iterable[dict[str, Any]]]:
        return state + 1, []

    def finish(self, key: Any, state: int) -> Iterable[dict[str, Any]]:
        return [{"of": key, "values": state}]


EXAMPLES: dict[type[Receiver], Any] = {
    RecordReceiver: Total(),
    BatchReceiver: Sum(),
    RowsReceiver: TopRows(2, "value"),
    ProcessReceiver: CountsThem(),
    JoinReceiver: JoinOptions("full", (("key",), ("key",)), (pa.schema({"value": pa.int64()}),) * 2),
}
"""An executor of each kind; its values are numbers, in the column `value`."""

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def blocks_of(keys: list[Key], sides: Iterable[int]) -> list[Block]:
    values = pa.record_batch({"value": pa.array(range(len(keys)), pa.int64())})
    return [Block.of(column_of(keys, "key"), values, 0, side) for side in sides]


def rows_of(shares: list[Reduced]) -> Counter[str]:
    return Counter(repr(row) for share in shares for row in plain(share.table).to_pylist())


@every_kind
def test_an_executor_is_of_the_first_kind_that_takes_it(kind: type[Receiver]) -> None:
    made = receiver_of(EXAMPLES[kind])
    assert type(made) is kind
    assert type(pickle.loads(pickle.dumps(made))) is kind
    assert made.does("tag") != made.does("")


@every_kind
@given(data=st.data(), keys=key_lists(least=1, composite=False))
def test_tasks_go_on_with_a_snapshot_as_the_one_would_that_made_it(
    kind: type[Receiver], data: Any, keys: list[Key]
) -> None:
    """Two tasks begin with what one had, in slices, by a table or by their numbers."""
    made, table = receiver(EXAMPLES[kind]), data.draw(tables(reducers=2))
    stage, before = ReduceStage(made, "key"), data.draw(st.integers(0, len(keys)))
    whole, first = ReduceTask(stage, 0), ReduceTask(stage, 0)
    for task in (whole, first):
        for block in blocks_of(keys[:before], range(1 + made.has_sides)) if before else ():
            task.process(block)
    snapshot = written(first)
    tasks = [ReduceTask(stage, 0), ReduceTask(stage, 1)]
    by_table = data.draw(st.booleans())
    for task, own in zip(tasks, (snapshot, []), strict=True):
        task.restore(*((snapshot, table) if by_table else (own, None)))
    for block in blocks_of(keys[before:], range(1 + made.has_sides)) if before < len(keys) else ():
        whole.process(block)
        for owner, part in block.by_key(table.owners_of(block.hashes)) if by_table else [(0, block)]:
            tasks[owner].process(part)
    for task in (whole, *tasks):
        task.finish()
        task.conform(None)
    assert rows_of([task.share for task in tasks]) == rows_of([whole.share])
    assert sum(int(task.share.records.sum()) for task in tasks) == int(whole.share.records.sum())
