"""Results as tables of Delta and Iceberg, read back with polars."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from output_samples import check_outputs, of, publication
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException

from dpa import Job
from dpa.errors import ConfigError, JobFailedError, TableError
from dpa.sinks._iceberg import Iceberg
from dpa.sinks.delta import Delta
from dpa.sinks.sink import Target
from dpa.testing import LocalBackend
from experiments.s3_server import KEY, SECRET, keys


class Lake:
    """A table, and what makes sinks of it."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind, self.directory = kind, directory
        catalog = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"file://{directory}/lake"}
        where = {"delta": (str(directory / "lake"), {}), "iceberg": ("here.some.table", catalog)}
        self.path, self.args = where[kind]

    def sink(self, mode: str = "append", job: str = "") -> Delta | Iceberg:
        sink = {"delta": Delta, "iceberg": Iceberg}[self.kind](Target(self.path, mode, self.args))
        sink.know(replace(sink.job_context, job=job or sink.job))
        return sink

    def write(self, *values: int, mode: str = "append", job: str = "") -> None:
        """A job of a task for each value."""
        sink = self.sink(mode, job)
        sink.check()
        sink.begin()
        staged = [sink.stage(pa.table({"value": [value]}), task, 0) for task, value in enumerate(values)]
        sink.commit(staged, 1, 0.0, is_last=True)
        sink.abort()

    def read(self) -> pl.DataFrame:
        if self.kind == "delta":
            return pl.read_delta(self.path)
        return pl.scan_iceberg(self.catalog.load_table("some.table")).collect()

    def values(self) -> list[int]:
        return sorted(self.read()["value"].to_list())

    @property
    def catalog(self) -> SqlCatalog:
        return SqlCatalog("here", **self.args)


pytestmark = pytest.mark.filterwarnings("ignore:Iceberg scan planning")  # by polars, which is to read a few rows


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, tmp_path)


def test_jobs_add_rows_or_replace_them_and_each_job_does_it_once(lake: Lake) -> None:
    lake.write(1, 2, mode="error", job="one")
    lake.write(3, job="two")
    lake.write(1, 2, mode="error", job="one")
    lake.write(3, job="two")
    assert lake.values() == [1, 2, 3]
    lake.write(4, mode="overwrite", job="three")
    lake.write(4, job="three")
    assert lake.values() == [4]
    with pytest.raises(TableError, match=r"has rows: set output.mode to `append` or `overwrite`, or name"):
        lake.write(5, mode="error")


def overtaken(lake: Lake, monkeypatch: pytest.MonkeyPatch, by: Callable[[], None]) -> None:
    """Let something be done between the look of the next commit and the commit itself."""
    of = {"delta": (Delta, "_has"), "iceberg": (Iceberg, "_write")}[lake.kind]
    real = getattr(*of)
    done: list[int] = []

    def after(self: Any, *arguments: Any) -> Any:
        if lake.kind == "delta":
            known = real(self, *arguments)
        if not done:
            done.append(1)
            by()
        return known if lake.kind == "delta" else real(self, *arguments)

    monkeypatch.setattr(*of, after)


def test_a_commit_that_another_driver_of_the_job_overtakes_adds_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write(1)
    overtaken(lake, monkeypatch, lambda: lake.write(2, job="same"))
    lake.write(2, job="same")
    assert lake.values() == [1, 2]


def test_a_commit_that_another_job_overtakes_comes_after_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.write(1)
    overtaken(lake, monkeypatch, lambda: lake.write(2))
    lake.write(3)
    assert lake.values() == [1, 2, 3]


@pytest.mark.parametrize("lost", ["the request", "the answer"])
def test_a_commit_of_which_nothing_is_heard_is_looked_for(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    lake.write(1)
    of = {"delta": (DeltaTable, "create_write_transaction"), "iceberg": (SqlCatalog, "commit_table")}[lake.kind]
    real = getattr(*of)

    def failing(*arguments: Any, **options: Any) -> None:
        if lost == "the answer":
            real(*arguments, **options)
        raise OSError("the connection was closed")

    with monkeypatch.context() as patch:
        patch.setattr(*of, failing)
        if lost == "the answer":
            lake.write(2)
        else:
            with pytest.raises(TableError, match="the connection was closed, at "):
                lake.write(2)
    assert lake.values() == ([1, 2] if lost == "the answer" else [1])


def test_an_iceberg_table_that_is_always_overtaken_fails_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake("iceberg", tmp_path)
    lake.write(1)

    def overtaken(*arguments: Any) -> None:
        raise CommitFailedException("the branch has changed")

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", overtaken)
        with pytest.raises(TableError, match=r"the branch has changed, at here.some.table"):
            lake.write(2)
    assert lake.values() == [1]
    assert "commit.retry.num-retries" not in lake.catalog.load_table("some.table").properties


def test_types_that_a_table_has_not_are_brought_into_its_own_or_refused(tmp_path: Path) -> None:
    lake, at = Lake("delta", tmp_path), datetime(2026, 1, 2, 3, tzinfo=timezone.utc)
    sink = lake.sink()
    sink.begin()
    rows = {"at": pa.array([at], pa.timestamp("ns", "UTC")), "word": pa.array(["a"], pa.large_string())}
    sink.commit([sink.stage(pa.table(rows), 0, 0)], 1, 0.0, is_last=True)
    sink.abort()
    assert lake.read().rows() == [(at, "a")]
    sink.begin()
    with pytest.raises(TableError, match=r"the result has the columns value, and the table at .*/lake at, word"):
        sink.stage(pa.table({"value": [1]}), 0, 0)
    with pytest.raises(TableError, match="which would change in the type timestamp"):
        sink.stage(pa.table({"word": ["b"], "at": pa.array([1], pa.timestamp("ns", "UTC"))}), 0, 0)
    sink.abort()
    other = Delta(Target(str(tmp_path / "other")))
    other.begin()
    with pytest.raises(
        TableError, match=r"column .value. of the result is duration\[s\], which the table at .* cannot hold"
    ):
        other.stage(pa.table({"value": pa.array([1], pa.duration("s"))}), 0, 0)
    other.abort()
    assert not (tmp_path / "other").exists()


def test_a_delta_table_may_be_in_object_storage(s3_port: int) -> None:
    options = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3_port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }
    where = "s3://results/lake"
    output = {"format": "delta", "path": where, "mode": "append", "args": options}
    check_outputs(of({"key": "word", "output": output}))
    for value in (1, 2):
        sink = Delta(Target(where, "append", options))
        sink.begin()
        sink.stage(pa.table({"value": [0]}), 1, 0)
        sink.commit([pickle.loads(pickle.dumps(sink)).stage(pa.table({"value": [value]}), 0, 0)], 1, 0.0, is_last=True)
        sink.abort()
    assert sorted(pl.read_delta(where, storage_options=options)["value"].to_list()) == [1, 2]
    assert len([key for key in keys(s3_port, "results", "lake/") if "_delta_log" not in key]) == 2


# --- jobs


def test_a_job_writes_a_table(lake: Lake) -> None:
    output = {"format": lake.kind, "path": lake.path, "mode": "append", "args": lake.args}
    for _ in range(2):
        job = Job(input=pa.table({"word": ["a", "b", "a"]}), key="word", reducer="count", output=output)
        result = job.run(backend=LocalBackend())
        with pytest.raises(TableError, match=f"the result went to {lake.path}: read it there"):
            result.table()
    assert sorted(lake.read().rows()) == [("a", 2), ("a", 2), ("b", 1), ("b", 1)]


def test_outputs_that_cannot_be_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "data.csv").touch()
    for output, why in [
        ({"path": "x", "mode": "append"}, "`append` is for tables: set `format` to `delta`, `iceberg` or `kafka`"),
        ({"path": "x", "format": "kafka"}, "nothing in a topic of Kafka is replaced: set `mode` to `append`"),
        ({"format": "delta"}, "`format: delta` needs a `path`"),
        (
            {"path": "x", "args": {"a": 1}},
            "`args` are those of a sink, or of a table: name it in `use`, or set `format`",
        ),
        ({"use": "a:B", "format": "delta"}, "are not for `use`"),
        ({"format": "iceberg", "path": "a.b"}, "'a.b' names no table: write CATALOG.NAMESPACE.TABLE"),
        ({"format": "delta", "path": str(tmp_path / "full")}, "holds data.csv, and is no Delta table"),
        ({"format": "iceberg", "path": "a.b.c", "args": {"type": "sql", "uri": "sqlite:////no/where"}}, "at a.b.c"),
    ]:
        with pytest.raises(ConfigError, match=why):
            check_outputs(of({"key": "word", "output": output}))
    for package, lake in (("deltalake", Lake("delta", tmp_path / "x")), ("pyiceberg", Lake("iceberg", tmp_path / "x"))):
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(TableError, match=rf"need {package}: pip install 'dpa\[{lake.kind}\]'"):
            lake.sink().begin()


def test_a_table_that_gets_rows_while_a_job_runs_that_wants_none_fails_it(lake: Lake) -> None:
    output = {"format": lake.kind, "path": lake.path, "args": lake.args}
    with publication(of({"key": "word", "output": output})) as begun:
        staged = begun.sink.stage(pa.table({"value": [1]}), 0, 0)
        lake.write(2)
        with pytest.raises(JobFailedError, match="has rows"):
            begun.commit([staged])
    assert lake.values() == [2]
