"""What was published after a checkpoint can be taken back, or the sink says why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from epoch_jobs import LINE, Job, Place, place_of
from kafka_broker import make_topic

from dpa._util.lines import Line
from dpa.checkpoints import FileRef, Manifest
from dpa.errors import CheckpointError, TableError
from dpa.protocol.published import is_ahead
from dpa.sinks import _layout, objects
from dpa.sinks._kafka import KafkaTopic
from dpa.sinks.directory import ResultDirectory
from dpa.sinks.objects import ResultFiles
from dpa.sinks.sink import Newest, Target
from tests.unit.output_samples import publishing


def made(epoch: int, line: Line) -> Manifest:
    """A checkpoint that ends with an epoch."""
    return Manifest(1, 0, epoch, 0.0, 0.0, 0, FileRef("files/x", 0, ""), (), line)


@pytest.fixture(params=["directory", "json", "objects", "delta", "iceberg"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return place_of(request.param, tmp_path, request)


@pytest.fixture
def few_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Place:
    """A directory in which three files are merged into one."""
    monkeypatch.setattr(objects, "_FANOUT", 3)
    return place_of("directory", tmp_path)


def test_the_epochs_behind_one_are_taken_back_and_published_again_with_other_rows(place: Place) -> None:
    job = place.job(saved=True)
    assert job.known().newest() is None
    pending = [job.publish(epoch, epoch, epoch * 10) for epoch in (1, 2, 3, 5, 6)]
    job.publish(7, 7, is_last=True)
    job.sink.abort()
    assert job.known().newest() == Newest(6, LINE, is_last=True)

    job.known().take_back(3, is_trial=True)
    assert place.values() == [1, 2, 3, 5, 6, 7, 10, 20, 30, 50, 60]
    job.known().take_back(3, is_trial=False)
    assert job.known().newest() == Newest(3, LINE[:1])
    assert place.values() == [1, 2, 3, 10, 20, 30]

    job.begin()
    job.coordinator.commit(pending[2], 3, 1.0)
    other: Line = ((0, "one"), (4, "third"))
    job.publish(4, 4, line=other)
    assert job.known().newest() == Newest(4, other)
    job.publish(5, 50, line=other)
    job.publish(7, 60, is_last=True)
    assert place.values() == [1, 2, 3, 4, 10, 20, 30, 50, 60]
    job.sink.abort()

    job.known().take_back(1, is_trial=False)
    assert place.values() == [1, 10]
    job.begin()
    job.publish(2, 2)
    job.sink.abort()
    job.known().take_back(0, is_trial=False)
    assert (place.values(), job.known().newest()) == ([], Newest(0, LINE[:1]))
    job.begin()
    job.publish(1, 1)
    job.publish(2, 2, is_last=True)
    assert place.values() == [1, 2]


def test_an_epoch_without_rows_is_one_to_go_back_to(place: Place) -> None:
    job = place.job(saved=True)
    for epoch in (1, 2, 3):
        job.publish(epoch, *([] if epoch == 2 else [epoch]))
    job.sink.abort()
    job.known().take_back(2, is_trial=False)
    assert place.values() == [1]
    newest = job.known().newest()
    assert newest is not None and newest.epoch == 2


@pytest.mark.parametrize("place", ["delta", "iceberg"], indirect=True)
def test_what_a_job_had_replaced_is_there_again(place: Place) -> None:
    before = place.job(saved=True)
    before.publish(1, 8, 9)
    before.sink.abort()
    job = place.job(saved=True, mode="overwrite")
    job.publish(1, 1)
    job.publish(2, 2)
    assert place.values() == [1, 2]
    job.known().take_back(0, is_trial=False)
    assert place.values() == [8, 9]
    job.begin()
    job.publish(1, 3)
    assert place.values() == [3, 8, 9]


@pytest.mark.parametrize("until", range(1, 37))
def test_files_that_were_merged_are_cut_between_epochs(few_files: Place, until: int) -> None:
    job = few_files.job(saved=True)
    for epoch in range(1, 37):
        job.publish(epoch, *[epoch] * (1 + epoch % 3))
    job.sink.abort()
    job.known().take_back(until, is_trial=False)
    assert few_files.values() == [epoch for epoch in range(1, until + 1) for _ in range(1 + epoch % 3)]
    job.begin()
    for epoch in range(until + 1, 40):
        job.publish(epoch, epoch)
    assert few_files.values()[-1] == 39
    assert not few_files.read().table.schema.metadata


def test_a_job_that_had_ended_is_resumed_behind_all_that_its_epochs_before_the_last_go_with(place: Place) -> None:
    job = place.job(saved=True)
    for epoch in (1, 4):
        job.publish(epoch, epoch)
    job.publish(8, 8, is_last=True)  # epochs that publish nothing lie between, maybe made by others
    job.sink.abort()
    newest = job.known().newest()
    assert newest == Newest(4, LINE, is_last=True)
    one, other = LINE
    for epoch, line, found in (
        (4, LINE, False),
        (6, (*LINE, (6, "third")), False),
        (9, (*LINE, (8, "third")), False),
        (3, (one,), True),
    ):
        assert is_ahead(newest, "it", made(epoch, line)) is found
    with pytest.raises(CheckpointError, match="it has epoch 4 of this job; from epoch 4 on"):
        is_ahead(newest, "it", made(6, (one, (4, "third"))))
    assert is_ahead(newest, "it", None)
    job.known().take_back(6, is_trial=False)
    assert (place.values(), job.known().newest()) == ([1, 4], Newest(6, (one, other)))


def test_epochs_that_are_counted_together_are_not_told_apart(few_files: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_layout, "_MOST_EPOCHS", 4)
    job = few_files.job(saved=True)
    for epoch in range(1, 37):
        job.publish(epoch, epoch)
    job.sink.abort()
    with pytest.raises(TableError, match=r"merged-2-\w+-\d+.parquet has rows of epochs up to"):
        job.known().take_back(2, is_trial=True)
    for until in (33, 9):
        job.known().take_back(until, is_trial=False)
        assert few_files.values() == [*range(1, until + 1)]


def test_files_that_do_not_say_their_epochs_are_refused(few_files: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    job = few_files.job(saved=True)
    # It merges as a version did that did not know of this.
    job.coordinator.know(replace(job.coordinator.job_context, with_checkpoints=False))
    life = type(job.coordinator)._life
    monkeypatch.setattr(ResultFiles, "_life", "")
    for epoch in range(1, 20):
        job.publish(epoch, epoch)
    monkeypatch.setattr(ResultFiles, "_life", life)
    job.sink.abort()
    with pytest.raises(TableError, match="does not say which"):
        job.known().take_back(2, is_trial=True)


def test_rows_of_others_are_never_taken_back(tmp_path: Path) -> None:
    path, place = str(tmp_path / "place"), place_of("delta", tmp_path)
    job = place.job(saved=True, mode="append")
    job.publish(1, 1)
    write_deltalake(path, pa.table({"key": ["x"], "value": [100]}), mode="append")
    job.publish(2, 2)
    DeltaTable(path).optimize.compact()
    job.known().take_back(1, is_trial=False)
    assert place.values() == [1, 100]
    job.publish(2, 2)
    write_deltalake(path, pa.table({"key": ["x"], "value": [200]}), mode="append")
    with pytest.raises(TableError, match=r"others have written to .*place since epoch 1, and would be undone"):
        job.known().take_back(1, is_trial=True)
    assert place.values() == [1, 2, 100, 200]


def test_a_version_whose_files_are_gone_is_refused(tmp_path: Path) -> None:
    path, job = str(tmp_path / "place"), place_of("delta", tmp_path).job(saved=True)
    for epoch in (1, 2, 3):
        job.publish(epoch, epoch)
    DeltaTable(path).optimize.compact()
    DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(TableError, match=r"version \d of .*place is gone: .* was vacuumed"):
        job.known().take_back(2, is_trial=True)


def test_a_job_that_runs_keeps_its_directory(tmp_path: Path) -> None:
    job = place_of("directory", tmp_path).job(saved=True)
    job.publish(1, 1)
    with pytest.raises(TableError, match="another job publishes its results in"):
        job.known().take_back(0, is_trial=True)


def test_a_whole_result_says_that_it_is_there(tmp_path: Path) -> None:
    job = Job(lambda: ResultDirectory(Target(str(tmp_path / "out"))), with_checkpoints=True)
    assert job.known().newest() is None
    job.publish(1, 1, is_last=True)
    assert job.known().newest() == Newest(0, is_last=True)
    with pytest.raises(TableError, match=r"what was published at .*out cannot be taken back"):
        job.known().take_back(1, is_trial=True)


def test_records_of_a_topic_stay(kafka: str) -> None:
    topic = f"t{uuid4().hex}"
    make_topic(kafka, topic)
    target = Target(topic, args={"bootstrap.servers": kafka})
    job = Job(lambda: publishing(KafkaTopic(target), "final"), with_checkpoints=True)
    assert job.known().newest() is None
    job.publish(3, 1)
    job.publish(5, 2)
    newest = job.known().newest()
    assert newest is not None and newest.epoch == 5
    assert newest.line in (LINE, ()), "what is beside an offset this broker does not keep"
    job.publish(6, 3, is_last=True)
    assert job.known().newest() == Newest(5, newest.line, is_last=True)
    with pytest.raises(TableError, match=r"what was published at t\w+ at .* cannot be taken back"):
        job.known().take_back(3, is_trial=True)


def test_a_job_is_resumed_where_another_one_has_begun_but_not_where_it_has_published(tmp_path: Path) -> None:
    place = place_of("directory", tmp_path)
    job = place.job(saved=True)
    job.publish(1, 1, 10)
    staged = job.staged(2, 2, 20)
    job.sink.abort()
    assert job.known().newest() == Newest(1, LINE[:1])
    place.job(saved=True, mode="overwrite").sink.abort()
    assert job.known().newest() == Newest(1, LINE[:1])
    job.begin()
    job.coordinator.commit(staged, 2, 1.0)  # as the newest checkpoint says
    job.sink.abort()
    assert place.values() == [1, 2, 10, 20], "what was staged is still there"
    other = place.job(saved=True, mode="overwrite")
    other.publish(1, 5)
    other.sink.abort()
    assert place.values() == [5]
    with pytest.raises(TableError, match="another job has published there since, so rows of this one are missing"):
        job.known().newest()


def test_epochs_that_were_staged_before_a_death_are_all_there_when_the_first_of_them_is_committed(place: Place) -> None:
    job = place.job(saved=True)
    pending = [job.staged(epoch, epoch) for epoch in (1, 2)]
    job.sink.abort()
    job.begin()
    for epoch, staged in enumerate(pending, start=1):
        job.coordinator.commit(staged, epoch, 1.0)
    job.sink.abort()
    assert place.values() == [1, 2]
