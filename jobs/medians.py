"""Readings of sensors, and the median of each sensor's readings so far. For `configs/medians.yaml`."""

from __future__ import annotations

from bisect import insort

import numpy as np
import pyarrow as pa

from dpa import Generator, Process
from dpa.executors import Record
from dpa.sources.distributions import zipf


class Readings(Generator):
    """Readings in the order of their time: `time` (0, 1, 2 ...), `sensor` (0, 1, 2 ...), `value`, an integer.

    Sensors are Zipf-distributed: the first ones report often. Values wander, so medians change.
    """

    def __init__(self, sensors: int = 2_000, exponent: float = 0.7) -> None:
        self.sensors = sensors
        self.exponent = exponent

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        time = np.arange(start, start + rows)
        sensor = zipf(random, rows, self.sensors, self.exponent)
        value = random.integers(0, 1_000, rows) + time // 100
        return pa.record_batch({"time": time, "sensor": sensor, "value": value})


class RunningMedian(Process[list[int], Record]):
    """The median of each key's values so far, a row for each: `sensor` (the key), `time`, `median`.

    The state is all values so far, in ascending order. Two of them can be merged into one, but not the rows that were
    emitted from them: a key's values must all come to one state, in their order.
    """

    def zero(self) -> list[int]:
        return []

    def process(self, key: int, state: list[int], value: Record) -> tuple[list[int], list[Record]]:
        insort(state, value["value"])
        middle = len(state) // 2
        median = float(state[middle]) if len(state) % 2 else (state[middle - 1] + state[middle]) / 2
        return state, [{"sensor": key, "time": value["time"], "median": median}]
