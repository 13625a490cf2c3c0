"""Results by epoch in every place that can have them: each epoch as a whole, once, and read back."""

from __future__ import annotations

import pickle
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from epoch_jobs import Place, place_of

from dpa.errors import TableError
from dpa.execution.publishing import Publishes
from dpa.sinks import objects
from dpa.sinks.memory import Callback
from dpa.sources.parquet import parquet_table

FILES = ["directory", "csv", "partitions", "objects", "objects partitions"]


@pytest.fixture(params=[*FILES, "delta", "delta partitions", "iceberg", "iceberg partitions"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return place_of(request.param, tmp_path, request)


def test_each_epoch_adds_its_rows_and_the_last_one_the_rest(place: Place) -> None:
    job = place.job()
    with pytest.raises(TableError, match="no complete epoch, or not yet"):
        place.read()
    job.publish(1, 1, 2)
    before = place.read()
    assert (before.epoch, before.seconds, before.is_last, place.values()) == (1, 0.5, False, [1, 2])
    job.staged(2, 7)
    job.publish(3, 3)
    found = before.wait(timeout=5)
    assert (found.epoch, sorted(found.polars()["value"])) == (3, [1, 2, 3])
    job.end(4, 4)
    last = place.read()
    assert (last.epoch, last.is_last, place.values()) == (4, True, [1, 2, 3, 4])
    with pytest.raises(TableError, match="epoch 4 is the newest after 0"):
        place.read().wait(timeout=0)


def test_a_table_is_replaced_as_a_whole_at_every_epoch(place: Place) -> None:
    job = place.job("table")
    for epoch, values in ((1, [1, 2]), (2, [3]), (4, [3, 4])):
        job.publish(epoch, *values)
        assert (place.read().epoch, place.values()) == (epoch, values)
    job.end(5, 5, 6)
    assert (place.read().epoch, place.values()) == (5, [5, 6])


def test_an_epoch_that_is_committed_again_changes_nothing(place: Place) -> None:
    job = place.job(name="me", saved=True)
    first = job.publish(1, 1)
    pending = job.staged(2, 2)
    job.restart()
    for epoch, staged in ((1, first), (2, pending), (2, pending)):
        job.coordinator.commit(staged, epoch, 1.0)
    job.publish(3, 3)
    job.sink.abort()
    resumed = place.job(name="me", saved=True)
    resumed.coordinator.commit(pending, 2, 1.0)
    resumed.end(4, 4)
    again = place.job(name="me", saved=True)
    again.publish(4, 4)
    again.end(5, 5)
    assert place.values() == [1, 2, 3, 4], "what is over stays as it is"


@pytest.mark.parametrize("mode", ["error", "overwrite"])
def test_a_job_that_is_begun_anew_publishes_all_again_in_place_of_what_it_had(place: Place, mode: str) -> None:
    job = place.job(mode=mode)
    job.publish(1, 1)
    job.publish(2, 2)
    job.restart()
    assert place.values() == [1, 2], "until there is something else"
    job.publish(1, 1, 2)
    assert place.values() == [1, 2]
    job.end(2, 3)
    assert place.values() == [1, 2, 3]


def test_a_job_that_appends_and_is_begun_anew_has_rows_twice(tmp_path: Path) -> None:
    place = place_of("delta", tmp_path)
    job = place.job(mode="append")
    job.publish(1, 1)
    job.restart()
    job.publish(1, 1, 2)
    assert place.values() == [1, 1, 2]


@pytest.mark.parametrize(("publishes", "version"), [(None, 0), ("final", 2**62)])
def test_a_last_epoch_of_an_earlier_version_which_had_no_number_is_known(
    publishes: Publishes | None, version: int, tmp_path: Path
) -> None:
    properties = CommitProperties(app_transactions=[Transaction("me", version)])
    write_deltalake(tmp_path / "place", pa.table({"key": ["k1"], "value": [1]}), commit_properties=properties)
    job = place_of("delta", tmp_path).job(publishes, name="me", saved=publishes is not None)
    newest = job.sink.newest()
    assert newest is not None and newest.is_last
    if publishes is not None:
        job.publish(3, 3)
    job.end(4, 4)
    assert DeltaTable(tmp_path / "place").to_pyarrow_table()["value"].to_pylist() == [1]


def test_what_another_job_has_published_is_replaced_only_if_that_is_asked_for(place: Place) -> None:
    first = place.job()
    first.publish(1, 1)
    first.publish(2)
    first.end(3)
    with pytest.raises(TableError, match=r"set output.mode to"):
        place.job()
    job = place.job(mode="overwrite")
    assert place.values() == [1]
    job.publish(1, 2)
    assert place.values() == [2]


def test_many_small_files_become_few_in_the_order_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_FANOUT", 3)
    place, directory, every = place_of("directory", tmp_path), tmp_path / "place", [*range(1, 3 * 3 * 4 + 1)]
    job = place.job()
    for epoch in every:
        job.publish(epoch, epoch)
    assert place.read().table["value"].to_pylist() == every
    names = [path.name for path in directory.glob("*.parquet")]
    assert len(names) < 20 and any(name.startswith("merged-2-") for name in names)
    assert sorted(parquet_table([str(directory)]).read()["value"].to_pylist()) == every
    files = job.coordinator._manifest()[0].files  # type: ignore[attr-defined]
    assert pl.read_parquet([directory / name for name in files]).height == len(every)


def test_a_function_is_given_the_rows_of_each_epoch_that_has_any_and_after_a_failure_again() -> None:
    given: list[tuple[int, list[int]]] = []

    def post(rows: pa.Table, epoch: int) -> None:
        given.append((epoch, rows["value"].to_pylist()))
        if len(given) in (2, 3):
            raise ConnectionError("no answer")

    sink = Callback(post)
    sink.begin()
    for epoch, tables in ((1, [[1], [2, 3]]), (2, []), (3, [[4]])):
        task = pickle.loads(pickle.dumps(sink))
        staged = [task.stage(pa.table({"value": rows}), 0, epoch) for rows in tables]
        for _ in range(2 if epoch == 3 else 0):
            with pytest.raises(ConnectionError):
                sink.commit(staged, epoch, 0.0, is_last=True)
        sink.commit(staged, epoch, 0.0, is_last=epoch == 3)
    assert given == [(1, [1, 2, 3]), *[(3, [4])] * 3]
