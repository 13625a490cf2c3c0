"""Results as tables of Delta and Iceberg, read back with polars."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from lake_samples import VALUES, Lake, staged, written
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

pytestmark = pytest.mark.filterwarnings("ignore:Iceberg scan planning")  # by polars, which is to read a few rows


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, tmp_path)


def write(lake: Lake, *values: int, mode: str = "append", job: str = "") -> None:
    """A job of a task for each value."""
    sink = lake.sink(mode)
    sink.know(replace(sink.job_context, job=job or sink.job))
    written(sink, pa.table({"value": values}))


def values_in(lake: Lake) -> list[int]:
    table = pl.read_delta(lake.path) if lake.kind == "delta" else pl.scan_iceberg(lake.table()).collect()
    return sorted(table["value"].to_list())


def test_jobs_add_rows_or_replace_them_and_each_job_does_it_once(lake: Lake) -> None:
    write(lake, 1, 2, mode="error", job="one")
    write(lake, 3, job="two")
    write(lake, 1, 2, mode="error", job="one")
    write(lake, 3, job="two")
    assert values_in(lake) == [1, 2, 3]
    write(lake, 4, mode="overwrite", job="three")
    write(lake, 4, job="three")
    assert values_in(lake) == [4]
    with pytest.raises(TableError, match=r"has rows: set output.mode to `append` or `overwrite`, or name"):
        write(lake, 5, mode="error")


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
    write(lake, 1)
    overtaken(lake, monkeypatch, lambda: write(lake, 2, job="same"))
    write(lake, 2, job="same")
    assert values_in(lake) == [1, 2]


def test_a_commit_that_another_job_overtakes_comes_after_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    write(lake, 1)
    overtaken(lake, monkeypatch, lambda: write(lake, 2))
    write(lake, 3)
    assert values_in(lake) == [1, 2, 3]


@pytest.mark.parametrize("lost", ["the request", "the answer"])
def test_a_commit_that_is_not_answered_is_looked_for(lake: Lake, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    write(lake, 1)
    of = {"delta": (DeltaTable, "create_write_transaction"), "iceberg": (SqlCatalog, "commit_table")}[lake.kind]
    real = getattr(*of)

    def failing(*arguments: Any, **options: Any) -> None:
        if lost == "the answer":
            real(*arguments, **options)
        raise OSError("the connection was closed")

    with monkeypatch.context() as patch:
        patch.setattr(*of, failing)
        if lost == "the answer":
            write(lake, 2)
        else:
            with pytest.raises(TableError, match="the connection was closed, at "):
                write(lake, 2)
    assert values_in(lake) == ([1, 2] if lost == "the answer" else [1])


def test_an_iceberg_table_always_overtaken_fails_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake("iceberg", tmp_path)
    write(lake, 1)

    def overtaken(*arguments: Any) -> None:
        raise CommitFailedException("the branch has changed")

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", overtaken)
        with pytest.raises(TableError, match=r"the branch has changed, at here.some.table"):
            write(lake, 2)
    assert values_in(lake) == [1]
    assert "commit.retry.num-retries" not in lake.table().properties


def test_a_delta_table_may_be_in_object_storage(s3_port: int) -> None:
    where, options = (
        "s3://results/lake",
        {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3_port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        },
    )
    check_outputs(of({"key": "p", "output": {"format": "delta", "path": where, "mode": "append", "args": options}}))
    rows = pa.table({"p": pa.array(VALUES[pa.string()]), "n": range(len(VALUES[pa.string()]))})
    write_deltalake(where, rows, partition_by=["p"], storage_options=options)
    for mode, times in (("append", 2), ("overwrite", 1)):
        written(Delta(Target(where, mode, options)), rows)
        found = pl.read_delta(where, storage_options=options).select("p", "n").to_dicts()
        assert sorted(map(str, found)) == sorted(map(str, rows.to_pylist() * times))
    there = {*keys(s3_port, "results", "lake/")}
    sink = Delta(Target(where, "append", options))
    sink.begin()
    sink.stage(rows, 1, 0)
    sink.commit(staged(sink, rows.slice(0, 1), 0), 1, 0.0, is_last=True)
    sink.abort()
    added = {*keys(s3_port, "results", "lake/")} - there
    assert len([key for key in added if "_delta_log" not in key]) == 1, "what was not committed is removed"


# --- jobs


def test_a_job_writes_a_table(lake: Lake) -> None:
    output = lake.output()
    for _ in range(2):
        job = Job(input=pa.table({"word": ["a", "b", "a"]}), key="word", reducer="count", output=output)
        result = job.run(backend=LocalBackend())
        with pytest.raises(TableError, match=f"the result went to {output['path']}: read it there"):
            result.table()
    assert sorted(tuple(row.values()) for row in lake.read().to_pylist()) == [("a", 2), ("a", 2), ("b", 1), ("b", 1)]


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
    with publication(of({"key": "word", "output": lake.output("error")})) as begun:
        staged = begun.sink.stage(pa.table({"value": [1]}), 0, 0)
        write(lake, 2)
        with pytest.raises(JobFailedError, match="has rows"):
            begun.commit([staged])
    assert values_in(lake) == [2]
