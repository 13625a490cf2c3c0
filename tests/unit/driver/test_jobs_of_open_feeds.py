"""Jobs whose input is open: what a job file may say of them, and what becomes of them without machines."""

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dpa import Feed, Job, Page
from dpa.config import parse
from dpa.driver.backend import Backend
from dpa.driver.reference import Reference
from dpa.errors import ConfigError, JobFailedError
from dpa.sources.feed import NumberedFeed, all_splits, table_of
from dpa.sources.splits import MemorySplit, NumberedSplit
from dpa.testing import LocalBackend
from experiments.simulation.backend import SimulatedBackend


class Threes(Feed):
    """Splits of three numbers, up to a number."""

    is_open = True

    def __init__(self, stop: int, *, ends: bool = False) -> None:
        self.stop, self.ends = stop, ends

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("key", pa.int64())])

    def poll(self, split_rows: int, position: Any = None) -> Page:
        start = position or 0
        stop = min(start + 3, self.stop)
        splits = [MemorySplit(pa.table({"key": range(start, stop)}))] if stop > start else []
        return Page(splits, None if self.ends and stop == self.stop else stop)


class Picky:
    """Raises on 4."""

    def __call__(self, record: dict[str, Any]) -> list[tuple[int, int]]:
        if record["key"] == 4:
            raise ValueError("four")
        return [(record["key"] % 2, 1)]


def job(stop: int = 10, *, ends: bool = False, **sections: Any) -> Job:
    read = {"format": "feed", "use": f"{__name__}:Threes", "args": {"stop": stop, "ends": ends}}
    return Job(file=parse({"input": read, "key": "key", "reducer": "count", **sections}))


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("backend", [LocalBackend(), SimulatedBackend()], ids=["local", "simulated"])
def test_without_machines_an_open_input_ends_where_nothing_more_has_come(backend: Backend, ends: bool) -> None:
    assert job(ends=ends).run(backend=backend).table().num_rows == 10
    assert not job(0, ends=ends).run(backend=backend).table().num_rows


def test_a_sample_of_an_open_input_is_of_its_first_page() -> None:
    assert Threes(10).sample(100)["key"].to_pylist() == [0, 1, 2]
    assert Threes(0).sample(100).num_rows == 0


def test_splits_of_an_open_input_are_numbered_from_its_beginning_wherever_a_poll_goes_on() -> None:
    feed = NumberedFeed(Threes(10))
    splits = [*all_splits(feed, 1)]
    assert [split.number for split in splits if isinstance(split, NumberedSplit)] == [0, 1, 2, 3]
    assert table_of(splits)["key"].to_pylist() == [*range(10)]
    assert NumberedFeed(Threes(3, ends=True)).poll(1).position is None


def test_errors_in_an_open_input_are_borne_by_number_and_not_as_a_share() -> None:
    mapper = {"use": f"{__name__}:Picky"}
    done = job(mapper=mapper, on_error="skip", max_errors=1).run(backend=LocalBackend())
    assert sum(done.table()["count"].to_pylist()) == 9
    with pytest.raises(ConfigError, match="max_errors: a share of an open input is known at its end alone"):
        job(mapper=mapper, on_error="skip", max_errors="1%").run(backend=LocalBackend())
    with pytest.raises(JobFailedError, match="four"):
        job(mapper=mapper, on_error="skip", max_errors=0).run(backend=LocalBackend())


def test_a_job_whose_inputs_end_themselves_has_no_other_end() -> None:
    bounded = Job(input=[{"key": 1}], key="key", reducer="count", until={"seconds": 1})
    with pytest.raises(ConfigError, match="until: no input of the job is open"):
        bounded.run(backend=LocalBackend())
    with pytest.raises(ConfigError, match=r"until\.seconds"):
        job(until={"seconds": 0})


def test_files_of_a_watched_directory_are_read_as_far_as_they_are_there(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("word;n\na;1\nb;2\n", encoding="utf-8")
    (tmp_path / "2.csv").write_text("word;n\na;3\n", encoding="utf-8")
    watch = {"columns": {"word": "string", "n": "int64"}, "settle": 0.0}
    read = {"format": "csv", "path": str(tmp_path), "options": {"header": True, "sep": ";"}, "watch": watch}
    summed = Job(input=read, key="word", reducer={"use": "sum", "args": {"column": "n"}}).run(backend=LocalBackend())
    assert sorted(summed.table().to_pylist(), key=str) == [{"word": "a", "n": 4}, {"word": "b", "n": 2}]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"path": "logs/*.csv"}, "`path` must name it"),
        ({"path": ["one", "two"]}, "`path` must name it"),
        ({"select": ["n"]}, "`select` and `where` are Spark's"),
        ({"options": {"multiLine": True}}, "knows no option 'multiLine'"),
        ({"format": "json", "options": {"sep": ";"}}, "knows no option 'sep'"),
        ({"format": "sql", "query": "SELECT 1", "path": None}, "is a key of the format"),
    ],
)
def test_what_spark_alone_can_do_is_refused_of_a_directory_that_is_watched(changed: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse({"input": {"format": "csv", "path": "logs", "watch": {}} | changed, "key": "n", "reducer": "count"})


STREAMS = threading.Event()
"""Whether the mapper has been called."""


def noting(record: dict[str, Any]) -> list[tuple[int, int]]:
    STREAMS.set()
    return [(record["key"] % 2, 1)]


def test_a_stream_does_not_wait_until_spark_has_checked_its_query(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    @contextmanager
    def beside(spark: Callable[[], Any], work: Callable[[], Any], what: str) -> Iterator[Future[Any]]:
        with ThreadPoolExecutor(1) as pool:
            yield pool.submit(lambda: (spark(), work())[1])

    def computed(reference: Reference, frames: Any) -> pa.Table:
        steps.append("computed")
        return pa.table({"key": [0, 1], "count": [5, 5]})

    STREAMS.clear()
    monkeypatch.setattr("dpa.driver.reference.beside", beside)
    monkeypatch.setattr("dpa.driver.reference.has_session", lambda: False)
    monkeypatch.setattr("dpa.driver.run.lazy_session", lambda *given, **named: lambda: STREAMS.wait(10))
    monkeypatch.setattr(Reference, "_frames", lambda *given: {})
    monkeypatch.setattr(Reference, "check", lambda self: steps.append(f"checked, streams: {self._spark()}"))
    monkeypatch.setattr(Reference, "_computed", computed)
    query = {"sql": "SELECT key, count(*) AS count FROM input GROUP BY key", "baseline": False}
    counted = job(mapper={"use": f"{__name__}:noting"}, reference=query)
    assert counted.run(backend=LocalBackend()).report.reference.matches
    assert steps == ["checked, streams: True", "computed"]
