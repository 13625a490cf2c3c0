"""Fills a topic of Kafka with orders, for `configs/orders_kafka.yaml`.

python -m jobs.orders_to_kafka --servers localhost:9092 --rows 1000000 --rate 20000
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any

from dpa.sources.generated import GeneratedTable
from jobs.orders import Orders

_BATCH = 10_000


def orders(rows: int, customers: int, seed: int) -> Iterator[dict[str, Any]]:
    """As `configs/orders.yaml` reads them."""
    for split in GeneratedTable(Orders(customers), rows, seed).splits(_BATCH):
        for batch in split.batches(_BATCH):
            yield from batch.to_pylist()


def make_topic(servers: str, topic: str, partitions: int) -> None:
    """Make a topic, if it is not there."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})  # kept: with it go the answers
    try:
        admin.create_topics([NewTopic(topic, partitions)])[topic].result(20)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def fill(servers: str, topic: str, rows: Iterator[dict[str, Any]], rate: float | None = None, **options: str) -> int:
    """Append rows as JSON objects, by customer to the topic's partitions; returns how many there were.

    Args:
        servers: some of the brokers.
        topic: its name.
        rows: what to append.
        rate: most rows in a second; None: as many as are taken.
        options: of librdkafka.
    """
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": "20", **options})
    began, number = time.monotonic(), 0
    for number, row in enumerate(rows, start=1):
        while True:
            try:
                producer.produce(topic, json.dumps(row).encode(), str(row["customer"]).encode())
                break
            except BufferError:
                producer.poll(0.1)
        if number % 100 == 0:
            producer.poll(0)
            if rate is not None:
                time.sleep(max(0.0, began + number / rate - time.monotonic()))
    if producer.flush(60):
        raise TimeoutError(f"{servers} has not taken all records within 60 s")
    return number


def main() -> None:
    """Fill the topic."""
    arguments = argparse.ArgumentParser(description="Fill a topic of Kafka with orders.")
    arguments.add_argument("--servers", default="localhost:9092")
    arguments.add_argument("--topic", default="orders")
    arguments.add_argument("--partitions", type=int, default=4, help="of the topic, if it is not there")
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--customers", type=int, default=200_000)
    arguments.add_argument("--rate", type=float, default=None, help="most rows in a second")
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    make_topic(given.servers, given.topic, given.partitions)
    rows = fill(given.servers, given.topic, orders(given.rows, given.customers, given.seed), given.rate)
    print(f"{rows:,} orders in the topic {given.topic!r} at {given.servers}")


if __name__ == "__main__":
    main()
