"""Results as records of a topic of Kafka (the `confluent-kafka` package), each epoch in one transaction.

Rows travel to the coordinator, or the driver, which produces them when the epoch is committed. The same transaction
commits the epoch's number as the offset of a consumer group without members, which says whether an epoch is there. A
new producer of a job fences the one before, and ends its transaction."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dpa._util.lines import as_text, from_text, until
from dpa.errors import TableError
from dpa.routing.keys import names_of
from dpa.sinks._packages import PackageSink
from dpa.sinks.reading import Format
from dpa.sinks.sink import Newest, Target, together
from dpa.sources.kafka import asking_brokers

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

_ANSWER_SECONDS = 30.0  # how long brokers may take for an answer, and for all records of an epoch
_OVER = 2**62  # the offset of a job that commits nothing more
_ROWS_AT_ONCE = 10_000  # rows that become Python objects at a time

_LOGGER = logging.getLogger(__name__)


class KafkaTopic(PackageSink):
    """A topic, which must be there. A row is a JSON object as the value of a record, with the row's key as its key: a
    text as it is, anything else as JSON. Headers are `job`, `epoch`, and `number`, of the row in the epoch."""

    def __init__(self, to: Target) -> None:
        """TableError if an option of librdkafka is missing, or one that the sink sets itself is given."""
        super().__init__(to)
        self._topic = to.path
        self._options = {name: str(value) for name, value in to.args.items()}
        self._producer: Producer | None = None
        if "bootstrap.servers" not in self._options:
            raise TableError(f"a topic needs brokers: set {to.section}.args to {{bootstrap.servers: HOST:PORT}}")
        if own := {"transactional.id", "group.id"} & self._options.keys():
            raise TableError(f"{to.section}.args: {', '.join(sorted(own))} is set by dpa: leave it out")

    def __getstate__(self) -> dict[str, Any]:
        """Without the producer: each process has its own."""
        return vars(self) | {"_producer": None}

    @property
    def place(self) -> str:
        return f"{self._topic} at {self._options['bootstrap.servers']}"

    def check(self) -> None:
        with asking_brokers(self.place):
            from confluent_kafka.admin import AdminClient

            found = AdminClient(self._options, logger=_LOGGER).list_topics(timeout=_ANSWER_SECONDS).topics
            if self._topic not in found:
                raise TableError(f"there is no topic {self.place}: make it first")

    def stage(self, rows: pa.Table, task: int, epoch: int) -> pa.Table:
        return rows

    def commit(self, staged: Sequence[pa.Table], epoch: int, seconds: float, *, is_last: bool = False) -> None:
        rows = together(staged)
        if not rows.num_rows and not is_last:
            return
        with asking_brokers(self.place):
            producer = self._producing()
            if self._is_over() or (not is_last and self._marked(self._life)[0] >= epoch):
                return
            producer.begin_transaction()
            try:
                self._produce(producer, rows, epoch)
                self._mark(producer, *((self.job, _OVER) if is_last else (self._life, epoch)))
                producer.commit_transaction(_ANSWER_SECONDS)
            except BaseException as error:
                self._forget(producer, error)
                raise

    def abort(self) -> None:
        self._producer = None

    def newest(self) -> Newest | None:
        with asking_brokers(self.place):
            epoch, line = self._marked(self._life)
            is_last = self._is_over()
        if epoch < 0 and not is_last:
            return None
        return Newest(epoch if 0 <= epoch < _OVER else 0, from_text(line), is_last)

    def read(self, staged: Sequence[pa.Table]) -> pa.Table:
        return together(staged)

    def _producing(self) -> Producer:
        """The producer. Transactions of earlier ones are over."""
        from confluent_kafka import Producer

        if self._producer is None:
            settings = {"linger.ms": "5", "compression.type": "lz4", **self._options}
            producer = Producer({**settings, "transactional.id": self._name(self.job)}, logger=_LOGGER)
            producer.init_transactions(_ANSWER_SECONDS)
            self._producer = producer
        return self._producer

    def _produce(self, producer: Producer, rows: pa.Table, epoch: int) -> None:
        """Give all rows to a producer. If a record does not arrive, the commit of its transaction fails."""
        keys, of_epoch, number = names_of(self.key), [("job", self.job), ("epoch", str(epoch))], 0
        for batch in rows.to_batches(_ROWS_AT_ONCE):
            for row in batch.to_pylist():
                key = _key([row[name] for name in keys]) if keys else None
                headers = [*of_epoch, ("number", str(number))]
                while not _is_taken(producer, self._topic, _json(row), key, headers):
                    producer.poll(0.1)  # its queue is full
                number += 1
            producer.poll(0)

    def _mark(self, producer: Producer, group: str, epoch: int) -> None:
        from confluent_kafka import TopicPartition

        with self._consumer(group) as consumer:
            about = consumer.consumer_group_metadata()
            offset = TopicPartition(self._topic, 0, epoch, as_text(until(self.line, epoch)))
            producer.send_offsets_to_transaction([offset], about, _ANSWER_SECONDS)

    def _is_over(self) -> bool:
        """Whether the job's last epoch was committed, maybe by a process that has died since."""
        return self._marked(self.job)[0] >= _OVER

    def _marked(self, group: str) -> tuple[int, str | None]:
        """The epoch of a group, negative if there is none, and the line until that epoch."""
        from confluent_kafka import TopicPartition

        with self._consumer(group) as consumer:
            [found] = consumer.committed([TopicPartition(self._topic, 0)], _ANSWER_SECONDS)
        if found.error is not None:
            raise TableError(f"{self.place}: {found.error.str()}")
        return int(found.offset), found.metadata

    @contextmanager
    def _consumer(self, group: str) -> Iterator[Consumer]:
        """For the offsets of a group, which it does not join."""
        from confluent_kafka import Consumer

        settings = {**self._options, "isolation.level": "read_committed", "enable.auto.commit": "false"}
        consumer = Consumer({**settings, "group.id": self._name(group)}, logger=_LOGGER)
        try:
            yield consumer
        finally:
            consumer.close()

    def _forget(self, producer: Producer, why: BaseException) -> None:
        """Abort the producer's transaction, and make another producer for the next one. If a newer producer has fenced
        it, that has aborted the transaction, and brokers may not answer this one."""
        from confluent_kafka import KafkaError, KafkaException

        self._producer = None
        if isinstance(why, KafkaException) and why.args[0].code() == KafkaError._FENCED:
            return
        try:
            producer.abort_transaction(_ANSWER_SECONDS)
        except KafkaException as error:
            _LOGGER.warning("%s: its transaction ends when the brokers end it: %s", self.place, error.args[0].str())

    def _name(self, of: str) -> str:
        return f"dpa.{of}.{self._section}"


def _is_taken(producer: Producer, topic: str, value: bytes, key: bytes | None, headers: list[tuple[str, str]]) -> bool:
    try:
        producer.produce(topic, value, key, headers=headers)
    except BufferError:
        return False
    return True


def _key(values: Sequence[Any]) -> bytes:
    if len(values) > 1:
        return _json(values)
    return values[0].encode() if isinstance(values[0], str) else _json(values[0])


def _json(value: Any) -> bytes:
    return json.dumps(value, default=_plain, ensure_ascii=False).encode()


def _plain(value: Any) -> str:
    """For what JSON lacks: bytes in base 64, times in ISO 8601, decimals as strings."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


FORMAT = Format("kafka", KafkaTopic, modes=("append",), noun="a topic of Kafka", is_directory=False)
