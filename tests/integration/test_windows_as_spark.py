"""Windows beside Spark's `window()` and `session_window()`: the same rows give the same windows, one query for all; and
sessions that timers end."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dpa import Flow, Process, Reducer, session, sliding, tumbling
from dpa.aggregates import Sum
from dpa.flow import Stream
from dpa.testing import run_local
from dpa.windows.options import Windows

EDGES = (-25, -20.000001, -20, -0.000001, 0, 0.000001, 4, 5, 9.999999, 10, 30, 30, 59.999999, 60, 61, 3600)
"""Seconds from the beginning of some windows."""

BEGINNINGS = (
    datetime(1970, 1, 1, tzinfo=timezone.utc),
    datetime(1969, 7, 20, 20, 17, 40, tzinfo=timezone.utc),
    datetime(2024, 2, 29, 23, 59, 50, tzinfo=timezone.utc),
    datetime(2026, 3, 29, 1, 0, tzinfo=timezone.utc),  # clocks in Berlin, whose day has 23 hours
    datetime(2026, 10, 25, 1, 0, tzinfo=timezone.utc),  # and 25 hours
)


def events() -> pa.Table:
    """Events around the edges of windows, in no order; some have no time, or no key."""
    draw = random.Random(7)
    times = [start + timedelta(seconds=seconds) for start in BEGINNINGS for seconds in EDGES]
    times += [BEGINNINGS[2] + timedelta(microseconds=draw.randrange(300_000_000)) for _ in range(200)]
    rows = [(at, draw.choice("abc"), draw.randrange(100)) for at in times]
    rows += [(None, "a", 1000), (None, "b", 2000), (BEGINNINGS[0], None, 5)]
    draw.shuffle(rows)
    columns = zip(*rows, strict=True)
    kinds = (pa.timestamp("us", "UTC"), pa.string(), pa.int64())
    names = ("at", "key", "n")
    return pa.table({name: pa.array(column, kind) for name, column, kind in zip(names, columns, kinds, strict=True)})


class Totals(Reducer[list[int], int]):
    """How many values, and their sum, by Python objects."""

    def zero(self) -> list[int]:
        return [0, 0]

    def reduce(self, state: list[int], value: int) -> list[int]:
        state[0] += 1
        state[1] += value
        return state

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        return [left[0] + right[0], left[1] + right[1]]

    def finish(self, state: list[int]) -> Any:
        return {"count": state[0], "n": state[1]}


class Ended(Process[list[Any] | None, dict[str, Any]]):
    """Sessions with a gap of 5 seconds, each of which is given, and forgotten, by its timer: [start, end, count, sum].
    Records must come in the order of time."""

    def zero(self) -> None:
        return None

    def process(self, key: Any, state: list[Any] | None, value: dict[str, Any]) -> Any:
        end, n = value["at"] + timedelta(seconds=5), value["n"]
        if state is None:
            return [value["at"], end, 1, n], []
        if value["at"] > state[1]:
            return [value["at"], end, 1, n], self.finish(key, state)
        return [state[0], end, state[2] + 1, state[3] + n], []

    def timer(self, key: Any, state: list[Any] | None) -> Any:
        return None if state is None else state[1]

    def on_time(self, key: Any, state: Any, time: datetime) -> Any:
        assert time == state[1]
        return None, self.finish(key, state)

    def finish(self, key: Any, state: list[Any] | None) -> list[dict[str, Any]]:
        return [] if state is None else [dict(zip(("key", "start", "end", "count", "n"), (key, *state), strict=True))]


def summed(rows: Stream) -> Stream:
    return rows.key_by("key").reduce(Sum("n"), combiner=True)


def totals(rows: Stream) -> Stream:
    return rows.key_by("key", value="n").reduce(Totals())


def first(rows: Stream) -> Stream:
    return rows.top_k(2, by="n")


def joined(rows: Stream) -> Stream:
    return rows.key_by("key", value="n").join(rows.filter(lambda row: row["n"] > 50).key_by("key", value="n"))


SQL: dict[Callable[[Stream], Stream], str] = {
    summed: "SELECT key, w.start AS f, w.end AS u, sum(n) AS x, 0 AS y FROM {rows} GROUP BY key, w",
    totals: "SELECT key, w.start AS f, w.end AS u, count(*) AS x, sum(n) AS y FROM {rows} GROUP BY key, w",
    first: (
        "SELECT key, w.start AS f, w.end AS u, r AS x, n AS y FROM (SELECT *, row_number() OVER"
        " (PARTITION BY w ORDER BY n DESC, at, key) AS r FROM {rows}) WHERE r <= 2"
    ),
    joined: (
        "SELECT l.key, l.w.start AS f, l.w.end AS u, l.n AS x, r.n AS y"
        " FROM {rows} l JOIN {rows} r ON l.key = r.key AND l.w = r.w WHERE r.n > 50"
    ),
}
"""What Spark does for the same; `{rows}` have the column `w`."""

COLUMNS = {summed: ("n", None), totals: ("count", "n"), first: ("rank", "n"), joined: ("n", "n_right")}

CASES: dict[str, tuple[Windows, str, Callable[[Stream], Stream]]] = {
    "one after the other": (tumbling(10), "window(at, '10 seconds')", summed),
    "by objects": (tumbling("1m"), "window(at, '1 minute')", totals),
    "an offset": (tumbling("1m", offset="7s"), "window(at, '1 minute', '1 minute', '7 seconds')", summed),
    "a day": (tumbling("24h"), "window(at, '1 day')", totals),
    "of microseconds": (tumbling(0.000003), "window(at, '3 microseconds')", summed),
    "overlapping": (sliding("1m", every="10s"), "window(at, '1 minute', '10 seconds')", totals),
    "no multiple": (sliding(25, every=10, offset=3), "window(at, '25 seconds', '10 seconds', '3 seconds')", summed),
    "the first rows": (tumbling("5m"), "window(at, '5 minutes')", first),
    "the first of overlapping ones": (sliding("5m", "2m"), "window(at, '5 minutes', '2 minutes')", first),
    "a join": (tumbling("1m"), "window(at, '1 minute')", joined),
    "a join of overlapping ones": (sliding(40, 30), "window(at, '40 seconds', '30 seconds')", joined),
    "sessions": (session(5), "session_window(at, '5 seconds')", summed),
    "sessions by objects": (session(5), "session_window(at, '5 seconds')", totals),
    "long sessions": (session("1h"), "session_window(at, '1 hour')", totals),
}


@pytest.fixture(scope="module")
def expected(spark: Any) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of each case as Spark computes them."""
    spark.createDataFrame(events()).createOrReplaceTempView("events")
    queries = []
    for name, (_, window, work) in CASES.items():
        rows = f"(SELECT *, {window} AS w FROM events)"
        if "session" in window:
            query = SQL[work].format(rows="events").replace("GROUP BY key, w", f"GROUP BY key, {window}")
            query = query.replace("w.", "session_window.")
        else:
            query = SQL[work].format(rows=rows)
        queries.append(f"SELECT '{name}' AS name, * FROM ({query})")
    try:
        table = spark.sql(" UNION ALL ".join(queries)).toArrow()
    finally:
        spark.catalog.dropTempView("events")  # other tests use the same session
    found: dict[str, list[tuple[Any, ...]]] = {name: [] for name in CASES}
    for row in table.to_pylist():
        found[row["name"]].append(ordered(row["key"], row["f"], row["u"], row["x"], row["y"]))
    return {name: sorted(rows) for name, rows in found.items()}


def ordered(key: Any, start: datetime, end: datetime, *values: Any) -> tuple[Any, ...]:
    return (str(key), start.astimezone(timezone.utc), end.astimezone(timezone.utc), *values)


@pytest.mark.parametrize("name", CASES)
def test_windows_are_those_of_spark(name: str, expected: dict[str, list[tuple[Any, ...]]]) -> None:
    windows, _, work = CASES[name]
    flow = Flow("windows")
    made = work(flow.read(events(), time="at").window(windows))
    found = run_local(flow)[made.step].to_pylist()
    one, other = COLUMNS[work]
    rows = [
        ordered(row["key"], row["window_start"], row["window_end"], row[one], row[other] if other else 0)
        for row in found
    ]
    assert sorted(rows) == expected[name]


def test_sessions_that_timers_end_are_those_of_spark(expected: dict[str, list[tuple[Any, ...]]]) -> None:
    rows = events().filter(pc.is_valid(pc.field("at"))).sort_by("at")
    flow = Flow("sessions")
    made = flow.read(rows, time="at", parallelism=1).key_by("key", value=["at", "n"]).process(Ended())
    found = [ordered(*row.values()) for row in run_local(flow)[made.step].to_pylist()]
    assert sorted(found) == expected["sessions by objects"]
