"""Each kind of open input on real Ray, while rows come and processes die: all rows are read, and each once."""

import json
from collections import Counter
from pathlib import Path

import pytest
from kafka_broker import kafka_broker, make_topic, produce
from observers_for_tests import Killing, rows_read
from topologies import CONFIGS

from dpa import Job
from dpa.sources.feed import table_of
from dpa.sources.kafka import KafkaFeed, RecordFormat
from dpa.telemetry.tracker import TrackedSnapshot
from jobs.orders_to_kafka import fill, orders
from jobs.orders_to_kafka import make_topic as make_orders

pytestmark = pytest.mark.usefixtures("ray")

FETCHED = 5_000
TURNS = 6
ORDERS, CUSTOMERS = 600, 350


class Producer(Killing):
    """Appends records and writes a file whenever it looks, and kills the coordinator behind a checkpoint. When all is
    read, inputs may be closed."""

    def __init__(self, servers: str, incoming: Path) -> None:
        super().__init__("feeds", "coordinator")
        self.servers, self.incoming = servers, incoming
        self.given: Counter[str] = Counter()
        self.turn = 0
        self.is_done = False

    def update(self, snapshot: TrackedSnapshot) -> None:
        if self.turn < TURNS or self.victims:
            self.produce()
        else:
            self.is_done = rows_read(snapshot) >= self.given.total() + FETCHED
        self.kill_next(snapshot)

    def produce(self) -> None:
        self.turn += 1
        keys = [f"key {number % 7}" for number in range(self.turn, self.turn + 40)]
        rows = [json.dumps({"key": key}) for key in keys]
        produce(self.servers, "visits", [row.encode() for row in rows], partition=self.turn % 2)
        hidden = self.incoming / f".{self.turn}"
        hidden.write_text("\n".join(rows), encoding="utf-8")
        hidden.rename(self.incoming / str(self.turn))
        self.given.update(key for key in keys for _ in range(2))


def test_all_kinds_of_open_inputs_are_read_once_whatever_dies(tmp_path: Path) -> None:
    (tmp_path / "incoming").mkdir()
    with kafka_broker() as servers:
        make_topic(servers, "visits", 2)
        producer = Producer(servers, tmp_path / "incoming")
        columns = {"key": "string"}
        kafka = {"servers": servers, "topic": "visits", "value": "json", "columns": columns}
        watch = {"every": "100ms", "settle": 0, "columns": columns}
        stages = {
            "topic": {"read": {"format": "kafka", "kafka": kafka}},
            "files": {"read": {"format": "json", "path": str(tmp_path / "incoming"), "watch": watch}},
            "fetched": {"read": {"format": "feed", "use": "executors_for_tests:Fetched", "args": {"stop": FETCHED}}},
            "counts": {
                "from": ["topic", "files", "fetched"],
                "allow_missing_columns": True,
                "key_by": "key",
                "value": [],
                "reduce": "count",
            },
        }
        result = Job(
            name="feeds",
            stages=stages,
            checkpoint={"path": str(tmp_path / "checkpoints"), "every": "300ms"},
            recovery={"backoff": "100ms"},
            until={"seconds": 200},
            python_path=[str(Path(__file__).parent)],
        ).run(producer, closes=lambda: producer.is_done)
    found = dict(zip(*result.table().select(["key", "count"]).to_pydict().values(), strict=True))
    assert found == {**producer.given, "fetched": FETCHED}
    assert not producer.victims and len(result.report.recoveries) == 1


class Shop(Killing):
    """Has orders placed whenever it looks, and kills a reader, a task and the coordinator, each behind a checkpoint.
    When all are read, inputs may be closed."""

    def __init__(self, servers: str) -> None:
        super().__init__("orders_kafka", "orders 0", "revenue 0", "coordinator")
        self.servers = servers
        self.orders = list(orders(ORDERS, customers=400, seed=1))
        self.placed = 0
        self.is_done = False
        self.written: object = None

    def update(self, snapshot: TrackedSnapshot) -> None:
        if self.placed < ORDERS - 100 or not self.victims:
            some = self.orders[self.placed : self.placed + 100]
            self.placed += fill(self.servers, "orders", iter(some), **{"batch.num.messages": "1"})
        self.is_done = self.placed == ORDERS and rows_read(snapshot) >= ORDERS
        before, self.written = self.written, (snapshot.generation, snapshot.checkpoints)
        if self.written == before:
            self.kill_next(snapshot)  # not in a transaction, which the broker of the tests would commit


def test_orders_are_read_from_kafka_and_results_published_there_once_whatever_dies(tmp_path: Path) -> None:
    with kafka_broker() as servers:
        make_orders(servers, "orders", partitions=2)
        make_topic(servers, "live", 2)
        write = (
            f"{{format: kafka, path: live, mode: append, args: {{bootstrap.servers: '{servers}'}}, publish: changes}}"
        )
        reduce = "{use: sum, args: {column: amount}}"
        shop = Shop(servers)
        job = Job.from_file(
            CONFIGS / "orders_kafka.yaml",
            [
                f"stages.orders.read.kafka.servers='{servers}'",
                f"stages.customers.read.rows={CUSTOMERS}",
                f"stages.live={{from: placed, key_by: segment, value: amount, reduce: {reduce}, write: {write}}}",
                f"checkpoint={{path: '{tmp_path}/checkpoints', every: 300ms}}",
                "recovery.backoff=100ms",
                "until={seconds: 200}",
            ],
        )
        result = job.run(shop, closes=lambda: shop.is_done)
        read = KafkaFeed(servers, ("live",), RecordFormat("string", "string")).poll(100_000).splits
        published = table_of(read).to_pylist()
    assert result.report.reference.matches and not shop.victims and shop.placed == ORDERS
    rows = [json.loads(record["value"]) for record in published]
    newest = {row["segment"]: row["amount"] for row in sorted(rows, key=lambda row: row["epoch"])}
    assert newest == dict(zip(*result.table("revenue").to_pydict().values(), strict=True))
    assert len({(row["segment"], row["epoch"]) for row in rows}) == len(rows), "each change is there once"
    assert sum(row["change"] == "insert" for row in rows) == len(newest)
