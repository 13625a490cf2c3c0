"""Topics of a real broker as a feed: partitions, offsets without records, and what is an error."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from builders import map_task
from confluent_kafka import OFFSET_INVALID, KafkaError
from kafka_broker import make_topic, produce

from dpa import Job, Mapper
from dpa._util.outages import may_pass
from dpa.aggregates import Count
from dpa.config import parse
from dpa.errors import ConfigError, TableError
from dpa.execution.emission import Emission
from dpa.execution.mapping import Emitted
from dpa.protocol.task.user_code import UserCode
from dpa.protocol.wire.events import StepDone
from dpa.protocol.wire.instructions import CloseSplit, NextStep, OpenSplit
from dpa.sources.feed import NumberedFeed, table_of
from dpa.sources.kafka import KafkaFeed, KafkaSplit, RecordFormat
from dpa.sources.records import Gaps
from dpa.sources.splits import NumberedSplit, channel_of
from dpa.testing import LocalBackend

TEXT = RecordFormat(key="string", value="string")


def topic_of(servers: str, partitions: int = 1, **more: Any) -> KafkaFeed:
    name = f"t{uuid4().hex}"
    make_topic(servers, name, partitions)
    return KafkaFeed(servers, (name,), **{"format": TEXT, **more})


def values(feed: KafkaFeed, position: Any = None, split_rows: int = 100) -> list[str]:
    splits = feed.poll(split_rows, position).splits
    return table_of(splits)["value"].to_pylist() if splits else []


def test_records_have_columns_for_all_that_kafka_says_of_them(kafka: str) -> None:
    feed = topic_of(kafka, 2)
    produce(kafka, feed.topics[0], [b"a", None], partition=1, key=b"k")
    page = feed.poll(100)
    [split] = page.splits
    assert channel_of(split) == channel_of(NumberedSplit(split, 0)) == f"{feed.topics[0]}-1"
    assert table_of(page.splits).schema == feed.schema
    assert table_of(page.splits).drop_columns("timestamp").to_pylist() == [
        {"key": "k", "topic": feed.topics[0], "partition": 1, "offset": 0, "headers": None, "value": "a"},
        {
            **{"key": "k", "topic": feed.topics[0], "partition": 1, "offset": 1, "value": None},
            "headers": [{"key": "last", "value": b"yes"}],
        },
    ]
    assert table_of(page.splits)["timestamp"].cast(pa.int64()).to_pylist() == [1000, 1001]
    assert table_of(replace(feed, columns=("offset",)).poll(9).splits).column_names == ["offset"]
    assert table_of(replace(feed, columns=()).poll(9).splits).num_rows == 2


def test_partitions_are_read_behind_a_position_the_one_farthest_behind_first(kafka: str) -> None:
    feed = topic_of(kafka, 3)
    for partition in range(3):
        produce(kafka, feed.topics[0], [b"%d" % number for number in range(partition + 2)], partition=partition)
    page = feed.poll(3)
    assert [(split.partition, split.start, split.stop) for split in page.splits if isinstance(split, KafkaSplit)] == [
        (2, 0, 3),
        (1, 0, 3),
        (0, 0, 2),
    ]
    numbered = NumberedFeed(feed)
    assert sum((numbered.lag((page.position, 3)) or {}).values()) == 1 and sum(feed.lag(None).values()) == 9
    assert sum(replace(feed, start="latest").lag(None).values()) == 0
    produce(kafka, feed.topics[0], [b"new"], partition=0)
    again = pickle.loads(pickle.dumps(feed))
    assert values(again, pickle.loads(pickle.dumps(page.position))) == ["new", "3"]
    # a partition that is not in a position has been added since: it is read from its beginning, also with `latest`
    position = {where: at for where, at in page.position.items() if where[1] != 2}
    assert values(replace(feed, start="latest"), position) == ["0", "1", "2", "3", "new"]
    assert values(replace(feed, start="latest")) == []
    first, second = feed.poll(2).splits[0], feed.poll(2, feed.poll(2).position).splits[0]
    assert isinstance(first, KafkaSplit) and first.joined(second) == replace(first, stop=4)
    assert first.joined(first) is None


def test_offsets_without_a_record_are_read_with_the_rows_before_them(kafka: str) -> None:
    """Each transaction ends with a marker, which takes an offset."""
    feed = topic_of(kafka)
    for transaction in ([b"0", b"1"], [b"3"], [b"5"]):
        produce(kafka, feed.topics[0], transaction, transaction=True)
    [split] = feed.poll(100).splits
    assert isinstance(split, KafkaSplit) and split.rows == 7
    assert table_of([split])["offset"].to_pylist() == [0, 1, 3, 5]
    assert table_of([replace(split, stop=5)])["value"].to_pylist() == ["0", "1", "3"]  # ends within a gap
    gaps = Gaps()
    for _ in split.batches(2, gaps):
        pass
    assert [gaps.passed(1) for _ in range(4)] == [0, 1, 1, 1]
    assert list(replace(split, start=6).batches(9)) == []


class Offsets(Mapper):
    """Each record by itself."""

    def map(self, record: Mapping[str, Any]) -> list[tuple[int, int]]:
        return [(record["offset"], 1)]


@pytest.mark.parametrize("number", [None, 3])
def test_whoever_reads_on_finds_the_next_record_behind_a_gap(kafka: str, number: int | None) -> None:
    feed = topic_of(kafka)
    for _ in range(4):
        produce(kafka, feed.topics[0], [b"a", b"b"], transaction=True)
    [split] = feed.poll(100).splits
    seen, step_rows = [], 0
    while split.rows:
        task = map_task(Offsets(), Count())
        code = UserCode(Emission((task,)), 0, clock=lambda: 0.0)
        step_rows = step_rows % 3 + 1
        code.carry_out(OpenSplit(split if number is None else NumberedSplit(split, number)))
        read = 0
        done = code.carry_out(NextStep(step_rows))
        code.carry_out(CloseSplit())
        while isinstance(done, StepDone) and done.step is not None:
            assert isinstance(done.step, Emitted)
            read += done.step.read
            seen += [key for _, block in done.step.blocks for key in block.keys.to_pylist()]
            done = code.carry_out(NextStep(step_rows))
        split = split.after(read)
    assert seen == [0, 1, 3, 4, 6, 7, 9, 10]


def test_json_becomes_columns_that_are_declared(kafka: str) -> None:
    columns = pa.schema([("n", pa.int64()), ("at", pa.timestamp("ms")), ("offset", pa.string())])
    feed = topic_of(kafka, format=RecordFormat(value="json", columns=columns))
    found = [b'{"n": 1, "at": "2024-05-01T10:00:00", "other": 2}', b'{"offset":\n "x"}', None]
    produce(kafka, feed.topics[0], found)
    read = replace(feed, columns=("n", "offset", "key"))
    assert table_of(read.poll(9).splits).to_pylist() == [
        {"key": None, "offset": None, "n": 1},
        {"key": None, "offset": "x", "n": None},
        {"key": None, "offset": None, "n": None},
    ]
    assert table_of(feed.poll(9).splits)["at"].null_count == 2
    assert read.sample(2)["n"].to_pylist() == [1, None]
    produce(kafka, feed.topics[0], [b'{"n": 2}', b'{"n": "two"}'])
    with pytest.raises(TableError, match=r"offset 4: cannot be read as declared: .*number.*its value begins b'\{\"n\""):
        table_of(feed.poll(9).splits)


def test_records_that_are_gone_are_an_error(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:

    feed = topic_of(kafka)
    produce(kafka, feed.topics[0], [b"a", b"b"])
    page = feed.poll(1)
    where = feed.topics[0], 0
    with pytest.raises(TableError, match=r"ends at offset 2, and was read up to 9: it is another topic of that name"):
        feed.poll(1, {where: 9})
    with pytest.raises(TableError, match="has no partition 7 any more"):
        feed.poll(1, {(where[0], 7): 0})
    [split] = page.splits
    assert isinstance(split, KafkaSplit)
    # this broker removes no records: what others would say
    with pytest.raises(TableError, match=r"partition 0 of the topic t\w+ has no offset 0 any more, which was not read"):
        split._failed(KafkaError(KafkaError._AUTO_OFFSET_RESET))
    with pytest.raises(TableError, match=r"t\w+-0: .*[Aa]uthorization"):
        split._failed(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    split._failed(KafkaError(KafkaError._TRANSPORT))  # librdkafka connects again
    monkeypatch.setattr(KafkaFeed, "_ends", lambda feed: {where: (5, 8)})
    with pytest.raises(TableError, match=r"has no offsets 1 to 4 any more, .*: let the topic keep its records"):
        feed.poll(1, page.position)


def test_brokers_and_topics_that_are_not_there_are_said(kafka: str) -> None:
    with pytest.raises(TableError, match=f"Kafka at {kafka}: the topic 'none': Broker: Unknown topic"):
        KafkaFeed(kafka, ("none",), TEXT).poll(9)
    with pytest.raises(TableError, match="has no column 'm'"):
        topic_of(kafka, columns=("m",)).poll(9)
    with pytest.raises(TableError, match=r"Kafka at nowhere:1: .*"):
        KafkaFeed("nowhere:1", ("t",), TEXT, options=(("log_level", "0"), ("no.such", "1"))).poll(9)


def test_an_offset_that_brokers_leave_out_is_an_outage_and_no_end(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = topic_of(kafka)
    offset: Any = SimpleNamespace(result=lambda seconds: SimpleNamespace(offset=OFFSET_INVALID))
    monkeypatch.setattr(
        "confluent_kafka.admin.AdminClient.list_offsets", lambda admin, asked, **more: dict.fromkeys(asked, offset)
    )
    with pytest.raises(TableError, match=f"Kafka at {kafka}: the answer lacks offsets of partitions") as raised:
        feed.poll(1, {(feed.topics[0], 0): 1})
    assert may_pass(raised.value)


def test_a_job_file_names_topics(kafka: str) -> None:
    feed = topic_of(kafka)
    produce(kafka, feed.topics[0], [b'{"page": "a", "n": 1}', b'{"page": "b", "n": 5}', b'{"page": "a", "n": 2}'])
    section = {"servers": kafka, "topic": feed.topics[0], "value": "json", "columns": {"page": "string", "n": "int64"}}
    read = {"format": "kafka", "kafka": section}
    job = Job(file=parse({"input": read, "key": "page", "reducer": {"use": "sum", "args": {"column": "n"}}}))
    assert dict(zip(*job.run(backend=LocalBackend()).table().to_pydict().values(), strict=True)) == {"a": 3, "b": 5}
    for wrong, message in (
        ({"value": "bytes"}, "`value: json` goes with `columns`"),
        ({"start": "middle"}, r"input.kafka.start: .*earliest"),
        ({"topic": "none"}, "input: Kafka at .*: the topic 'none': Broker: Unknown topic"),
    ):
        document = {"input": {**read, "kafka": {**section, **wrong}}, "key": "page", "reducer": "count"}
        with pytest.raises(ConfigError, match=message):
            Job(file=parse(document)).run(backend=LocalBackend())
    with pytest.raises(ConfigError, match="format 'kafka' needs the key 'kafka'"):
        parse({"input": {"format": "kafka"}, "key": "page", "reducer": "count"})


def test_a_broker_is_silent_neither_while_a_task_works_nor_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("dpa.sources.kafka.time", SimpleNamespace(monotonic=lambda: now[0]))
    found = [[SimpleNamespace(error=lambda: None, offset=lambda at=at: at)] for at in (0, 1)]
    answers = [found[0], [], found[1]]
    consumer: Any = SimpleNamespace(consume=lambda most, seconds: answers.pop(0))
    read = 0
    for messages in KafkaSplit((), "visits", 0, 0, 2, TEXT)._consumed(consumer, 1):
        read += len(messages)
        now[0] += 3600.0
    assert read == 2
