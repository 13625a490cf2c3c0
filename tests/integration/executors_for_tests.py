"""Executors that the jobs of these tests name in their job files."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa import BatchReducer, Feed, Generator, Groups, Page, Poller
from dpa.executors import BatchMapper, FunctionReducer, Mapper, Process, Reducer
from dpa.sources.splits import MemorySplit


def words(record: dict[str, Any]) -> Iterator[tuple[str, int]]:
    for word in record["value"].split():
        yield word, 1


def add(left: int, right: int) -> int:
    return left + right


def never_add(left: int, right: int) -> int:
    raise ValueError("no sums today")


def die_on_thirteen(left: int, right: int) -> int:
    if right == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return left + right


def take_time(seconds: float, until: str) -> None:
    """Sleep, if a file is not there yet."""
    if seconds and not (until and Path(until).exists()):
        time.sleep(seconds)


def wait_for(path: str) -> None:
    """Wait for a file, for longer than any test waits."""
    until = time.monotonic() + 600
    while not Path(path).exists() and time.monotonic() < until:
        time.sleep(0.02)


class SlowSum(FunctionReducer):
    """Adds, and takes its time until a file is there."""

    def __init__(self, seconds: float, until: str = "") -> None:
        super().__init__(add)
        self.seconds, self.until = seconds, until

    def reduce(self, state: Any, value: Any) -> Any:
        take_time(self.seconds, self.until)
        return super().reduce(state, value)


class Waiting(SlowSum):
    """Adds, once a file is there."""

    def __init__(self, until: str) -> None:
        super().__init__(0.0, until)

    def reduce(self, state: Any, value: Any) -> Any:
        wait_for(self.until)
        return super().reduce(state, value)


class SlowSumOfGood(SlowSum):
    """Raises on what is below zero."""

    def reduce(self, state: Any, value: Any) -> Any:
        if value < 0:
            raise ValueError(f"{value} is below zero")
        return super().reduce(state, value)


class SlowToCome(SlowSum):
    """Takes as long as a file is there to come to a task, as one does whose module takes long to import; when it does,
    there is a file `waits` beside that."""

    def __init__(self, seconds: float, until: str, while_there: str) -> None:
        super().__init__(seconds, until)
        self.while_there = while_there

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        while Path(self.while_there).exists():
            Path(self.while_there).with_name("waits").touch()
            time.sleep(0.1)


class RunningSum(Process[npt.NDArray[np.int64], int]):
    """Emits the sum so far with each value, and takes its time, from a value on, until a file is there. Values of a key
    must ascend: one that is lost, comes twice or too late is found out. It changes its state in place."""

    def __init__(self, seconds: float, until: str = "", slow_from: int = 0) -> None:
        self.seconds, self.until, self.slow_from = seconds, until, slow_from

    def zero(self) -> npt.NDArray[np.int64]:
        return np.array([-1, 0])

    def process(
        self, key: Any, state: npt.NDArray[np.int64], value: int
    ) -> tuple[npt.NDArray[np.int64], list[dict[str, Any]]]:
        take_time(self.seconds if value >= self.slow_from else 0.0, self.until)
        if value <= state[0]:
            raise ValueError(f"{value} comes after {state[0]}")
        state[0] = value
        state[1] += value
        return state, [{"key": key, "value": value, "so_far": int(state[1])}]


class SlowCount(Reducer[int, int]):
    """Counts, and takes its time until a file is there."""

    def __init__(self, seconds: float, until: str) -> None:
        self.seconds, self.until = seconds, until

    def zero(self) -> int:
        return 0

    def reduce(self, state: int, value: int) -> int:
        take_time(self.seconds, self.until)
        return state + 1

    def merge(self, left: int, right: int) -> int:
        return left + right

    def finish(self, state: int) -> dict[str, int]:
        return {"count": state}


class SlowCounts(BatchReducer):
    """Counts by the batch, and takes its time for each record until a file is there."""

    def __init__(self, seconds: float, until: str) -> None:
        self.seconds, self.until = seconds, until

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        take_time(len(groups.ids) * self.seconds, self.until)
        return pa.record_batch({"count": groups.sizes()})

    def merge(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({"count": groups.sum("count")})


class TakenCount(Reducer[list[int], int]):
    """Counts, and takes its time until a file is there; `finish` takes the count out of the state."""

    def __init__(self, seconds: float, until: str) -> None:
        self.seconds, self.until = seconds, until

    def zero(self) -> list[int]:
        return [0]

    def reduce(self, state: list[int], value: int) -> list[int]:
        take_time(self.seconds, self.until)
        state[0] += 1
        return state

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        return [left[0] + right[0]]

    def finish(self, state: list[int]) -> dict[str, int]:
        count, state[0] = state[0], 0
        return {"count": count}


def children(of: int | None = None) -> list[int]:
    """The processes that a process, this one if none is given, has started and that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it has ended meanwhile
            continue
        if int(parent) == (of or os.getpid()) and state != "Z":
            found.append(int(stat.parent.name))
    return found


def exit_on_thirteen(left: int, right: int) -> int:
    if right == 13:
        sys.exit("bye")
    return left + right


class OneWay:
    """Can be pickled, and not unpickled: so are many exceptions."""

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    raise ValueError("this value cannot come back")


def one_way(record: dict[str, Any]) -> Iterator[tuple[str, OneWay]]:
    yield "key", OneWay()


class Keyed(Mapper):
    """The columns of `key` as the key, and `n` as the value."""

    def __init__(self, key: tuple[str, ...]) -> None:
        self.key = key

    def map(self, record: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
        key = tuple(record[name] for name in self.key)
        yield key if len(key) > 1 else key[0], record["n"]


class KeyedColumns(BatchMapper):
    """The columns of `key`, and `n`."""

    def __init__(self, key: tuple[str, ...]) -> None:
        self.key = key

    def map_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.select(["n", *self.key])


class Numbers(Feed):
    """An open input of `number % 40` for each number, of which some come every second."""

    is_open = True

    def __init__(self, per_second: int = 20_000) -> None:
        self.per_second, self.began = per_second, time.time()

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("key", pa.int64()), ("number", pa.int64())])

    def poll(self, split_rows: int, position: Any = None) -> Page:
        start = position or 0
        stop = max(start, min(start + 500, int((time.time() - self.began) * self.per_second)))
        numbers = np.arange(start, stop)
        rows = pa.table([pa.array(numbers % 40), pa.array(numbers)], schema=self.schema)
        return Page([MemorySplit(rows)] if stop > start else [], stop)


class Fetched(Poller):
    """Numbers from 0 up to an end, each with the key `fetched`, some at a time."""

    schema = pa.schema([("key", pa.string()), ("n", pa.int64())])

    def __init__(self, stop: int) -> None:
        self.at, self.stop = 0, stop

    def poll(self) -> list[dict[str, Any]]:
        start, self.at = self.at, min(self.at + 250, self.stop)
        return [{"key": "fetched", "n": n} for n in range(start, self.at)]

    def position(self) -> int:
        return self.at

    def resume(self, position: int) -> None:
        self.at = position


class SlowPairs(Mapper):
    """The key and the value of a row, after a while until a file is there."""

    def __init__(self, seconds: float, until: str) -> None:
        self.seconds, self.until = seconds, until

    def map(self, record: dict[str, Any]) -> Iterator[tuple[int, int]]:
        take_time(self.seconds, self.until)
        yield record["key"], record["value"]


class TimedNumbers(Generator):
    """`number % 40` for each number, `per_second` of them in each second of event time, up to half a second late."""

    def __init__(self, per_second: int) -> None:
        self.per_second = per_second

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        numbers = np.arange(start, start + rows)
        times = 1_000_000 * numbers // self.per_second - random.integers(0, 500_000, rows) + 10**15
        return pa.record_batch({"key": numbers % 40, "time": pa.array(times).cast(pa.timestamp("us", tz="UTC"))})


class Bursts(Process[dict[str, Any], dict[str, Any]]):
    """The visits of each user that are read in half a second from the first one on, given and forgotten after that."""

    def zero(self) -> dict[str, Any]:
        return {"visits": 0}

    def process(self, key: int, state: dict[str, Any], value: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        return {"since": value["read_at"], **state, "visits": state["visits"] + 1}, []

    def timer(self, key: int, state: dict[str, Any]) -> datetime | None:
        return state["since"] + timedelta(seconds=0.5) if "since" in state else None

    def on_time(self, key: int, state: dict[str, Any], time: datetime) -> tuple[None, list[dict[str, Any]]]:
        return None, [{"user": key, "visits": state["visits"], "until": time}]
