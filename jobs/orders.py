"""Orders and the customers who placed them, for `configs/orders.yaml`.

If `Orders` knows of more customers than there are, some orders have none: left and anti joins find them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dpa import Generator
from dpa.sources.distributions import names, zipf


class Orders(Generator):
    """Orders: `order`, `customer` (Zipf-distributed, 0 the most frequent), `amount` in cents."""

    def __init__(self, customers: int = 200_000, exponent: float = 1.2) -> None:
        self.customers = customers
        self.exponent = exponent

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        customer = zipf(random, rows, self.customers, self.exponent)
        amount = random.integers(100, 100_000, rows)
        return pa.record_batch({"order": np.arange(start, start + rows), "customer": customer, "amount": amount})


class Customers(Generator):
    """Customers, each once: `customer` (0, 1, 2 ...), `segment`."""

    def __init__(self, segments: int = 20) -> None:
        self.segments = segments

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        segment = names(random.integers(0, self.segments, rows), self.segments)
        return pa.record_batch({"customer": np.arange(start, start + rows), "segment": segment})
