"""Topics of Kafka as an open feed: source tasks read their splits, ranges of offsets. Records become rows.

Joins no consumer group and commits no offsets: the feed's position is in the job's checkpoints."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import pyarrow as pa

from dpa._util.outages import HERE, may_pass
from dpa.errors import TableError
from dpa.sources.columns import only, require_columns
from dpa.sources.feed import PAGE_SPLITS, Feed, Page, never, table_of
from dpa.sources.records import Gaps, Unread, Wrong, parsed, parsed_objects, plain_object

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message
    from confluent_kafka.admin import AdminClient


Settings: TypeAlias = tuple[tuple[str, str], ...]
"""Of librdkafka, sorted."""

Partition: TypeAlias = tuple[str, int]

_ANSWER_SECONDS = 10.0
_SILENT_SECONDS = 60.0
"""How long a reader waits for a record that the broker says is there, before that counts as an outage."""

_CONSUMED_AT_ONCE = 10_000
_CONSUME_SECONDS = 0.02
"""How long a reader waits for all that it asks for: there are fewer where offsets have no record."""

_LOGGER = logging.getLogger(__name__)

_ABOUT: dict[str, tuple[pa.DataType, Callable[[Message], Any]]] = {  # columns of every record besides its key and value
    "topic": (pa.string(), lambda message: message.topic()),
    "partition": (pa.int32(), lambda message: message.partition()),
    "offset": (pa.int64(), lambda message: message.offset()),
    "timestamp": (
        pa.timestamp("ms", "UTC"),
        lambda message: message.timestamp()[1] if message.timestamp()[0] else None,
    ),
    "headers": (pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])), lambda message: message.headers()),
}

_READER = {
    "enable.auto.commit": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
    "group.id": "dpa",
    "fetch.wait.max.ms": "50",  # a broker may take more than 10 to look for what it has, and answers with nothing
    "fetch.queue.backoff.ms": "10",
    "queued.max.messages.kbytes": "16384",
    "max.poll.interval.ms": "86400000",
}


@dataclass(frozen=True)
class KafkaSplit:
    """A range of a partition's offsets, which are its rows. Some have no record: transaction markers, and records that
    compaction has removed. Settings are librdkafka's, for the connection."""

    settings: Settings
    topic: str
    partition: int
    start: int
    stop: int
    format: RecordFormat
    columns: tuple[str, ...] | None = None
    patience: float | None = None
    has_gaps = True

    @property
    def rows(self) -> int:
        return self.stop - self.start

    @property
    def channel(self) -> str:
        """The partition: its records come roughly in the order of their times."""
        return f"{self.topic}-{self.partition}"

    def after(self, rows: int) -> KafkaSplit:
        return replace(self, start=self.start + rows)

    def joined(self, following: object) -> KafkaSplit | None:
        if isinstance(following, KafkaSplit) and following.start == self.stop:
            whole = replace(following, start=self.start)
            return whole if whole.after(self.rows) == replace(self, start=self.stop, stop=following.stop) else None
        return None

    def batches(self, batch_rows: int, gaps: Gaps | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the records; `gaps` notes the offsets without a record, or with one that cannot be read."""
        names = self.format.schema.names if self.columns is None else self.columns or ("offset",)
        given, at = 0, self.start
        for messages in self._messages(batch_rows):
            batch, unread = self.format.batch(messages, names)
            if unread and not self.format.tolerates:
                raise TableError(unread[min(unread)].message)
            for place, message in enumerate(messages):
                if gaps is not None and message.offset() > at:
                    gaps.note(given, message.offset() - at)
                at = message.offset() + 1
                if place not in unread:
                    given += 1
                elif gaps is not None:
                    gaps.note(given, 1, unread[place])
            if batch.num_rows:
                yield batch
        if gaps is not None and at < self.stop:
            gaps.note(given, self.stop - at)

    def _messages(self, most: int) -> Iterator[list[Message]]:
        with asking_brokers(f"{self.channel}, offsets {self.start:,} to {self.stop:,}"):
            from confluent_kafka import TopicPartition

            consumer = HERE.bear(lambda: _reader(self.settings, self.topic), what=self.channel, patience=self.patience)
            consumer.assign([TopicPartition(self.topic, self.partition, self.start)])
            try:
                yield from self._consumed(consumer, most)
            finally:
                consumer.unassign()

    def _consumed(self, consumer: Consumer, most: int) -> Iterator[list[Message]]:
        from confluent_kafka import KafkaError

        at, heard, outage = self.start, time.monotonic(), HERE.outage(self.channel, self.patience)
        silent = _SILENT_SECONDS if self.patience is None else min(self.patience, _SILENT_SECONDS)
        while at < self.stop:
            messages: list[Message] = []
            with HERE.waiting():
                found = consumer.consume(min(most, self.stop - at, _CONSUMED_AT_ONCE), _CONSUME_SECONDS)
            for message in found:
                error, offset = message.error(), message.offset()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    self._failed(error)
                elif offset >= self.stop:  # a record, or the partition's end: those before it have come, or are none
                    at = self.stop
                elif error is None and offset >= at:
                    messages.append(message)
                    at = offset + 1
            if messages:
                outage.ends()
                yield messages
                heard = time.monotonic()  # after the work on them, which may take longer than a broker may be silent
            elif (waited := time.monotonic() - heard) > silent:
                why = f"no record from offset {at:,} on has come for {waited:.0f} s"
                if not outage.lasts(why):
                    raise TableError(f"{self.channel}: {why}")

    def _failed(self, error: Any) -> None:
        from confluent_kafka import KafkaError, KafkaException

        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise TableError(_gone(self.topic, self.partition, f"offset {self.start:,}"))
        if not may_pass(KafkaException(error)):
            raise TableError(f"{self.channel}: {error.str()}")


_OF_THREAD = threading.local()


def _reader(settings: Settings, topic: str) -> Consumer:
    """This thread's consumer for a topic, which stays connected between splits."""
    from confluent_kafka import Consumer

    readers: dict[tuple[Settings, str], Consumer] = _OF_THREAD.__dict__.setdefault("readers", {})
    if (settings, topic) not in readers:
        reader = Consumer({**_READER, **dict(settings)}, logger=_LOGGER)
        reader.list_topics(topic, _ANSWER_SECONDS)  # else it looks for the brokers of its first partition for a second
        readers[settings, topic] = reader
    return readers[settings, topic]


@lru_cache(maxsize=8)
def _admin(settings: Settings) -> AdminClient:
    from confluent_kafka.admin import AdminClient

    return AdminClient(dict(settings), logger=_LOGGER)


@dataclass(frozen=True)
class KafkaFeed(Feed):
    """The records of some topics. A position is the next offset of each partition.

    Attributes:
        servers: some of the brokers, as `host:port,host:port`.
        topics: their names; they must exist when the job begins.
        format: of the records.
        start: where existing partitions begin, `earliest` or `latest`; partitions that are added later begin at their
            start.
        options: settings of librdkafka, such as `security.protocol`; with `isolation.level: read_uncommitted`, records
            of open transactions are read too.
        columns: those to read; None: all.
        poll_seconds: how often to look for more.
        patience: how many seconds a running job waits for brokers to answer; None: as the job says.
    """

    servers: str
    topics: tuple[str, ...]
    format: RecordFormat
    start: Literal["earliest", "latest"] = "earliest"
    options: Settings = ()
    columns: tuple[str, ...] | None = None
    poll_seconds: float = 0.1
    patience: float | None = None
    is_open = True

    @property
    def schema(self) -> pa.Schema:
        return self.format.schema

    def poll(self, split_rows: int, position: Any = None) -> Page:
        require_columns(self.schema.names, self.columns or (), f"the input {', '.join(self.topics)}")
        ends = self._ends()
        if position is None:
            at = {where: low if self.start == "earliest" else high for where, (low, high) in ends.items()}
        else:
            at = {where: low for where, (low, _) in ends.items()} | position
            self._require_still_there(position, ends)
        behind = {where: high - at[where] for where, (_, high) in ends.items() if high > at[where]}
        splits = []
        for topic, partition in sorted(behind, key=lambda where: -behind[where])[:PAGE_SPLITS]:
            first = at[topic, partition]
            stop = at[topic, partition] = min(ends[topic, partition][1], first + split_rows)
            split = KafkaSplit(self._settings, topic, partition, first, stop, self.format, self.columns, self.patience)
            splits.append(split)
        return Page(splits, at)

    def lag(self, position: Any) -> Mapping[str, int]:
        at, is_new = position or {}, position is None and self.start == "latest"
        return {
            f"{where[0]}-{where[1]}": high - at.get(where, high if is_new else low)
            for where, (low, high) in self._ends().items()
        }

    def sample(self, max_rows: int, seed: int = 0, enough: Callable[[], bool] = never) -> pa.Table:
        splits = [split for split in self.poll(max_rows).splits if isinstance(split, KafkaSplit)]
        share = -(-max_rows // max(len(splits), 1))
        some = [replace(split, stop=min(split.stop, split.start + share)) for split in splits]
        return table_of(some, only(self.schema, self.columns)).slice(0, max_rows)

    @property
    def _settings(self) -> Settings:
        return tuple(sorted({"bootstrap.servers": self.servers, **dict(self.options)}.items()))

    def _ends(self) -> dict[Partition, tuple[int, int]]:
        """Each partition's first offset, and the one after the last that may be read."""
        from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        where = f"Kafka at {self.servers}"
        with asking_brokers(where):
            admin = _admin(self._settings)
            asked = []
            for topic, about in admin.describe_topics(TopicCollection(list(self.topics))).items():
                try:
                    partitions = sorted(partition.id for partition in about.result(_ANSWER_SECONDS).partitions)
                except KafkaException as error:
                    raise TableError(f"{where}: the topic {topic!r}: {error.args[0].str()}") from None
                asked += [TopicPartition(topic, partition) for partition in partitions]
            uncommitted = dict(self.options).get("isolation.level") == "read_uncommitted"
            level = IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED
            answers = [
                admin.list_offsets(dict.fromkeys(asked, spec), isolation_level=level, request_timeout=_ANSWER_SECONDS)
                for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
            ]
            low, high = ([answer[one].result(_ANSWER_SECONDS).offset for one in asked] for answer in answers)
        # A broker that is stopped between two answers may leave an offset out, and the client gives -1001 for it then.
        if min([*low, *high], default=0) < 0:
            raise TableError(f"{where}: the answer lacks offsets of partitions") from TimeoutError()
        return {(one.topic, one.partition): (low[place], high[place]) for place, one in enumerate(asked)}

    def _require_still_there(
        self, position: Mapping[Partition, int], ends: Mapping[Partition, tuple[int, int]]
    ) -> None:
        """Check that what follows a position can still be read."""
        for (topic, partition), at in position.items():
            if (topic, partition) not in ends:
                raise TableError(f"the topic {topic} has no partition {partition} any more")
            low, high = ends[topic, partition]
            if at < low:
                raise TableError(_gone(topic, partition, f"offsets {at:,} to {low - 1:,}"))
            if at > high:
                lost = f"ends at offset {high:,}, and was read up to {at:,}"
                why = "it is another topic of that name, or has lost records"
                raise TableError(f"partition {partition} of the topic {topic} {lost}: {why}")


def _gone(topic: str, partition: int, what: str) -> str:
    keep = "let the topic keep its records for longer than the job may lag"
    return f"partition {partition} of the topic {topic} has no {what} any more, which was not read yet: {keep}"


@contextmanager
def asking_brokers(what: str) -> Iterator[None]:
    """Turn Kafka's errors in this block into a `TableError` that starts with `what`: brokers cannot be reached or
    refuse, or the package is missing."""
    try:
        from confluent_kafka import KafkaException
    except ImportError:
        raise TableError("Kafka needs the package confluent-kafka: pip install 'dpa[kafka]'") from None
    try:
        yield
    except KafkaException as error:
        raise TableError(f"{what}: {error.args[0].str()}") from None
    except TimeoutError:
        raise TableError(f"{what}: no answer within {_ANSWER_SECONDS:.0f} s") from None


@dataclass(frozen=True)
class RecordFormat:
    """The columns of records.

    Attributes:
        key, value: their encodings; `bytes` and `string` give the columns `key` and `value`.
        columns: of values that are JSON objects, the fields that become columns. One that has another column's name
            replaces it.
        tolerates: as in `LineFormat`.
    """

    key: Literal["bytes", "string"] = "bytes"
    value: Literal["bytes", "string", "json"] = "bytes"
    columns: pa.Schema | None = None
    tolerates: bool = False

    @cached_property
    def schema(self) -> pa.Schema:
        """All columns."""
        kinds: dict[str, pa.DataType] = {"key": _text_or_bytes(self.key)}
        kinds |= {name: kind for name, (kind, _) in _ABOUT.items()}
        if self.columns is None:
            kinds["value"] = _text_or_bytes(self.value)
        else:
            kinds |= dict(zip(self.columns.names, self.columns.types, strict=True))
        return pa.schema(list(kinds.items()))

    def batch(self, messages: Sequence[Message], names: Sequence[str]) -> tuple[pa.RecordBatch, dict[int, Unread]]:
        """The named columns of the records that can be read, and the others by their place."""
        wanted = only(self.schema, names)
        read = self.schema if self.tolerates else wanted
        fields = only(self.columns or pa.schema([]), read.names)
        texts = [name for name in ("key", "value") if pa.field(name, pa.string()) in {*read} - {*fields}]
        found: list[pa.Table] = []
        wrong: Wrong = {}
        if texts or len(fields):
            line = partial(_line, texts, has_object=len(fields) > 0)
            found, wrong = parsed(messages, line, partial(parsed_objects, schema=fields, spread=True))
        kept = [message for place, message in enumerate(messages) if place not in wrong]
        objects = pa.concat_tables(found or [fields.empty_table()]).combine_chunks()
        columns = [
            objects[field.name].combine_chunks() if field.name in fields.names else _column(field, kept)
            for field in wanted
        ]
        unread = {place: _unread(messages[place], why) for place, why in wrong.items()}
        return pa.record_batch(columns, schema=wanted), unread

    def record(self, data: bytes | None, about: Mapping[str, Any]) -> dict[str, Any]:
        """Read a record again that could not be read. Raises ValueError if it still cannot."""
        kept = {name: partial(lambda value: value, value) for name, value in {**about, "value": data}.items()}
        batch, unread = self.batch([cast("Message", SimpleNamespace(**kept))], self.schema.names)
        if unread:
            raise ValueError(unread[0].message)
        [row] = batch.to_pylist()
        return dict(row)


def _unread(message: Message, why: str) -> Unread:
    kept = ("key", "topic", "partition", "offset", "timestamp", "headers")
    where = f"partition {message.partition()} of the topic {message.topic()}, offset {message.offset():,}"
    shown = f"cannot be read as declared: {why}; its value begins {(message.value() or b'')[:80]!r}"
    return Unread(message.value(), {name: getattr(message, name)() for name in kept}, f"{where}: {shown}")


def _text_or_bytes(kind: str) -> pa.DataType:
    return pa.string() if kind == "string" else pa.binary()


def _column(field: pa.Field, messages: Sequence[Message]) -> pa.Array:
    if field.name in _ABOUT:
        return pa.array(map(_ABOUT[field.name][1], messages), field.type)
    found = [message.key() if field.name == "key" else message.value() for message in messages]
    return pa.array(found, pa.binary()).cast(field.type)


def _line(texts: Sequence[str], message: Message, *, has_object: bool) -> bytes:
    """A record's value as a JSON object: one without fields if the value is null, or not read."""
    for name in texts:
        _ = (getattr(message, name)() or b"").decode()
    value: bytes | None = message.value() if has_object else None
    found = b"{}" if value is None else plain_object(value)
    if not found:
        raise ValueError("it is empty")
    return found
