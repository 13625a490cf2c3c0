"""Results by epoch in every place that can have them: each epoch as a whole, once, and read back."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import BucketTransform

from dpa import Results, results
from dpa.errors import TableError
from dpa.execution.publishing import Publishes
from dpa.sinks import objects
from dpa.sinks._iceberg import Iceberg
from dpa.sinks._layout import FileLayout
from dpa.sinks.delta import Delta
from dpa.sinks.encodings import ENCODINGS
from dpa.sinks.memory import Callback
from dpa.sinks.objects import ResultFiles
from dpa.sinks.sink import Sink, Target
from dpa.sources.parquet import parquet_table
from experiments.s3_server import uri_of
from tests.unit.output_samples import publishing


class Place:
    """Where a job publishes, and a reader of it."""

    def __init__(self, make: Callable[[str, Publishes], Sink], read: Callable[[], Results]) -> None:
        self.make, self.read = make, read

    def job(self, publishes: Publishes, *, name: str = "", with_checkpoints: bool = False, mode: str = "error") -> Job:
        return Job(self.make(mode, publishes), name, with_checkpoints=with_checkpoints)

    def values(self) -> list[int]:
        return sorted(self.read().table["value"].to_pylist())


class Job:
    """What a driver and its coordinators do with a sink."""

    def __init__(self, sink: Sink, name: str, *, with_checkpoints: bool) -> None:
        sink.know(replace(sink.job_context, job=name or sink.job, with_checkpoints=with_checkpoints))
        self.sink = sink
        sink.check()
        self.begin()

    def begin(self) -> None:
        self.sink.begin()
        self.coordinator: Sink = pickle.loads(pickle.dumps(self.sink))

    def restart(self) -> None:
        self.sink.abort()
        self.begin()

    def staged(self, epoch: int, *values: int) -> list[Any]:
        """What a task has staged for each value."""
        tables = [pa.table({"key": [f"k{value}"], "value": [value]}) for value in values]
        task = pickle.loads(pickle.dumps(self.sink))
        return [task.stage(table, number, epoch) for number, table in enumerate(tables)]

    def publish(self, epoch: int, *values: int) -> list[Any]:
        staged = self.staged(epoch, *values)
        self.coordinator.commit(staged, epoch, epoch / 2)
        return staged

    def end(self, epoch: int, *values: int) -> None:
        self.sink.commit(self.staged(epoch, *values), epoch, 9.0, is_last=True)
        self.sink.abort()


COLUMNS = pa.schema([("key", pa.string()), ("value", pa.int32())])
"""Of tables that are there before, partitioned by the first."""


@pytest.fixture(
    params=[
        "directory",
        "csv",
        "partitions",
        "objects",
        "objects partitions",
        "delta",
        "delta partitions",
        "iceberg",
        "iceberg partitions",
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    path = str(tmp_path / "place")
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{path}"}
    match request.param:
        case "iceberg" | "iceberg partitions":
            name = "here.some.table"
            if request.param != "iceberg":
                there = SqlCatalog("here", **catalog)
                there.create_namespace("some")
                with there.create_table("some.table", COLUMNS).update_spec() as update:
                    update.add_field("key", BucketTransform(3))
            return Place(
                lambda mode, publishes: publishing(Iceberg(Target(name, mode, catalog)), publishes),
                lambda: results(name, format="iceberg", options=catalog),
            )
        case "delta" | "delta partitions":
            if request.param != "delta":
                DeltaTable.create(path, Schema.from_arrow(COLUMNS), partition_by=["key"])
            return Place(lambda mode, kind: publishing(Delta(Target(path, mode)), kind), lambda: results(path))
        case "objects" | "objects partitions":
            path = uri_of(request.getfixturevalue("s3_port"), f"results/{tmp_path.name}")
    layout = FileLayout(partition_by=("key",)) if request.param.endswith("partitions") else FileLayout()
    if request.param == "csv":
        layout = FileLayout(ENCODINGS[1], "zstd")
    return Place(lambda mode, kind: publishing(ResultFiles(Target(path, mode), layout), kind), lambda: results(path))


def test_each_epoch_adds_its_rows_and_the_last_one_the_rest(place: Place) -> None:
    job = place.job("final")
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
    job = place.job("final", name="me", with_checkpoints=True)
    first = job.publish(1, 1)
    pending = job.staged(2, 2)
    job.restart()
    for epoch, staged in ((1, first), (2, pending), (2, pending)):
        job.coordinator.commit(staged, epoch, 1.0)
    job.publish(3, 3)
    job.sink.abort()
    resumed = place.job("final", name="me", with_checkpoints=True)
    resumed.coordinator.commit(pending, 2, 1.0)
    resumed.end(4, 4)
    again = place.job("final", name="me", with_checkpoints=True)
    again.publish(4, 4)
    again.end(5, 5)
    assert place.values() == [1, 2, 3, 4], "what is over stays as it is"


@pytest.mark.parametrize("mode", ["error", "overwrite"])
def test_a_job_that_is_begun_anew_publishes_all_again_in_place_of_what_it_had(place: Place, mode: str) -> None:
    job = place.job("final", mode=mode)
    job.publish(1, 1)
    job.publish(2, 2)
    job.restart()
    assert place.values() == [1, 2], "until there is something else"
    job.publish(1, 1, 2)
    assert place.values() == [1, 2]
    job.end(2, 3)
    assert place.values() == [1, 2, 3]


def test_a_job_that_appends_and_is_begun_anew_has_rows_twice(tmp_path: Path) -> None:
    path = str(tmp_path)
    job = Job(publishing(Delta(Target(path, "append")), "final"), "", with_checkpoints=False)
    job.publish(1, 1)
    job.restart()
    job.publish(1, 1, 2)
    assert sorted(results(path).table["value"].to_pylist()) == [1, 1, 2]


@pytest.mark.parametrize(("publishes", "version"), [(None, 0), ("final", 2**62)])
def test_a_last_epoch_of_an_earlier_version_which_had_no_number_is_known(
    publishes: Publishes | None, version: int, tmp_path: Path
) -> None:
    properties = CommitProperties(app_transactions=[Transaction("me", version)])
    write_deltalake(tmp_path, pa.table({"key": ["k1"], "value": [1]}), commit_properties=properties)
    job = Job(publishing(Delta(Target(str(tmp_path))), publishes), "me", with_checkpoints=publishes is not None)
    newest = job.sink.newest()
    assert newest is not None and newest.is_last
    if publishes is not None:
        job.publish(3, 3)
    job.end(4, 4)
    assert DeltaTable(tmp_path).to_pyarrow_table()["value"].to_pylist() == [1]


def test_what_another_job_has_published_is_replaced_only_if_that_is_asked_for(place: Place) -> None:
    place.job("final").end(1, 1)
    with pytest.raises(TableError, match=r"set output.mode to"):
        place.job("final")
    job = place.job("final", mode="overwrite")
    assert place.values() == [1]
    job.publish(1, 2)
    assert place.values() == [2]


def test_an_epoch_without_rows_may_be_the_last(place: Place) -> None:
    job = place.job("final")
    job.publish(1, 1)
    job.publish(2)
    job.end(3)
    assert place.values() == [1]


def test_many_small_files_become_few_in_the_order_of_their_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_FANOUT", 3)
    job = Job(publishing(ResultFiles(Target(str(tmp_path))), "final"), "", with_checkpoints=False)
    epochs = 3 * 3 * 4
    table = pa.table({"value": [0]})
    for epoch in range(1, epochs + 1):
        rows = table.set_column(0, "value", pa.array([epoch]))
        job.coordinator.commit([job.coordinator.stage(rows, 0, epoch)], epoch, 0.0)
    assert results(tmp_path).table["value"].to_pylist() == [*range(1, epochs + 1)]
    names = [path.name for path in tmp_path.glob("*.parquet")]
    assert len(names) < 20 and any(name.startswith("merged-2-") for name in names)
    assert sorted(parquet_table([str(tmp_path)]).read()["value"].to_pylist()) == [*range(1, epochs + 1)]
    assert pl.read_parquet([tmp_path / name for name in job.coordinator._manifest()[0].files]).height == epochs  # type: ignore[attr-defined]


def test_a_function_is_given_the_rows_of_each_epoch_that_has_any() -> None:
    given: list[tuple[int, list[int]]] = []
    sink = Callback(lambda rows, epoch: given.append((epoch, rows["value"].to_pylist())))
    sink.begin()
    for epoch, tables in ((1, [[1], [2, 3]]), (2, []), (3, [[4]]), (4, [[5]])):
        task = pickle.loads(pickle.dumps(sink))
        sink.commit([task.stage(pa.table({"value": rows}), 0, epoch) for rows in tables], epoch, 0.0)
    assert given == [(1, [1, 2, 3]), (3, [4]), (4, [5])]


def test_a_function_that_has_failed_is_given_the_last_rows_again_with_the_same_number() -> None:
    given: list[int] = []

    def post(rows: pa.Table, epoch: int) -> None:
        given.append(epoch)
        if len(given) in (2, 3):
            raise ConnectionError("no answer")

    sink = Callback(post)
    sink.begin()
    rows = [pa.table({"value": [1]})]
    sink.commit(rows, 1, 0.0)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            sink.commit(rows, 2, 0.0, is_last=True)
    sink.commit(rows, 2, 0.0, is_last=True)
    assert given == [1, 2, 2, 2]
