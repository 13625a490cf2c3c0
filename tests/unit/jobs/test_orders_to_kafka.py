"""Orders in a topic of a real broker, and the job that reads them, in this process."""

from types import SimpleNamespace
from uuid import uuid4

import pyarrow as pa
import pytest
from topologies import CONFIGS, in_order, revenue

from dpa import Job
from dpa.sources.generated import GeneratedTable
from dpa.testing import LocalBackend
from jobs.orders import Customers
from jobs.orders_to_kafka import fill, make_topic, orders


def test_the_job_joins_the_orders_with_which_a_topic_was_filled(kafka: str) -> None:
    topic, placed = f"t{uuid4().hex}", list(orders(300, customers=40, seed=1))
    for _ in range(2):  # it may be there
        make_topic(kafka, topic, partitions=2)
    assert fill(kafka, topic, iter(placed), **{"batch.num.messages": "1"}) == 300
    result = Job.from_file(
        CONFIGS / "orders_kafka.yaml",
        [
            f"stages.orders.read.kafka.servers='{kafka}'",
            f"stages.orders.read.kafka.topic={topic}",
            "stages.customers.read.rows=35",
            "stages.revenue.reference=null",
        ],
    ).run(backend=LocalBackend())
    customers = pa.Table.from_batches(
        batch for split in GeneratedTable(Customers(), 35, 2).splits(100) for batch in split.batches(100)
    )
    expected = revenue(pa.Table.from_pylist(placed), customers)
    assert in_order(result.table("revenue").to_pylist()) == in_order(expected)


def test_a_topic_is_filled_no_faster_than_asked_for(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, placed, slept = f"t{uuid4().hex}", list(orders(2_000, customers=40, seed=1)), [0.0]
    monkeypatch.setattr("jobs.orders_to_kafka.time", SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append))
    make_topic(kafka, topic, partitions=1)
    assert fill(kafka, topic, iter(placed), 4_000, **{"batch.num.messages": "1"}) == 2_000
    assert sum(slept) == pytest.approx(0.5)
