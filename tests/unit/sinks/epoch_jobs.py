"""Jobs that publish by epoch, at places of every kind, and what readers find there."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import BucketTransform

from dpa import Results, results
from dpa._util.lines import Line
from dpa.execution.publishing import Publishes
from dpa.sinks._iceberg import Iceberg
from dpa.sinks._layout import FileLayout
from dpa.sinks.delta import Delta
from dpa.sinks.encodings import ENCODINGS
from dpa.sinks.objects import ResultFiles
from dpa.sinks.sink import Sink, Target
from experiments.s3_server import uri_of
from tests.unit.output_samples import publishing

LINE: Line = ((0, "one"), (4, "other"))

COLUMNS = pa.schema([("key", pa.string()), ("value", pa.int32())])
"""Of tables that are there before, partitioned by the first."""


class Job:
    """What a driver, its tasks and its coordinators do with a sink."""

    def __init__(self, make: Callable[[], Sink], name: str = "", *, with_checkpoints: bool = False) -> None:
        self._make, self._with_checkpoints = make, with_checkpoints
        self.name = name or uuid4().hex
        self.begin()

    def known(self) -> Sink:
        """The sink as whoever wants to know what is there has it."""
        sink = self._make()
        about = {"job": self.name, "key": "key", "with_checkpoints": self._with_checkpoints}
        sink.know(replace(sink.job_context, **about))
        return sink

    def begin(self) -> None:
        """In a new process."""
        self.sink = self.known()
        self.sink.check()
        self._begin()

    def restart(self) -> None:
        """In the same process, at the beginning of the input."""
        self.sink.abort()
        self._begin()

    def _begin(self) -> None:
        self.sink.begin()
        self.coordinator: Sink = pickle.loads(pickle.dumps(self.sink))

    def staged(self, epoch: int, *values: int) -> list[Any]:
        """What a task has staged for each value."""
        tables = [pa.table({"key": [f"k{value}"], "value": [value]}) for value in values]
        task = pickle.loads(pickle.dumps(self.sink))
        return [task.stage(table, number, epoch) for number, table in enumerate(tables)]

    def publish(self, epoch: int, *values: int, line: Line = LINE, is_last: bool = False) -> list[Any]:
        sink = self.sink if is_last else self.coordinator
        sink.know(replace(sink.job_context, line=() if is_last else line))
        staged = self.staged(epoch, *values)
        sink.commit(staged, epoch, epoch / 2, is_last=is_last)
        return staged

    def end(self, epoch: int, *values: int) -> None:
        self.publish(epoch, *values, is_last=True)
        self.sink.abort()


class Place:
    """Where jobs publish, and a reader of it."""

    def __init__(self, sink: Callable[[str], Sink], read: Callable[[], Results]) -> None:
        self._sink, self.read = sink, read

    def job(
        self, publishes: Publishes | None = "final", *, name: str = "", saved: bool = False, mode: str = "error"
    ) -> Job:
        """A job that begins there; `saved`: with checkpoints."""
        return Job(lambda: publishing(self._sink(mode), publishes), name, with_checkpoints=saved)

    def values(self) -> list[int]:
        rows = self.read().table
        return sorted(rows["value"].to_pylist()) if rows.num_columns else []


def place_of(kind: str, tmp_path: Path, request: pytest.FixtureRequest | None = None) -> Place:
    """An empty place, or a table without rows where it has partitions."""
    path = str(tmp_path / "place")
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{path}"}
    match kind.split():
        case ["iceberg", *partitions]:
            name = "here.some.table"
            if partitions:
                there = SqlCatalog("here", **catalog)
                there.create_namespace("some")
                with there.create_table("some.table", COLUMNS).update_spec() as update:
                    update.add_field("key", BucketTransform(3))
            read = lambda: results(name, format="iceberg", options=catalog)  # noqa: E731
            return Place(lambda mode: Iceberg(Target(name, mode, catalog)), read)
        case ["delta", *partitions]:
            if partitions:
                DeltaTable.create(path, Schema.from_arrow(COLUMNS), partition_by=["key"])
            return Place(lambda mode: Delta(Target(path, mode)), lambda: results(path))
        case ["objects", *_]:
            assert request is not None
            path = uri_of(request.getfixturevalue("s3_port"), f"results/{tmp_path.name}")
    layouts = {"csv": FileLayout(ENCODINGS[1], "zstd"), "json": FileLayout(ENCODINGS[2], "gzip")}
    layout = FileLayout(partition_by=("key",)) if kind.endswith("partitions") else layouts.get(kind, FileLayout())
    return Place(lambda mode: ResultFiles(Target(path, mode), layout), lambda: results(path))
