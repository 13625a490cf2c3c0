"""The scenarios of cheap records: all tasks share two cores and keep them busy, so that balancing can gain nothing
before the end, and must cost nothing. Virtual and real runs take them from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from experiments.steady import streams
from experiments.steady.streams import Stream

CORES = 2
COSTS = (0.0, 20.0)
"""Microseconds of a reducer that a record takes; 0 is a count by the batch."""

STREAMS: Mapping[str, tuple[Stream, bool]] = {
    "even": (streams.even, False),
    "zipf 1.0": (streams.zipf_keys(1.0), False),
    "new hot key": (streams.tenths(0.6), True),
}
"""Keys by name, and whether what is hot changes."""


@dataclass(frozen=True)
class Shape:
    """How many tasks there are."""

    mappers: int
    reducers: int

    def __str__(self) -> str:
        return f"{self.mappers} + {self.reducers}"


MANY = Shape(2, 4)
"""The shape at which all strategies are run on real actors."""

SHAPES = (Shape(1, 4), Shape(2, 2), MANY, Shape(4, 4))


@dataclass(frozen=True)
class Shared:
    """Keys of a name, and what a record of them costs at a shape; `crowded` by a busy process that is no task."""

    keys: str
    micros: float
    shape: Shape
    crowded: bool = False

    @property
    def name(self) -> str:
        """Such as `2 + 4, 20 us, even`."""
        return f"{self.shape}, {self.micros:g} us, {self.keys}{', crowded' if self.crowded else ''}"

    @property
    def changes(self) -> bool:
        """Whether what is hot changes."""
        return STREAMS[self.keys][1]

    def table(self, records: int, seed: int) -> pa.Table:
        """The column `key`."""
        stream, _ = STREAMS[self.keys]
        ranks = stream(np.random.default_rng(seed), np.arange(records, dtype=np.float64))
        return pa.table({"key": streams.names(ranks)})

    def parallelism(self) -> dict[str, int]:
        """The section of a job."""
        return {"mappers": self.shape.mappers, "reducers": self.shape.reducers}


SHARED = (
    *(Shared(keys, micros, shape) for micros in COSTS for shape in SHAPES for keys in STREAMS),
    Shared("even", COSTS[-1], Shape(2, 2), crowded=True),
)
