"""Keys of every type, most on real Ray, moved and split on the way, their result checked by Spark's own GROUP BY."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import executors_for_tests as executors
import numpy as np
import pyarrow as pa
import pytest

from dpa import Job
from dpa.aggregates import Sum
from dpa.result import Result
from dpa.testing import LocalBackend

pytestmark = pytest.mark.usefixtures("ray", "spark")

ROWS = 4_000
DAY, NOON = date(2026, 1, 31), datetime(2026, 1, 31, 12, 0, 0, 5)
COLUMNS = {
    "flag": (lambda rank: rank % 2 == 0, pa.bool_()),
    "day": (lambda rank: DAY + timedelta(rank), pa.date32()),
    "local": (lambda rank: NOON + timedelta(seconds=rank), pa.timestamp("us")),
    "instant": (
        lambda rank: (NOON + timedelta(hours=rank)).replace(tzinfo=timezone.utc),
        pa.timestamp("us", "Asia/Tokyo"),
    ),
    "amount": (lambda rank: Decimal(rank) / 4, pa.decimal128(10, 2)),
    "large": (lambda rank: 2**63 + rank, pa.uint64()),
    "country": (lambda rank: ["DE", "FR", "", None][rank % 4], pa.string()),
    "number": (lambda rank: -(rank % 5), pa.int64()),
    "raw": (lambda rank: [b"\xff", b"", None][rank % 3], pa.binary()),
}
KEPT = {"instant": pa.timestamp("us", "UTC"), "id": pa.string()}
OF_PYTHON = {"amount": pa.decimal128(4, 2)}
"""What Python's values do not know: how many digits their column may have."""


@pytest.fixture(scope="module")
def orders() -> pa.Table:
    """Rows with a column of each type, of few values and nulls; one of three is of the first rank."""
    ranks = np.minimum(np.random.default_rng(5).zipf(1.5, ROWS), 90)
    made = {
        name: pa.array([None if rank % 13 == 12 else value(int(rank)) for rank in ranks], kind)
        for name, (value, kind) in COLUMNS.items()
    }
    ids = pa.array([UUID(int=int(rank)).bytes for rank in ranks], pa.binary(16))
    return pa.table({**made, "id": pa.ExtensionArray.from_storage(pa.uuid(), ids), "n": range(ROWS)})


def mapper_of(form: str, key: tuple[str, ...]) -> Any:
    """A mapper of each kind that changes nothing."""
    return {"none": None, "batches": executors.KeyedColumns(key), "records": executors.Keyed(key)}[form]


def run(data: pa.Table, key: tuple[str, ...], form: str, **sections: Any) -> Result:
    """A sum by key, with Spark's as the reference."""
    value = "value" if form == "records" else "n"
    names = ", ".join(key)
    return Job(
        input=data,
        mapper=mapper_of(form, key),
        key=list(key),
        value="n" if form == "none" else None,
        reducer=executors.add if form == "records" else Sum("n"),
        reference={"sql": f"SELECT {names}, sum(n) AS {value} FROM input GROUP BY {names}"},
        **{
            "parallelism": {"mappers": 1, "reducers": 2},
            "limits": {"batch_records": 200, "in_flight_records": 800, "split_records": 1_000},
            **sections,
        },
    ).run(backend=LocalBackend() if form == "batches" else "ray")


MOVED = {"balance": {"strategy": "doubling", "report_every": 100, "min_queue": 1, "check_seconds": 0.0}}
SPREAD = {"grouping": "shuffle"}
JOBS = {
    "uuid column": (("id",), "none", SPREAD),
    "composite of a batch mapper, combined": (("day", "country"), "batches", {**MOVED, "combiner": True}),
    "all types together, of a record mapper": ((*COLUMNS, "id"), "records", MOVED),
}


@pytest.mark.parametrize("job", JOBS)
def test_keys_of_every_type_give_what_spark_gives(job: str, orders: pa.Table) -> None:
    key, form, sections = JOBS[job]
    result = run(orders, key, form, **sections)
    report, table = result.report, result.table()
    assert report.reference.matches, report.reference.differences
    assert report.records.processed > 0 and report.main.skew.spark is not None
    kept = OF_PYTHON | KEPT if form == "records" else KEPT
    assert all(table.schema.field(name).type == kept.get(name, orders.schema.field(name).type) for name in key)
    assert all(isinstance(hot.key, tuple) == (len(key) > 1) for hot in report.main.hot_keys)
