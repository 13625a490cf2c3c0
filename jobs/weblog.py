"""Requests to a web site, as the elastic allocator's World Cup log has them, and two topologies over them.

Top-k, the most requested pages; `TOP_PAGES` is the result by Spark, for k = 10:

| stage | reads | operators | key | reduces to |
| --- | --- | --- | --- | --- |
| source | `Requests` | | | |
| counts | source | | `page` | `Count()`: `page`, `count`; skewed, so balanced |
| ranking | counts | | none | `jobs.ranking:Ranking("page", k)` |

A diamond, each page's traffic beside its errors; `ERRORS` is the result by Spark:

| stage | reads | operators | key | does |
| --- | --- | --- | --- | --- |
| source | `Requests` | | | feeds two stages |
| traffic | source | | `page` | reduce `Sum("bytes")` |
| failures | source | filter `is_error` | `page` | reduce `Count()` |
| pages | traffic, failures | | `page` | left join: a page without errors has a null `count` |
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpa import Generator, batch_filter
from dpa.sources.distributions import names, zipf
from jobs.ranking import reference

TOP_PAGES = reference("page", "SELECT page, count(*) AS count FROM input GROUP BY page")

ERRORS = """
    SELECT page, bytes, count
    FROM (SELECT page, sum(bytes) AS bytes FROM input GROUP BY page)
    LEFT JOIN (SELECT page, count(*) AS count FROM input WHERE status >= 500 GROUP BY page) USING (page)"""


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
