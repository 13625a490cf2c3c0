"""Queries of Structured Streaming: micro-batches are staged once each, and read again behind a position."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from programs_for_tests import wait_until

from dpa.config import parse
from dpa.driver.inputs import Inputs
from dpa.driver.spec import JobSpec
from dpa.errors import TableError
from dpa.sources.feed import Page, table_of
from dpa.spark import Kept, StreamSource, streamed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dpa.sources.micro_batches import MicroBatches


def wait_for(page: Callable[[], Page]) -> Page:
    return wait_until(lambda: found if (found := page()).splits else None)


def put(directory: Path, name: str, *lines: str) -> None:
    (directory / f".{name}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (directory / f".{name}").rename(directory / name)


def ns(page: Page) -> list[Any]:
    return sorted(table_of(page.splits)["n"].to_pylist()) if page.splits else []


def test_micro_batches_are_staged_once_and_kept_until_they_are_released(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    options = {"path": str(tmp_path / "in"), "maxFilesPerTrigger": "1"}
    source = StreamSource("json", options, "n BIGINT, at TIMESTAMP", where="n > 0", every="0 seconds")
    kept = Kept(str(tmp_path / "staged"), False)
    put(tmp_path / "in", "a", '{"n": 1, "at": "2024-05-01T10:00:00Z"}', '{"n": -1}', '{"n": 2}')

    def first(feed: MicroBatches) -> Page:
        return wait_for(lambda: feed.poll(100))

    with streamed(spark, source, None, 100, kept) as feed:
        assert str(feed.schema.field("at").type) == "timestamp[us, tz=UTC]"
        page = first(feed)
        assert ns(page) == [1, 2] and page.position == (1, 0)
        assert ns(feed.poll(100, page.position)) == []
    put(tmp_path / "in", "b", '{"n": 3}')
    with streamed(spark, source, None, 100, kept) as feed:  # as a new driver does: Spark goes on where it was
        again = pickle.loads(pickle.dumps(feed))
        following = wait_for(lambda: again.poll(100, page.position))
        assert ns(following) == [3] and ns(again.poll(100)) == [1, 2, 3]
        feed.release(following.position, page.splits)
        assert ns(page) == [1, 2]  # which are still to be read
        feed.release(following.position, ())
        with pytest.raises(TableError, match="no such file"):
            ns(page)


def test_a_query_that_fails_or_ends_is_said(spark: SparkSession, tmp_path: Path) -> None:
    broken = StreamSource("rate", {"rowsPerSecond": "50"}, select=("assert_true(value < 0, 'negative') AS n",))
    with streamed(spark, broken, str(tmp_path), 100) as feed, pytest.raises(TableError, match=r"failed: .*negative"):
        wait_for(lambda: feed.poll(100))
    with pytest.raises(TableError, match="the stream 'nowhere'"), streamed(spark, StreamSource("nowhere"), None, 9):
        pass
    assert not list(tmp_path.iterdir())


def test_a_job_file_names_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    put(tmp_path / "in", "a", "x,1", "y,2")
    document = {
        "input": {
            "format": "stream",
            "stream": {"source": "csv", "columns": "page STRING, n INT", "every": "100ms"},
            "options": {"path": str(tmp_path / "in")},
            "select": ["page", "n * 2 AS n", "n AS unused"],
        },
        "key": "page",
        "reducer": {"use": "sum", "args": {"column": "n"}},
        "value": "n",
        "spark": {"stage_dir": str(tmp_path)},
    }
    inputs = Inputs(JobSpec(parse(document)))
    with ExitStack() as stack:
        looked_at = inputs.open(stack, lambda: spark, stage=False)["mapper"]
        opened = inputs.open(stack, lambda: spark)["mapper"]
        assert opened.schema is not None and opened.schema == looked_at.schema
        assert opened.feed is not None and looked_at.feed is not None
        assert not looked_at.feed.poll(9).splits
        feed = opened.feed
        page = wait_for(lambda: feed.poll(9))
        assert table_of(page.splits).column_names == ["page", "n"]
        assert opened.as_read(page.splits).frame().to_pylist() == [
            {"page": "x", "n": 2, "unused": 1},
            {"page": "y", "n": 4, "unused": 2},
        ]
    assert [place.name for place in tmp_path.iterdir()] == ["in"]
