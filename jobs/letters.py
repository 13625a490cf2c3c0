"""The DPA paper's workloads: letters, counted by a reducer that takes a fixed time for each (sections 6.2 and 6.3)."""

from __future__ import annotations

import time
from collections.abc import Iterator

from dpa import Reducer
from dpa.executors import Record


def letter(record: Record) -> Iterator[tuple[str, int]]:
    """The letter in the column `value`, as a key."""
    yield record["value"], 1


class SlowCount(Reducer[int, int]):
    """Counts, and sleeps `seconds` for each record, as the paper's reducers do."""

    def __init__(self, seconds: float = 0.2) -> None:
        self.seconds = seconds

    def zero(self) -> int:
        return 0

    def reduce(self, state: int, value: int) -> int:
        time.sleep(self.seconds)
        return state + value

    def merge(self, left: int, right: int) -> int:
        return left + right

    def finish(self, state: int) -> dict[str, int]:
        return {"count": state}
