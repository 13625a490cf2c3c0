"""Times that are not of the years 1 to 9999: a row that has one has no time, as one with null has none, and is a bad
record where a function of a record works on it."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpa import Flow, Job, Process, Reducer, batch_filter, batch_mapper, session, sliding, tumbling
from dpa.aggregates import Sum
from dpa.errors import ConfigError, DpaError, JobFailedError
from dpa.protocol.graph import CheckpointTimes
from dpa.sources.splits import MemorySplit
from dpa.testing import LocalBackend
from dpa.windows.options import Windows
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import SimulatedJob, behind

SECOND = 1_000_000
DAY = 86_400 * SECOND
NOW = 1_700_000_000 * SECOND
LEAST, MOST = -62_135_596_800 * SECOND, 253_402_300_800 * SECOND - 1
"""The first and the last microsecond of the years 1 to 9999."""


def numbers(values: list[Any], kind: Any) -> pa.Array:
    """A column of a type that is kept as numbers."""
    return pa.array(values, pa.int32() if kind == pa.date32() else pa.int64()).view(kind)


INT64 = (2**63 - 1, -(2**63))
COLUMNS: dict[str, tuple[pa.Array, str | None]] = {
    "microseconds for milliseconds": (pa.array([NOW // 1000, NOW, NOW, NOW // 1000]), "ms"),
    "int64 of seconds": (pa.array([NOW // SECOND, *INT64, NOW // SECOND]), "s"),
    "int64 of microseconds": (pa.array([NOW, *INT64, NOW]), "us"),
    "uint64": (pa.array([NOW, 2**64 - 1, 2**63, NOW], pa.uint64()), "us"),
    "floats": (pa.array([NOW / SECOND, 1e300, float("nan"), NOW / SECOND]), "s"),
    "infinities": (pa.array([NOW / SECOND, float("inf"), -float("inf"), NOW / SECOND]), "s"),
    "timestamps": (numbers([NOW, *INT64, NOW], pa.timestamp("us")), None),
    "timestamps of a zone": (numbers([NOW, *INT64, NOW], pa.timestamp("us", "Europe/Berlin")), None),
    "seconds": (numbers([NOW // SECOND, *INT64, NOW // SECOND], pa.timestamp("s")), None),
    "in a dictionary": (numbers([NOW // 1000, *INT64, NOW // 1000], pa.timestamp("ms")).dictionary_encode(), None),
    "dates": (numbers([NOW // DAY, 2**31 - 1, -(2**31), NOW // DAY], pa.date32()), None),
    "dates of milliseconds": (numbers([NOW // 1000, *INT64, NOW // 1000], pa.date64()), None),
    "just outside": (numbers([NOW, LEAST - 1, MOST + 1, NOW], pa.timestamp("us")), None),
    "null": (pa.array([NOW, None, None, NOW], pa.timestamp("us")), None),
}
"""Columns of four rows, of which the second and the third have no time."""


def windowed(column: pa.Array, unit: str | None, windows: Windows, place: Path, on_error: str = "fail") -> Flow:
    """Rows with these times and the numbers 1, 2, 4, 8, summed by window."""
    sections: dict[str, Any] = {} if on_error == "fail" else {"on_error": on_error}
    if on_error == "dead_letter":
        sections["dead_letters"] = str(place / "dead")
    flow = Flow("times", limits={"batch_records": 3}, **sections)
    table = pa.table({"at": column, "n": [1, 2, 4, 8]})
    rows = flow.read(table, name="rows", time={"column": "at", "unit": unit}, parallelism=1)
    rows.window(windows, name="windows").key_by(None, value="n").reduce(Sum("n"), name="sums", parallelism=1)
    return flow


@pytest.mark.parametrize("on_error", ["fail", "skip", "dead_letter"])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_row_of_no_year_has_no_time(name: str, on_error: str, tmp_path: Path) -> None:
    flow = windowed(*COLUMNS[name], tumbling("24h"), tmp_path, on_error)
    result = flow.run(backend=LocalBackend())
    assert result.table("sums")["n"].to_pylist() == [9]
    [count] = result.report.errors
    assert (count.step, count.error, count.records) == ("windows", "NoTimeError", 2)
    assert count.kept == (on_error == "dead_letter")
    assert "the column 'at'" in count.example and "'n': 2" in count.example
    if count.kept:
        letters = pq.read_table(tmp_path / "dead").to_pylist()
        assert sorted(pickle.loads(letter["data"])[1]["n"] for letter in letters) == [2, 4]
        assert {letter["step"] for letter in letters} == {"windows"}


FIRST_DAY, LAST_DAY = LEAST, MOST // DAY * DAY
EDGES: dict[str, tuple[Windows, list[int], int]] = {
    "the last day has no end": (tumbling("24h"), [LAST_DAY - 1, LAST_DAY], 1),
    "the first day has a beginning": (tumbling("24h"), [FIRST_DAY, FIRST_DAY + 1], 3),
    "the last second": (tumbling("1s"), [MOST - SECOND, MOST], 1),
    "a window before the first": (sliding("24h", "12h"), [FIRST_DAY, FIRST_DAY + DAY // 2], 2),
    "an offset": (tumbling("24h", offset="1h"), [FIRST_DAY, FIRST_DAY + DAY // 24], 2),
    "sessions": (session("1h"), [MOST - DAY // 24, MOST - DAY // 24 + 1], 1),
    "a thousand years": (tumbling(1_000 * 365 * 86_400), [NOW, MOST], 1),
}
"""Windows, the times of two rows, and the sum of the numbers of those in windows: the first has 1, the second 2."""


@pytest.mark.parametrize("name", EDGES)
def test_a_row_whose_window_is_of_no_year_is_in_none(name: str, tmp_path: Path) -> None:
    windows, times, whole = EDGES[name]
    flow = windowed(numbers([*times, NOW, *INT64][:4], pa.timestamp("us")), None, windows, tmp_path)
    result = flow.run(backend=LocalBackend())
    rows = result.table("sums").to_pylist()
    sums = [row["n"] for row in rows if not 2000 < row["window_start"].year < 2030 or "thousand" in name]
    assert sums and sum(set(sums)) - (4 if "thousand" in name else 0) == whole
    assert all(row["window_start"] < row["window_end"] for row in rows)


def test_a_job_goes_on_behind_a_checkpoint_with_rows_of_no_year(tmp_path: Path) -> None:
    flow = windowed(*COLUMNS["timestamps"], tumbling("24h"), tmp_path, "dead_letter")
    column, parts = COLUMNS["timestamps"][0], range(60)
    tables = [pa.table({"at": column, "n": [1, 2, 4, 8]}) for _ in parts]
    plan = flow.job().spec.plan({"rows": tuple(map(MemorySplit, tables))}, {"rows": tables[0].schema})
    graph = replace(plan.graph, checkpoints=CheckpointTimes(0.01))
    job = SimulatedJob(graph, plan.tasks, lambda stage: 0.002, lambda stage, index: 0.05)
    cluster = SimulatedCluster(job, seed=1)
    cluster.run()
    cuts = [cut for cut in cluster.checkpoints if 0 < len(cut.failed.letters) < 2 * len(parts)]
    assert cuts
    for cut in (cuts[0], cuts[-1]):
        again = SimulatedCluster(behind(job, cut), seed=2)
        again.run()
        found = Counter(
            pickle.loads(letter.data)[1]["n"] for letter in again.coordinator.errors.noted.letters if letter.data
        )
        assert found == {2: len(parts), 4: len(parts)}


FAR = pa.table({"k": ["a", "b", "a", "b"], "v": [1, 2, 4, 8], "at": numbers([NOW, 2**62, MOST, 0], pa.timestamp("us"))})
"""The second row is of the year 148108."""


def same(record: dict[str, Any]) -> dict[str, Any]:
    return record


def twice(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield record


def keeps(record: dict[str, Any]) -> bool:
    return record["v"] > 0


def pair(record: dict[str, Any]) -> Iterator[tuple[str, int]]:
    yield record["k"], record["v"]


@batch_mapper
def fails_on_far(batch: pa.RecordBatch) -> pa.RecordBatch:
    batch.to_pylist()
    return batch


@batch_filter
def sees_far(batch: pa.RecordBatch) -> list[bool]:
    return [record["v"] > 0 for record in batch.to_pylist()]


class Values(Reducer[int, int]):
    """The sum of the column `v` of records; with `merge`."""

    def zero(self) -> int:
        return 0

    def reduce(self, state: int, value: dict[str, Any]) -> int:
        return state + value["v"]

    def merge(self, left: int, right: int) -> int:
        return left + right


class Each(Process[int, dict[str, Any]]):
    def zero(self) -> int:
        return 0

    def process(self, key: str, state: int, value: dict[str, Any]) -> Any:
        return state, [{"k": key, "v": value["v"]}]


def flow_of(word: str, **sections: Any) -> Flow:
    flow = Flow("far", **sections)
    rows = flow.read(FAR, name="rows", parallelism=1)
    steps = {"map": same, "filter": keeps, "flat_map": twice, "batch map": fails_on_far, "batch filter": sees_far}
    if word in steps:
        rows = getattr(rows, word.rpartition(" ")[2])(steps[word], name="bad").map(same, name="after")
        rows.key_by("k", value="v").reduce(Sum("v"), name="result")
    elif word == "key_by":
        rows.key_by(lambda record: record["k"], value="v").reduce(Sum("v"), name="bad")
    elif word == "process":
        rows.key_by("k").process(Each(), name="bad").key_by("k").reduce(Sum("v"), name="result")
    else:
        rows.key_by("k", value=["v", "at"]).reduce(Values(), name="bad", combiner=word == "combine")
    return flow


WORDS = ("map", "filter", "flat_map", "batch map", "batch filter", "key_by", "reduce", "combine", "process")


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("on_error", ["fail", "skip", "dead_letter"])
def test_a_row_that_python_has_no_value_for_is_a_bad_record(word: str, on_error: str, tmp_path: Path) -> None:
    sections: dict[str, Any] = {} if on_error == "fail" else {"on_error": on_error}
    if on_error == "dead_letter":
        sections["dead_letters"] = str(tmp_path / "dead")
    flow = flow_of(word, **sections)
    if on_error == "fail":
        with pytest.raises(DpaError, match=r"value for the timestamp\[us\] 148108-07-06|date value out of range"):
            flow.run(backend=LocalBackend())
        return
    result = flow.run(backend=LocalBackend())
    name = "bad" if word in ("key_by", "reduce", "combine") else "result"
    assert sum(result.table(name).column(-1).to_pylist()) == 13
    [count] = result.report.errors
    assert (count.step, count.records) == ("bad", 1)
    if on_error == "dead_letter":
        [letter] = pq.read_table(tmp_path / "dead").to_pylist()
        record = pickle.loads(letter["data"])[1]
        assert record["at"] == np.datetime64(2**62, "us") and record["v"] == 2
        assert "148108-07-06" in letter["record"]


def test_a_mapper_leaves_such_a_row_out_and_as_a_key_it_is_said_without_a_remedy_that_the_input_may_lack() -> None:
    with pytest.raises(JobFailedError, match=r"pair\.map failed on record .*column 'at': Python has no value"):
        Job(input=FAR, mapper=pair, reducer="sum").run(backend=LocalBackend())
    result = Job(input=FAR, mapper=pair, reducer="sum", on_error="skip").run(backend=LocalBackend())
    assert sum(result.table().column(-1).to_pylist()) == 13
    flow = Flow("far")
    flow.read(FAR, name="rows").key_by("at", value="v").reduce(Sum("v"), name="sums")
    with pytest.raises(JobFailedError, match=r"one is 148108-07-06.*batch filter") as caught:
        flow.run(backend=LocalBackend())
    assert "input.where" not in str(caught.value)


LENGTHS = [float("inf"), float("nan"), -1, -float("inf"), 1e300, 10**400, [1], "soon", "-5s", {}, 0, 1e-9]


def test_a_length_that_is_none_is_said() -> None:
    makes: list[Any] = [tumbling, session, lambda value: sliding(value, "1s"), lambda value: sliding("1h", value)]
    options = [lambda value, name=name: tumbling("1h", **{name: value}) for name in ("offset", "lateness")]
    for length in LENGTHS:
        for make in (*makes, *(options if length not in (0, 1e-9) else ())):
            with pytest.raises(ConfigError, match="window: "):
                make(length)


@pytest.mark.parametrize("length", [1e300, 10**400, "9999999999999h"])
def test_a_duration_that_no_time_is_ahead_or_behind_by_is_refused(length: Any) -> None:
    for key in ("out_of_order", "max_ahead", "idle"):
        flow = Flow("long")
        flow.read(FAR, time={"column": "at", key: length}).window(tumbling("1h")).key_by("k").reduce("count")
        with pytest.raises(ConfigError, match=rf"time\.{key}: .*duration is at most"):
            flow.check()
