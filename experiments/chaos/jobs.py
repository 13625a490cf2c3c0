"""The jobs of the experiment: what each does with the same rows, and the queries by which Spark does it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dpa import Feed, Flow, Page, batch_mapper, tumbling
from dpa.aggregates import Count, Sum
from dpa.executors import FunctionReducer
from dpa.flow import Stream
from dpa.sources.splits import MemorySplit

RECORD_SECONDS = 0.0002
"""Time that an operator task takes for a record, so that a run lasts long enough to be killed in."""

HOT, KEYS = 0.5, 2_000
"""Share of the records that have one key, and the number of keys."""

SOURCES, OPERATORS = 2, 3
"""Tasks of a stage that reads, and of one that processes."""

PAGE_ROWS = 1_000
"""Rows that a stream without end gives at a time."""

ROW_MILLISECONDS = 10
"""Event time from a row to the next."""


Write = Mapping[str, dict[str, Any]]
"""For each result, by its step, what to write."""


@dataclass(frozen=True)
class Topology:
    """A job.

    Attributes:
        steps: makes it of the flow, the file with its rows, or the broker and the topic, what to write for each of
            `queries`, and the consistency.
        queries: for each result, by its step, what Spark computes it from `rows` with.
        stages: those with tasks, the one that reads first.
        publishes: how results are published while it runs; None: at the end.
        reads_topic: whether it reads a topic of Kafka.
    """

    steps: Callable[[Flow, str, Write, str], None]
    queries: Mapping[str, str]
    stages: tuple[str, ...]
    publishes: str | None = None
    reads_topic: bool = False


class SlowSum(FunctionReducer):
    """Adds, and takes its time."""

    def __init__(self) -> None:
        super().__init__(_add)

    def reduce(self, state: Any, value: Any) -> Any:
        """Add a value, after a while."""
        time.sleep(RECORD_SECONDS)
        return super().reduce(state, value)


def _add(left: int, right: int) -> int:
    return left + right


@batch_mapper
def by_length(counts: pa.RecordBatch) -> pa.RecordBatch:
    """Counts with the length of their word."""
    return pa.record_batch({"length": pc.utf8_length(counts.column("key")), "count": counts.column("value")})


@batch_mapper
def by_end(words: pa.RecordBatch) -> pa.RecordBatch:
    """Words by their last letter."""
    return pa.record_batch({"end": pc.utf8_slice_codeunits(words.column("key"), -1, 2**31 - 1)})


class EndlessRows(Feed):
    """Rows of a file that come a page at a time, and then no more, though there might."""

    is_open = True

    def __init__(self, file: str) -> None:
        self._file = file
        self._table: pa.Table | None = None

    @property
    def schema(self) -> pa.Schema:
        """Those of the file."""
        return pq.read_schema(self._file)

    def poll(self, split_rows: int, position: Any = None) -> Page:
        """The next page."""
        if self._table is None:
            self._table = pq.read_table(self._file)
        start = position or 0
        rows = self._table.slice(start, PAGE_ROWS)
        return Page([MemorySplit(rows)] if rows.num_rows else [], start + rows.num_rows)


def words(rows: int, seed: int) -> pa.Table:
    """Words, half of which are one, each with a 1 and the time at which it happened."""
    draw = np.random.default_rng(seed)
    ranks = np.where(draw.random(rows) < HOT, 0, draw.integers(1, KEYS, rows))
    times = pa.array(np.arange(rows) * ROW_MILLISECONDS, pa.int64()).cast(pa.timestamp("ms", "UTC"))
    return pa.table({"key": [f"w{rank}" for rank in ranks.tolist()], "value": np.ones(rows, np.int64), "time": times})


def _count_words(flow: Flow, file: str, write: Write, mode: str) -> None:
    _write(_counts(_read(flow, file), mode), write)


def _count_as_they_come(flow: Flow, file: str, write: Write, mode: str) -> None:
    _write(_counts(_read_endless(flow, file), mode), write)


def _count_in_windows(flow: Flow, file: str, write: Write, mode: str) -> None:
    read = _read_endless(flow, file, time={"column": "time", "out_of_order": "1s"})
    _write(_counts(read.window(tumbling("20s")), mode), write)


def _count_records(flow: Flow, place: str, write: Write, mode: str) -> None:
    servers, topic = place.split()
    columns = {"key": "string", "value": "int64"}
    kafka = {"servers": servers, "topic": topic, "value": "json", "columns": columns}
    _write(_counts(flow.read({"format": "kafka", "kafka": kafka}, name="words", parallelism=SOURCES), mode), write)


def _two_results(flow: Flow, file: str, write: Write, mode: str) -> None:
    read = _read(flow, file)
    counts = _counts(read, mode)
    lengths = counts.map(by_length).key_by("length").reduce(Sum("count"), name="lengths", parallelism=2)
    ends = read.map(by_end).key_by("end").reduce(Count(), name="ends", parallelism=2)
    for result in (lengths, ends):
        _write(result, write)


def _read(flow: Flow, file: str) -> Stream:
    return flow.read({"format": "parquet", "path": file}, name="words", parallelism=SOURCES)


def _read_endless(flow: Flow, file: str, **options: Any) -> Stream:
    feed = {"format": "feed", "use": f"{__name__}:EndlessRows", "args": {"file": file}}
    return flow.read(feed, name="words", parallelism=SOURCES, **options)


def _counts(rows: Stream, mode: str) -> Stream:
    keyed = rows.key_by("key", value="value")
    return keyed.reduce(SlowSum(), name="counts", parallelism=OPERATORS, consistency=mode)


def _write(rows: Stream, write: Write) -> None:
    rows.write(**write[rows.step])


_SUMS = "SELECT key, sum(value) AS value FROM rows GROUP BY key"

TOPOLOGIES = {
    "word count": Topology(_count_words, {"counts": _SUMS}, ("words", "counts")),
    "graph with two results": Topology(
        _two_results,
        {
            "lengths": "SELECT length(key) AS length, sum(value) AS sum FROM rows GROUP BY length(key)",
            "ends": "SELECT right(key, 1) AS end, count(*) AS count FROM rows GROUP BY right(key, 1)",
        },
        ("words", "counts", "lengths", "ends"),
    ),
    "stream without end": Topology(_count_as_they_come, {"counts": _SUMS}, ("words", "counts"), "changes"),
    "records of Kafka": Topology(_count_records, {"counts": _SUMS}, ("words", "counts"), "changes", reads_topic=True),
    "windows of a stream": Topology(
        _count_in_windows,
        {
            "counts": "SELECT key, window.start AS window_start, window.end AS window_end, sum(value) AS value "
            "FROM rows GROUP BY key, window(time, '20 seconds')"
        },
        ("words", "counts"),
        "final",
    ),
}
