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


class Readers:
    """So many tasks, and those that take the place of one that leaves: it stops later than the others know of it, and
    what it has emitted is processed later still."""

    def __init__(self, queue: SplitQueue, tasks: int) -> None:
        self.queue = queue
        self.there, self.newest = list(range(tasks)), tasks - 1
        self.leaver: int | None = None
        self.may_go_on = False
        self.reading: dict[int, list[int]] = {}
        self.emitted: dict[int, list[int]] = {}
        self.waiting: set[int] = set()
        self.told: set[int] = set()
        self.processed: list[int] = []

    @property
    def tasks(self) -> set[int]:
        return {*self.there} if self.leaver is None else {*self.there, self.leaver}

    @property
    def busy(self) -> set[int]:
        return self.tasks - self.told - self.waiting

    def ask(self, task: int) -> None:
        self.waiting.add(task)
        self.queue.asks(task)
        self.take_grants()

    def take_grants(self) -> None:
        for to, granted in self.queue.grants(self.there, NOBODY if self.leaver is None else {self.leaver}):
            self.waiting.discard(to)
            if granted is None:
                self.told.add(to)
            else:
                assert to != self.leaver or self.may_go_on, "others had not heard that there is no more"
                self.reading[to] = rows_of(granted)
                assert self.reading[to]

    def process(self, task: int) -> None:
        self.processed += self.emitted.pop(task, [])

    def finish(self, task: int) -> None:
        self.emitted.setdefault(task, []).extend(self.reading.pop(task, []))
        self.ask(task)

    def begin_to_leave(self, task: int, *, replaced: bool) -> None:
        """A new one may come in its place."""
        self.newest += replaced
        self.there = [*(one for one in self.there if one != task), *([self.newest] if replaced else [])]
        self.leaver, self.may_go_on = task, self.told.issuperset(self.there)
        self.take_grants()

    def stop(self, after: int) -> None:
        """The one that leaves stops after so many rows of its split."""
        assert self.leaver is not None
        self.emitted.setdefault(self.leaver, []).extend(self.reading.pop(self.leaver)[:after])
        self.queue.gives_back(self.leaver, after)
        self.ask(self.leaver)

    def leave(self) -> None:
        assert self.leaver is not None
        self.process(self.leaver)
        self.queue.left(self.leaver)
        self.take_grants()
        self.leaver = None
        self.take_grants()


@given(st.lists(st.integers(1, 5), max_size=6), st.integers(1, 3), st.data())
def test_every_row_is_read_once_and_by_a_single_reader_in_order(
    sizes: list[int], tasks: int, data: st.DataObject
) -> None:
    """A task that leaves reads nothing more, unless all others are done."""
    ends = list(accumulate(sizes))
    splits = [split(*range(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
    readers = Readers(queue_of(*splits), tasks)
    while readers.busy or readers.leaver is not None:
        assert not (readers.queue.is_read and readers.reading)
        if readers.leaver in readers.told and (not readers.busy or data.draw(st.booleans())):
            readers.leave()
            continue
        task = data.draw(st.sampled_from(sorted(readers.busy)))
        rows = len(readers.reading.get(task, []))
        if task == readers.leaver and rows:
            readers.stop(data.draw(st.integers(0, rows)))
        elif rows and readers.leaver is None and data.draw(st.booleans()):
            replaced = len(readers.there) == 1 or data.draw(st.booleans())
            readers.begin_to_leave(task, replaced=replaced)
        else:
            if data.draw(st.booleans()):
                readers.process(task)
            readers.finish(task)
    for task in sorted(readers.emitted):
        readers.process(task)
    assert readers.queue.is_read and not readers.waiting and sorted(readers.processed) == list(range(sum(sizes)))
    assert tasks > 1 or readers.processed == sorted(readers.processed)


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
