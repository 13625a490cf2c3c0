"""The DPA paper's workloads: letters, counted by a reducer that takes a fixed time for each (sections 6.2 and 6.3)."""

from __future__ import annotations

import string
import time
from collections.abc import Iterator

from dpa import Reducer
from dpa.executors import Record

_BY_TWO_OR_FOUR = ("o", "u") * 20 + ("f", "h", "j", "w") * 10

WORKLOADS: dict[str, tuple[str, ...]] = {
    "wl1": ("a", "b", "c", "f") * 25,
    "wl2": ("a", "g", "i", "q") * 25,
    "wl3": ("a",) * 100,
    "wl4": _BY_TWO_OR_FOUR + tuple(sorted({*string.ascii_lowercase} - {*_BY_TWO_OR_FOUR})),
    "wl5": tuple(string.ascii_lowercase[:25]) * 4,
}
"""The paper's workloads 1 to 5 as its authors' code makes them; the job files are in `configs/paper/`."""


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
