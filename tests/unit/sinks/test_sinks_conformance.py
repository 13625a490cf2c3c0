"""What every sink promises, wherever rows go. A new sink is a line of `SINKS`."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake.exceptions import TableNotFoundError
from pyiceberg.exceptions import NoSuchTableError

from dpa import results
from dpa.errors import TableError
from dpa.execution.publishing import Publishes
from dpa.protocol.checkpoint_format import read, written
from dpa.sinks._iceberg import Iceberg
from dpa.sinks._layout import PLAIN, FileLayout
from dpa.sinks.delta import Delta
from dpa.sinks.directory import ResultDirectory
from dpa.sinks.encodings import ENCODINGS
from dpa.sinks.memory import Memory
from dpa.sinks.objects import ResultFiles
from dpa.sinks.reading import published
from dpa.sinks.sink import Sink, SinkContext, Target
from dpa.sources.parquet import parquet_table
from experiments.s3_server import keys, uri_of
from jobs.json_lines import JsonLines
from tests.unit.output_samples import publishing

Make: TypeAlias = Callable[[Path], Sink]
Find: TypeAlias = Callable[[Path], pa.Table]

SHARES = [pa.table({"key": [f"{task}{row}" for row in range(3 - task)], "n": range(3 - task)}) for task in range(3)]
ALL = pa.concat_tables(SHARES)


class Case:
    """A sink in an empty directory, or with files of object storage that `listed` gives, and how a reader finds its
    rows there."""

    def __init__(
        self, make: Make, find: Find | None, directory: Path, listed: Callable[[], list[str]] | None = None
    ) -> None:
        self.sink = make(directory / "place")
        self._given = make, find, directory, listed

    def again(self) -> Case:
        """The same for another job."""
        return Case(*self._given)

    def found(self) -> pa.Table | None:
        """What readers see; None: nothing."""
        _, find, directory, _ = self._given
        try:
            return None if find is None else find(directory / "place")
        except (FileNotFoundError, TableError, TableNotFoundError, NoSuchTableError):
            return None

    def staged(self, tables: Sequence[pa.Table] = SHARES, epoch: int = 1) -> list[Any]:
        """What tasks have staged, each in a process of its own."""
        here = range(len(tables))
        return [pickle.loads(pickle.dumps(self.sink)).stage(tables[task], task, epoch) for task in here]

    def files(self) -> list[str]:
        """All files that there are but locks and a catalog, which is made whenever someone looks."""
        _, _, directory, listed = self._given
        if listed is not None:
            return listed()
        inside = (path for path in directory.rglob("*") if path.is_file() and path.name not in (".lock", "catalog.db"))
        return sorted(str(path.relative_to(directory)) for path in inside)


def files(place: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(part) for part in sorted(place.iterdir()) if part.suffix == ".parquet"])


def results_at(place: Path) -> pa.Table:
    return results(place).table


def iceberg(place: Path) -> Iceberg:
    """A table in a catalog beside a place."""
    catalog = {"type": "sql", "uri": f"sqlite:///{place.parent}/catalog.db", "warehouse": f"file://{place}"}
    return Iceberg(Target("here.some.table", "overwrite", catalog))


def in_directory(layout: FileLayout) -> Make:
    return lambda place: ResultDirectory(Target(str(place), "overwrite", mark=lambda: "key: word\n"), layout)


def by_epoch(publishes: Publishes, layout: FileLayout) -> Make:
    return lambda place: publishing(ResultFiles(Target(str(place), "overwrite"), layout), publishes)


_, CSV, JSON = ENCODINGS

SINKS: dict[str, tuple[Make, Find | None]] = {
    "memory": (lambda place: Memory(), None),
    "parquet": (in_directory(PLAIN), files),
    "table": (by_epoch("table", PLAIN), results_at),
    "final": (by_epoch("final", PLAIN), results_at),
    "csv": (in_directory(FileLayout(CSV)), published),
    "json lines, compressed": (in_directory(FileLayout(JSON, "zstd")), published),
    "partitions": (in_directory(FileLayout(partition_by=("key",))), published),
    "partitions of csv": (in_directory(FileLayout(CSV, "gzip", ("n",))), published),
    "one file": (in_directory(FileLayout(single_file=True)), published),
    "one file of csv": (in_directory(FileLayout(CSV, "gzip", single_file=True)), published),
    "table of csv, one file": (by_epoch("table", FileLayout(CSV, single_file=True)), results_at),
    "final json lines": (by_epoch("final", FileLayout(JSON, "gzip")), results_at),
    "final partitions": (by_epoch("final", FileLayout(partition_by=("key",))), results_at),
    "delta": (
        lambda place: Delta(Target(str(place), "overwrite")),
        lambda place: pl.read_delta(str(place)).to_arrow() if place.exists() else None,
    ),
    "iceberg": (iceberg, lambda place: iceberg(place)._catalog().load_table("some.table").scan().to_arrow()),
    "of one's own": (lambda place: JsonLines(str(place)), lambda place: JsonLines(str(place)).read([str(place)])),
}


FAR = {
    "objects": PLAIN,
    "objects, csv": FileLayout(CSV, "zstd"),
    "objects, partitions": FileLayout(partition_by=("key",)),
    "objects, one file": FileLayout(JSON, single_file=True),
}


@pytest.fixture(params=[*SINKS, *FAR])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    if request.param in SINKS:
        return Case(*SINKS[request.param], tmp_path)
    port, layout = request.getfixturevalue("s3_port"), FAR[request.param]
    uri = uri_of(port, f"results/{tmp_path.name}")
    return Case(
        lambda _: ResultFiles(Target(uri, "overwrite", mark=lambda: "key: word\n"), layout),
        lambda _: published(uri) if layout != PLAIN else parquet_table([uri]).read(),
        tmp_path,
        lambda: keys(port, "results", tmp_path.name),
    )


def rows(table: pa.Table) -> list[Any]:
    return sorted(table.to_pylist(), key=lambda row: row["key"])


def test_readers_see_all_rows_once_they_are_committed_and_none_before_and_an_abort_changes_nothing(case: Case) -> None:
    case.sink.abort()
    case.sink.check()
    assert case.files() == []
    case.sink.begin()
    staged = case.staged()
    assert case.found() is None
    names = case.sink.commit(staged, 1, 0.5)
    case.sink.abort()
    if case.sink.place is None:
        assert rows(case.sink.read(staged)) == rows(ALL)
    else:
        assert rows(case.found()) == rows(ALL)
        assert all(any(file.endswith(name) for file in case.files()) for name in names or ())
    before, seen = case.files(), case.found()
    again = case.again()
    again.sink.begin()
    again.staged([SHARES[0]], epoch=2)
    again.sink.abort()
    assert case.found() == seen
    assert case.files() == before


def test_what_is_committed_twice_is_there_once(case: Case) -> None:
    case.sink.begin()
    staged = case.staged()
    names = case.sink.commit(staged, 1, 0.5)
    seen = case.found()
    assert case.sink.commit(staged, 1, 0.5) == names
    assert case.found() == seen
    case.sink.abort()
    assert case.found() == seen
    resumed = case.again()
    resumed.sink.know(case.sink.job_context)
    resumed.sink.check()
    resumed.sink.begin()
    resumed.sink.commit(resumed.staged(), 1, 0.5)
    resumed.sink.abort()
    assert case.found() == seen


def test_a_sink_reads_what_it_knows_of_the_job_as_its_own() -> None:
    class Named(JsonLines):
        def __init__(self, path: str, key: str) -> None:
            super().__init__(path)
            self.key = key

    plain, named = JsonLines("lines.json"), Named("lines.json", key="secret of mine")
    for sink in (plain, named):
        assert (sink.job, sink.publishes, sink.with_checkpoints, sink.line) == ("", None, False, ())
        sink.know(SinkContext("me", "word", "final", with_checkpoints=True, line=((1, "one"),)))
        assert (sink.job, sink.publishes, sink.with_checkpoints, sink.line) == ("me", "final", True, ((1, "one"),))
    assert (plain.key, named.key) == ("word", "secret of mine")
    assert pickle.loads(pickle.dumps(plain)).job == "me"


def test_a_new_commit_replaces_what_readers_see(case: Case) -> None:
    for epoch, tables in ((1, SHARES), (2, SHARES[:2])):
        job = case.again()
        job.sink.check()
        job.sink.begin()
        job.sink.commit(job.staged(tables, epoch), epoch, 0.5)
        job.sink.abort()
    assert case.sink.place is None or rows(case.found()) == rows(pa.concat_tables(SHARES[:2]))


def test_what_is_staged_is_read_back_if_the_sink_can_and_may_be_kept_in_a_checkpoint(case: Case) -> None:
    case.sink.begin()
    staged = case.staged()
    if type(case.sink).read is Sink.read:
        with pytest.raises(TableError, match=r"has no `read`"):
            case.sink.read(staged)
    else:
        assert rows(case.sink.read(staged)) == rows(ALL)
    [kept] = read(written(staged), "a checkpoint")
    case.sink.commit(kept, 1, 0.5)
    case.sink.abort()
    assert case.sink.place is None or rows(case.found()) == rows(ALL)


def test_columns_without_rows_are_a_result(case: Case) -> None:
    case.sink.begin()
    staged = case.staged([ALL.slice(0, 0)])
    case.sink.commit(staged, 1, 0.5)
    case.sink.abort()
    found = case.found()
    assert case.sink.place is None or (found is not None and found.num_rows == 0)
