"""Results in a topic of a real broker: each epoch in one transaction, once with checkpoints."""

from __future__ import annotations

import datetime
import decimal
import json
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from epoch_jobs import Job
from kafka_broker import make_topic

from dpa.errors import TableError
from dpa.execution.publishing import Publishes
from dpa.sinks._kafka import KafkaTopic
from dpa.sinks.sink import Target
from dpa.sources.feed import table_of
from dpa.sources.kafka import KafkaFeed, RecordFormat
from tests.unit.output_samples import publishing


class KafkaJob(Job):
    """A job that publishes to a topic, and what a reader finds there."""

    def __init__(self, servers: str, topic: str = "", *, publishes: Publishes | None = "final", **about: Any) -> None:
        self.servers, self.topic = servers, topic or f"t{uuid4().hex}"
        if not topic:
            make_topic(servers, self.topic, 2)
        target = Target(self.topic, args={"bootstrap.servers": servers})
        super().__init__(lambda: publishing(KafkaTopic(target), publishes), **about)

    def records(self) -> list[dict[str, Any]]:
        feed = KafkaFeed(self.servers, (self.topic,), RecordFormat(key="string", value="string"))
        splits = feed.poll(1_000).splits
        return table_of(splits).to_pylist() if splits else []

    def values(self) -> list[int]:
        return sorted(json.loads(record["value"])["value"] for record in self.records())


def test_rows_are_records_that_say_where_they_are_from(kafka: str) -> None:
    job = KafkaJob(kafka)
    staged = job.publish(1, 1, 2)
    job.coordinator.commit([], 2, 1.0)
    job.publish(3, 3, is_last=True)
    found = {record["key"]: record for record in job.records()}
    assert {key: json.loads(record["value"]) for key, record in found.items()} == {
        f"k{value}": {"key": f"k{value}", "value": value} for value in (1, 2, 3)
    }
    headers = {key: {each["key"]: each["value"].decode() for each in found[key]["headers"]} for key in found}
    assert headers["k2"] == {"job": job.sink.job, "epoch": "1", "number": "1"}
    assert headers["k3"]["epoch"] == "3"
    assert job.sink.read(staged)["value"].to_pylist() == [1, 2]


def test_an_epoch_is_there_once_whoever_commits_it_again(kafka: str) -> None:
    job = KafkaJob(kafka, with_checkpoints=True, name=uuid4().hex)
    first = job.publish(1, 1)
    pending = [pa.table({"key": ["k2"], "value": [2]})]
    job.restart()
    for epoch, staged in ((1, first), (2, pending), (2, pending)):
        job.coordinator.commit(staged, epoch, 1.0)
    job.publish(3, 3)
    resumed = KafkaJob(kafka, job.topic, with_checkpoints=True, name=job.sink.job)
    resumed.coordinator.commit(pending, 2, 1.0)
    with pytest.raises(TableError, match="fence"):  # a coordinator that is thought to be dead
        job.publish(4, 44)
    resumed.publish(4, 4)
    resumed.publish(5, 5, is_last=True)
    again = KafkaJob(kafka, job.topic, with_checkpoints=True, name=job.sink.job)
    again.publish(5, 6)
    again.publish(6, 7, is_last=True)
    assert job.values() == [1, 2, 3, 4, 5]


def test_without_checkpoints_a_job_that_is_begun_anew_publishes_all_again(kafka: str) -> None:
    job = KafkaJob(kafka)
    job.publish(1, 1)
    job.restart()
    job.publish(1, 1, 2)
    job.publish(2, is_last=True)
    job.publish(2, 9, is_last=True)
    assert job.values() == [1, 1, 2]
    whole = KafkaJob(kafka, publishes=None)
    for _ in range(2):
        whole.publish(1, 1, 2, is_last=True)
    assert whole.values() == [1, 2], "a result without epochs is there once"


def test_values_that_json_does_not_have_are_texts(kafka: str) -> None:
    job = KafkaJob(kafka)
    job.sink.know(replace(job.sink.job_context, key=("day", "n")))
    day = datetime.date(2024, 5, 1)
    row = {"day": day, "n": 1, "raw": b"\x00\xff", "price": decimal.Decimal("1.50"), "none": None, "list": [1.5]}
    job.sink.commit([pa.Table.from_pylist([row])], 1, 0.0, is_last=True)
    [record] = job.records()
    assert record["key"] == '["2024-05-01", 1]'
    assert json.loads(record["value"]) == {
        **{"day": "2024-05-01", "n": 1, "raw": "AP8=", "price": "1.50", "none": None, "list": [1.5]}
    }


def test_what_cannot_be_a_topic_is_said_before_anything_runs(kafka: str) -> None:
    with pytest.raises(TableError, match=r"set output.args to \{bootstrap.servers"):
        KafkaTopic(Target("t"))
    with pytest.raises(TableError, match=r"transactional\.id is set by dpa"):
        KafkaTopic(Target("t", args={"bootstrap.servers": kafka, "transactional.id": "mine"}))
    with pytest.raises(TableError, match="there is no topic nowhere at"):
        KafkaTopic(Target("nowhere", args={"bootstrap.servers": kafka})).check()
