"""Splits that are granted, given back and granted again."""

from itertools import accumulate

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dpa.protocol.coordinator._split_queue import SplitQueue
from dpa.protocol.graph import StageInput
from dpa.sources.splits import MemorySplit

NOBODY: frozenset[int] = frozenset()


def split(*rows: int) -> MemorySplit:
    return MemorySplit(pa.table({"n": pa.array(rows, pa.int64())}))


def queue_of(*splits: MemorySplit) -> SplitQueue:
    return SplitQueue(StageInput(splits))


def rows_of(read: object) -> list[int]:
    assert isinstance(read, MemorySplit)
    return list(read.table["n"].to_pylist())


def test_splits_are_granted_in_order_and_then_none() -> None:
    first, second = split(1), split(2)
    queue = queue_of(first, second)
    for task in (1, 0, 1):
        queue.asks(task)
    assert queue.grants([0, 1], NOBODY) == [(1, first), (0, second), (1, None)]


def test_the_rest_of_a_split_is_granted_next() -> None:
    queue = queue_of(split(1, 2, 3), split(4))
    queue.asks(0)
    queue.grants([0, 1], NOBODY)
    queue.gives_back(0, read=1)
    for task in (0, 1, 2):
        queue.asks(task)
    (leaver, nothing), (member, other) = queue.grants([1, 2], {0})
    assert (leaver, nothing, member) == (0, None, 1) and rows_of(other) == [4]
    queue.left(0)
    [(member, rest)] = queue.grants([1, 2], {0})
    assert member == 2 and rows_of(rest) == [2, 3]


def test_who_takes_the_place_of_the_only_reader_waits_until_all_before_is_processed() -> None:
    queue = queue_of(split(1, 2), split(3))
    queue.asks(0)
    queue.grants([0], NOBODY)
    queue.asks(1)
    assert queue.grants([1], {0}) == []
    queue.gives_back(0, read=1)
    queue.asks(0)
    assert queue.grants([1], {0}) == [(0, None)]
    queue.left(0)
    [(task, rest)] = queue.grants([1], {0})
    assert task == 1 and rows_of(rest) == [2]


def test_who_asks_waits_while_a_task_that_leaves_may_give_something_back() -> None:
    queue = queue_of(split(1, 2))
    queue.asks(0)
    queue.grants([0, 1], NOBODY)
    queue.asks(1)
    assert queue.grants([1], {0}) == []
    queue.asks(0)
    assert queue.grants([1], {0}) == [(1, None), (0, None)], "it has read all"


def test_what_was_given_back_is_read_though_its_reader_has_left_and_the_others_have_ended() -> None:
    queue = queue_of(split(1, 2), split(3, 4))
    for task in (1, 2, 0):
        queue.asks(task)
    queue.grants([0, 1, 2], NOBODY)  # nothing is left for 0
    queue.gives_back(2, read=1)
    queue.asks(2)
    assert queue.grants([0, 1], {2}) == [(2, None)], "1 reads, and will ask"
    queue.left(2)
    queue.asks(1)
    [(task, rest)] = queue.grants([0], {1})
    assert task == 1 and rows_of(rest) == [4] and not queue.is_read
    queue.asks(1)
    assert queue.grants([0], {1}) == [(1, None)] and queue.is_read


def test_a_split_that_was_read_to_its_end_does_not_come_back() -> None:
    queue = queue_of(split(1, 2))
    queue.asks(0)
    queue.grants([0, 1], NOBODY)
    queue.gives_back(0, read=2)
    queue.asks(1)
    assert queue.grants([1], {0}) == [(1, None)]


class Readers:
    """So many tasks, and those that take the place of one that leaves."""

    def __init__(self, queue: SplitQueue, tasks: int) -> None:
        self.queue = queue
        self.there, self.leaving, self.newest = list(range(tasks)), frozenset[int](), tasks - 1
        self.reading: dict[int, list[int]] = {}
        self.waiting: set[int] = set()
        self.told: set[int] = set()
        self.read: list[int] = []

    @property
    def busy(self) -> list[int]:
        return sorted({*self.there, *self.leaving} - self.told - self.waiting)

    def ask(self, task: int) -> None:
        self.waiting.add(task)
        self.queue.asks(task)
        self.take_grants()
        for gone in self.leaving & self.told:
            self.queue.left(gone)
            self.take_grants()
            self.leaving -= {gone}

    def take_grants(self) -> None:
        for to, granted in self.queue.grants(self.there, self.leaving):
            self.waiting.discard(to)
            if granted is None:
                self.told.add(to)
            else:
                self.reading[to] = rows_of(granted)

    def finish(self, task: int) -> None:
        self.read += self.reading.pop(task, [])
        self.ask(task)

    def leave(self, task: int, after: int, *, replaced: bool) -> None:
        """This one stops after so many rows of its split; a new one may come in its place."""
        self.newest += replaced
        self.there = [*(one for one in self.there if one != task), *([self.newest] if replaced else [])]
        self.leaving = frozenset([task])
        self.read += self.reading.pop(task)[:after]
        self.queue.gives_back(task, after)
        self.ask(task)


@given(st.lists(st.integers(1, 5), max_size=6), st.integers(1, 3), st.data())
def test_every_row_is_read_once_and_by_a_single_reader_in_order(
    sizes: list[int], tasks: int, data: st.DataObject
) -> None:
    ends = list(accumulate(sizes))
    splits = [split(*range(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
    readers = Readers(queue_of(*splits), tasks)
    while busy := readers.busy:
        task = data.draw(st.sampled_from(busy))
        rows = len(readers.reading.get(task, []))
        if rows and task in readers.there and not readers.leaving and data.draw(st.booleans()):
            replaced = len(readers.there) == 1 or data.draw(st.booleans())
            readers.leave(task, data.draw(st.integers(0, rows)), replaced=replaced)
        else:
            readers.finish(task)
    assert readers.queue.is_read and not readers.waiting and sorted(readers.read) == list(range(sum(sizes)))
    assert tasks > 1 or readers.read == sorted(readers.read)


def test_what_was_read_is_noted_once_in_the_order_of_the_input() -> None:
    queue = SplitQueue(StageInput((split(1, 2, 3), split(4, 5), split(6)), is_logged=True))
    for task in (0, 1):
        queue.asks(task)
    queue.grants([0, 1], NOBODY)
    queue.asks(1)
    queue.grants([0, 1], NOBODY)
    queue.pauses(0, read=2)
    queue.pauses(1, read=0)
    assert read_of(queue) == [1, 2, 4, 5]
    for task in (0, 1):
        queue.asks(task)
    queue.grants([0, 1], NOBODY)
    for task in (1, 0):
        queue.asks(task)
    assert read_of(queue) == [3, 6] and read_of(queue) == []
    assert queue_of(split(1)).take_read() == ()


def read_of(queue: SplitQueue) -> list[int]:
    return [n for read in queue.take_read() for batch in read.batches(10) for n in batch.column("n").to_pylist()]
