"""Joins without a shuffle on real Ray actors: every task has the side, also the next one after a death."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import executors_for_tests as executors
import polars as pl
import pyarrow.parquet as pq
import pytest
from observers_for_tests import pid_of

from dpa import Flow
from dpa.driver.verification import verified
from dpa.local.backend import LocalBackend
from dpa.telemetry.observers import Observer
from dpa.telemetry.tracker import TrackedSnapshot

pytestmark = pytest.mark.usefixtures("ray")

ORDERS, CUSTOMERS = 60_000, 500


@pytest.fixture
def shop(tmp_path: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    orders = pl.DataFrame({"customer": [n * n % 700 for n in range(ORDERS)], "cents": range(ORDERS)})
    customers = pl.DataFrame(
        {"id": range(CUSTOMERS), "segment": [None if n % 9 == 0 else f"segment {n % 5}" for n in range(CUSTOMERS)]}
    )
    pq.write_table(orders.to_arrow(), tmp_path / "orders.parquet", row_group_size=5_000)
    pq.write_table(customers.to_arrow(), tmp_path / "customers.parquet")
    return orders, customers


def wanted(shop: tuple[pl.DataFrame, pl.DataFrame]) -> dict[str | None, int]:
    orders, customers = shop
    joined = orders.join(customers, left_on="customer", right_on="id").group_by("segment").agg(pl.col("cents").sum())
    return dict(joined.iter_rows())


def flow(directory: Path, reducer: Any, **sections: Any) -> Flow:
    made = Flow("joined", limits={"split_records": 5_000, "batch_records": 500, "in_flight_records": 2_000}, **sections)
    orders, customers = (made.read(directory / f"{name}.parquet", name=name) for name in ("orders", "customers"))
    joined = orders.join(customers, left_on="customer", right_on="id")
    joined.key_by("segment", value="cents").reduce(reducer, name="sums", parallelism=2)
    return made


class Killer(Observer):
    """Kills a source once records flow; then lets the job work on."""

    def __init__(self, go: Path) -> None:
        self.go = go

    def update(self, snapshot: TrackedSnapshot) -> None:
        flows = snapshot.phase == "stream" and snapshot.records.processed > 100
        if flows and not self.go.exists():
            os.kill(pid_of("joined", "orders 0", 0), signal.SIGKILL)
            self.go.touch()


def test_a_task_in_the_place_of_a_dead_one_has_the_side(
    tmp_path: Path, shop: tuple[pl.DataFrame, pl.DataFrame]
) -> None:
    slow = executors.SlowSum(0.002, str(tmp_path / "go"))
    result = flow(tmp_path, slow, recovery={"backoff": "100ms"}).run(Killer(tmp_path / "go"))
    assert dict(zip(*result.table().to_pydict().values(), strict=True)) == wanted(shop)
    assert [recovery.task for recovery in result.report.recoveries] == ["orders 0"]


def test_epochs_are_verified_with_the_side(
    tmp_path: Path, spark: object, shop: tuple[pl.DataFrame, pl.DataFrame]
) -> None:
    made = Flow("joined", checkpoint={"path": str(tmp_path / "saved")}, epoch_log=str(tmp_path / "log"))
    orders, customers = (made.read(tmp_path / f"{name}.parquet", name=name) for name in ("orders", "customers"))
    sums = orders.join(customers, left_on="customer", right_on="id").key_by("segment", value="cents")
    counts = sums.reduce("count", name="counts").reference("auto", at_end=False)
    counts.write(tmp_path / "counts", publish="table")
    made.run(backend=LocalBackend())
    [found] = verified(made.job().spec, str(tmp_path / "log"))
    assert found.compared.matches, found
    assert found.rows == len(wanted(shop))
