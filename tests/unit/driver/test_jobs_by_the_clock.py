"""Jobs whose rows have processing time: what may be said of it, which columns there are, and what windows and timers
make of it without machines."""

from __future__ import annotations

import time
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
from dpa.driver.verification import verified
from dpa.errors import ConfigError, DpaError
from dpa.flow import Stream
from dpa.sources.splits import MemorySplit
from dpa.testing import LocalBackend
from experiments.simulation.backend import SimulatedBackend

WORDS = pa.table({"word": ["to", "be", "to", "or"], "at": [0, 1, 2, 3]})
BY_CLOCK = {"column": "read_at", "by": "processing"}
READ = {"format": "records", "records": WORDS.to_pylist()}
COUNTS = "SELECT word, count(*) AS count FROM words GROUP BY word"


def windows(flow: Flow, input: Any = WORDS, length: str = "1h", **options: Any) -> Stream:
    """Words counted by windows of reading."""
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


def test_a_flow_knows_the_column_where_steps_name_it() -> None:
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
    says = "stages.counts.reference: words has processing time, and when its rows were read is not recorded"
    spec = flow.job().spec
    for refuses in (flow.job().check, lambda: forecast(spec), lambda: [*verified(spec, str(tmp_path / "log"))]):
        with pytest.raises(ConfigError, match=says):
            refuses()
    with pytest.raises(ConfigError, match=says):
        flow.run(backend=LocalBackend())


def test_a_reference_of_other_inputs_and_the_skew_of_a_shuffle_are_not() -> None:
    flow = Flow("words")
    windows(flow, reference={"baseline": True})
    flow.read(WORDS, name="others").key_by("word").reduce("count", name="of_others", reference={"sql": COUNTS})
    flow.job().spec.check_references()


def test_a_plan_takes_the_sample_as_read_now() -> None:
    flow, now = Flow("words"), time.time()
    windows(flow)
    found = forecast(flow.job().spec)
    assert found.edges[-1].records and time.time() >= now


def test_an_input_that_turns_out_to_have_the_column_is_said_when_it_is_read() -> None:
    flow = Flow("words")
    read = {"format": "feed", "use": f"{__name__}:Unknown"}
    flow.read(read, name="words", time=BY_CLOCK).key_by("read_at").reduce("count")
    with pytest.raises(DpaError, match="the input has a column 'read_at'"):
        flow.run(backend=LocalBackend())


class Unknown(Feed):
    """Rows of which nobody knows the columns before."""

    @property
    def schema(self) -> pa.Schema | None:
        return None

    def poll(self, split_rows: int, position: Any = None) -> Page:
        return Page([MemorySplit(pa.table({"read_at": [1]}))], None)


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
