"""Requests to a web site, as the elastic allocator's World Cup log has them, for `configs/top_pages.yaml` and
`configs/pages.yaml`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpa import Generator, batch_filter
from dpa.sources.distributions import names, zipf


class Requests(Generator):
    """Requests: `page` (Zipf-distributed), `status`, `bytes`. A share of `errors` has the status 500."""

    def __init__(self, pages: int = 10_000, exponent: float = 1.1, errors: float = 0.02) -> None:
        self.pages = pages
        self.exponent = exponent
        self.errors = errors

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        page = names(zipf(random, rows, self.pages, self.exponent), self.pages)
        status = np.where(random.random(rows) < self.errors, 500, 200)
        return pa.record_batch({"page": page, "status": status, "bytes": random.integers(200, 50_000, rows)})


@batch_filter
def is_error(requests: pa.RecordBatch) -> pa.BooleanArray:
    """Which requests failed."""
    return pc.greater_equal(requests.column("status"), 500)
