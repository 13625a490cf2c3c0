"""Executors that the jobs of these tests name in their job files."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from dpa.executors import FunctionReducer, Reducer


def words(record: dict[str, Any]) -> Iterator[tuple[str, int]]:
    for word in record["value"].split():
        yield word, 1


def add(left: int, right: int) -> int:
    return left + right


def slow_add(left: int, right: int) -> int:
    time.sleep(0.002)
    return left + right


def fail_on_thirteen(left: int, right: int) -> int:
    if right == 13:
        raise ValueError("thirteen is not allowed")
    return left + right


def die_on_thirteen(left: int, right: int) -> int:
    if right == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return left + right


class Latest(Reducer[int, int]):
    """Keeps the last value, so it cannot merge."""

    def zero(self) -> int:
        return 0

    def reduce(self, state: int, value: int) -> int:
        return value


class SlowSum(FunctionReducer):
    """Adds, and takes its time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(add)
        self.seconds = seconds

    def reduce(self, state: Any, value: Any) -> Any:
        time.sleep(self.seconds)
        return super().reduce(state, value)


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
