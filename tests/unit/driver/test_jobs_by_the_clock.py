"""Jobs whose rows have processing time, and jobs whose input is open: what may be said of them, and what becomes of
them without machines."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpa import Feed, Flow, Job, Page, Process, tumbling
from dpa.config import parse
from dpa.dead_letters import _replay
from dpa.dead_letters._letters import FoundLetters
from dpa.driver.backend import Backend
from dpa.driver.forecast import forecast
from dpa.driver.reference import Reference
from dpa.driver.verification import verified
from dpa.errors import ConfigError, JobFailedError, SparkLostError
from dpa.flow import Stream
from dpa.sources.feed import NumberedFeed, all_splits, table_of
from dpa.sources.splits import MemorySplit, NumberedSplit
from dpa.testing import LocalBackend
from experiments.simulation.backend import SimulatedBackend

WORDS = pa.table({"word": ["to", "be", "to", "or"], "at": [0, 1, 2, 3]})
BY_CLOCK = {"column": "read_at", "by": "processing"}
READ = {"format": "records", "records": WORDS.to_pylist()}
COUNTS = "SELECT word, count(*) AS count FROM words GROUP BY word"


def windows(flow: Flow, input: Any = WORDS, length: str = "1h", **options: Any) -> Stream:
    rows = flow.read(input, name="words", time=BY_CLOCK).window(tumbling(length))
    return rows.key_by("word").reduce("count", name="counts", **options)


@pytest.mark.parametrize("backend", [LocalBackend(), SimulatedBackend()], ids=["local", "simulated"])
def test_each_row_is_in_the_window_in_which_it_was_read(backend: Backend) -> None:
    flow, before = Flow("words"), datetime.now(timezone.utc)
    windows(flow)
    found = flow.run(backend=backend).table("counts").to_pylist()
    if isinstance(backend, LocalBackend):
        ends = {row["window_end"] for row in found}
        assert min(ends) > before and max(ends) - timedelta(hours=1) <= datetime.now(timezone.utc)
    else:
        assert {row["window_start"] for row in found} == {datetime(1970, 1, 1, tzinfo=timezone.utc)}  # of virtual time
    if len({row["window_end"] for row in found}) == 1:  # no hour has begun meanwhile
        assert {row["word"]: row["count"] for row in found} == {"to": 2, "be": 1, "or": 1}
    assert sum(row["count"] for row in found) == 4
    assert forecast(flow.job().spec).edges[-1].records, "a plan takes the sample as read now"


def test_a_job_that_needs_no_column_of_its_input_reads_none_and_has_the_time(tmp_path: Path) -> None:
    pq.write_table(WORDS, tmp_path / "words.parquet")
    flow = Flow("words")
    read = {"format": "parquet", "path": str(tmp_path / "words.parquet")}
    rows = flow.read(read, time=BY_CLOCK)
    rows.key_by(None).reduce("count", name="all")
    rows.key_by("read_at").reduce("count", name="by_time")
    result = flow.run(backend=LocalBackend())
    assert result.table("all")["count"].to_pylist() == [4]
    assert result.table("by_time")["count"].to_pylist() == [4], "rows that are read at once have one time"


class Waits(Process):
    """Gives the words of each key some time after the last was read."""

    def zero(self) -> dict[str, Any]:
        return {"words": 0}

    def process(self, key: str, state: dict[str, Any], value: dict[str, Any]) -> Any:
        return {"words": state["words"] + 1, "due": value["read_at"] + timedelta(seconds=5)}, []

    def timer(self, key: str, state: dict[str, Any]) -> datetime | None:
        return state.get("due")

    def on_time(self, key: str, state: dict[str, Any], time: datetime) -> Any:
        return None, [{"word": key, "words": state["words"], "time": time}]


def test_timers_go_by_the_clock_and_are_all_due_at_the_end() -> None:
    flow = Flow("words")
    flow.read(WORDS, time=BY_CLOCK).key_by("word").process(Waits(), name="waits")
    found = flow.run(backend=LocalBackend()).table("waits").to_pylist()
    assert {row["word"]: row["words"] for row in found} == {"to": 2, "be": 1, "or": 1}
    assert all(row["time"] > datetime.now(timezone.utc) for row in found)


@pytest.mark.parametrize(
    ("time", "says"),
    [
        ({"by": "processing"}, r"input.time.column: "),
        ({**BY_CLOCK, "by": "ingestion"}, r"input.time.by: .*'event' or 'processing'"),
        ({**BY_CLOCK, "unit": "s"}, r"input.time: `unit` is of event time; with `by: processing` no row is late"),
        ({**BY_CLOCK, "out_of_order": "5s"}, r"`out_of_order` is of event time; .*: leave it out"),
        ({**BY_CLOCK, "idle": 1}, r"`idle` is of event time"),
        ({**BY_CLOCK, "max_ahead": 1}, r"`max_ahead` is of event time"),
    ],
)
def test_what_processing_time_does_not_have_is_refused(time: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse({"input": {**READ, "time": time}, "key": "word", "reducer": "count"})


def test_a_column_of_the_name_that_is_added_is_refused_before_anything_runs() -> None:
    says = r"the input has a column 'at', and the time at which rows are read is added by that name: name another"
    job = Job(file=parse({"input": {**READ, "time": {**BY_CLOCK, "column": "at"}}, "key": "word", "reducer": "count"}))
    with pytest.raises(ConfigError, match=f"input.time: {says}"):
        job.run(backend=LocalBackend())
    flow = Flow("words")
    flow.read(WORDS, name="words", time={**BY_CLOCK, "column": "at"}).key_by("word").reduce("count")
    with pytest.raises(ConfigError, match=f"stages.words.read.time: {says}"):
        flow.run(backend=LocalBackend())
    flow = Flow("words")
    flow.read(WORDS, time=BY_CLOCK).key_by("raed_at").reduce("count")
    with pytest.raises(ConfigError, match=r"raed_at.*read_at"):
        flow.run(backend=LocalBackend())


def test_rows_of_both_kinds_of_time_meet_outside_windows_alone() -> None:
    def meeting(**step: Any) -> dict[str, Any]:
        return {
            "old": {"read": {**READ, "time": {"column": "at", "unit": "s"}}},
            "new": {"read": {**READ, "time": {**BY_CLOCK, "column": "at2"}}},
            **step,
        }

    why = "some of its rows have event time, and some processing time: give all inputs before it the same `by`"
    joined = {"key_by": "word", "join": {"with": "new_windows", "key_by": "word"}}
    in_windows = {"old_windows": {"from": "old", "window": "1s"}, "new_windows": {"from": "new", "window": "1s"}}
    for step, key in [
        ({"together": {"from": ["old", "new"], "window": "1s", "allow_missing_columns": True}}, "window"),
        ({**in_windows, "together": {"from": "old_windows", **joined}}, "join"),
    ]:
        with pytest.raises(ConfigError, match=f"stages.together.{key}: {why}"):
            Job(file=parse({"stages": meeting(**step)})).check()
    counts = {"from": ["old", "new"], "key_by": "word", "reduce": "count", "allow_missing_columns": True}
    assert Job(file=parse({"stages": meeting(counts=counts)})).run(backend=LocalBackend()).table().num_rows == 3


def test_a_reference_of_what_depends_on_when_rows_were_read_is_refused_when_the_job_is_planned(tmp_path: Path) -> None:
    flow = Flow("words", epoch_log=str(tmp_path / "log"))
    reference = {"sql": COUNTS, "at_end": False}
    windows(flow, reference=reference).write(tmp_path / "out", publish="final")
    others = Flow("words")  # a reference of other inputs, and the skew of a shuffle
    windows(others, reference={"baseline": True})
    others.read(WORDS, name="others").key_by("word").reduce("count", name="of_others", reference={"sql": COUNTS})
    others.job().spec.check_references()
    says = "stages.counts.reference: words has processing time, and when its rows were read is not recorded"
    spec = flow.job().spec
    for refuses in (flow.job().check, lambda: forecast(spec), lambda: [*verified(spec, str(tmp_path / "log"))]):
        with pytest.raises(ConfigError, match=says):
            refuses()
    with pytest.raises(ConfigError, match=says):
        flow.run(backend=LocalBackend())


MENDED = {"is": False}


def picky(row: dict[str, Any]) -> dict[str, Any]:
    if row["word"] == "be" and not MENDED["is"]:
        raise ValueError("be")
    return row


def test_a_dead_letter_that_is_replayed_keeps_the_time_at_which_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MENDED, "is", False)
    flow = Flow("words", dead_letters=str(tmp_path / "dead"))
    rows = flow.read(WORDS, time=BY_CLOCK).map(picky, name="picky", on_error="dead_letter")
    rows.window(tumbling("1h"), name="windows").write(tmp_path / "out")
    flow.run(backend=LocalBackend())
    MENDED["is"] = True
    _replay.replay(flow.job().spec, FoundLetters.read(str(tmp_path / "dead"), trusted=True))
    found = pq.read_table(tmp_path / "out")
    assert sorted(found["word"].to_pylist()) == ["be", "or", "to", "to"]
    assert len({*found["read_at"].to_pylist()}) == 1


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


def test_splits_of_an_open_input_are_numbered_from_its_beginning_and_its_first_page_is_its_sample() -> None:
    splits = [*all_splits(NumberedFeed(Threes(10)), 1)]
    assert [split.number for split in splits if isinstance(split, NumberedSplit)] == [0, 1, 2, 3]
    assert table_of(splits)["key"].to_pylist() == [*range(10)]
    assert NumberedFeed(Threes(3, ends=True)).poll(1).position is None
    assert Threes(10).sample(100)["key"].to_pylist() == [0, 1, 2]
    assert Threes(0).sample(100).num_rows == 0


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
    monkeypatch.setattr("dpa.driver.run.lazy_session", lambda *given, **named: lambda: STREAMS.wait(10))
    monkeypatch.setattr(Reference, "_frames", lambda *given: {})
    monkeypatch.setattr(Reference, "check", lambda self: steps.append(f"checked, streams: {self._spark()}"))
    monkeypatch.setattr(Reference, "_computed", computed)
    query = {"sql": "SELECT key, count(*) AS count FROM input GROUP BY key", "baseline": False}
    counted = job(mapper={"use": f"{__name__}:noting"}, reference=query)
    assert counted.run(backend=LocalBackend()).report.reference.matches
    assert steps == ["checked, streams: True", "computed"]


def test_a_query_is_not_blamed_for_the_jvm_that_died_before_it_was_checked() -> None:
    def lost() -> Any:
        raise SparkLostError("Spark's JVM has ended")

    spec = job(reference={"sql": "SELECT 1"}).spec
    with pytest.raises(JobFailedError, match=r"^reference: Spark's JVM has ended$"):
        Reference(spec, next(step for step in spec.steps if step.config.reference), {}, lost).check()
