"""First tables from a sample of a job's inputs: what they are planned from, and when the ring is kept instead."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest

from dpa import Flow, Job
from dpa.driver._first_tables import with_first_tables
from dpa.driver.inputs import Inputs, lazy_session
from dpa.errors import ConfigError
from dpa.protocol.graph import REDUCER, Graph
from dpa.routing.hashing import hash_key

ROWS = 40_000
WORDS = pa.table({"word": ["the" if row % 2 else f"word {row % 1_000}" for row in range(ROWS)], "n": range(ROWS)})
CLICKS = {"format": "generated", "use": "jobs.clicks:Clicks", "rows": 100_000}
LONG = 30.0
"""Seconds: no sample of these tests takes as long."""


def planned(
    job: Job, seconds: float = LONG, is_ready: Callable[[], bool] = lambda: True
) -> tuple[Graph, dict[str, str]]:
    spec = job.spec
    with ExitStack() as stack:
        opened = Inputs(spec).open(stack, lazy_session(spec.config, stack))
        splits = {name: found.splits for name, found in opened.items()}
        graph = spec.plan(splits, {name: found.schema for name, found in opened.items()}).graph
        return with_first_tables(graph, spec, opened, is_ready, seconds)


def job(**keys: Any) -> Job:
    return Job(
        **{"input": WORDS, "key": "word", "reducer": "count", "combiner": False, "parallelism": {"reducers": 4}, **keys}
    )


def broken(record: dict[str, Any]) -> list[tuple[str, int]]:
    raise ValueError("cannot map this")


def interrupted(record: dict[str, Any]) -> list[tuple[str, int]]:
    """As polars does in any thread, which looks itself for signals."""
    raise KeyboardInterrupt


def nothing(record: dict[str, Any]) -> list[tuple[str, int]]:
    return []


@pytest.mark.parametrize("is_mapped", [False, True], ids=["the input's own columns", "a mapper"])
def test_a_hot_key_is_split_from_the_first_record_unless_its_state_migrates(is_mapped: bool) -> None:
    seen: set[str] = set()

    def noting(record: dict[str, Any]) -> list[tuple[str, int]]:
        seen.add(record["word"])
        return [(record["word"], 1)]

    mapper = noting if is_mapped else None
    graph, words = planned(job(mapper=mapper))
    assert words == {REDUCER: "from a sample of 20,000 rows, 1 hot key split"}
    first = graph[REDUCER].first
    assert first is not None
    assert len(first.table.assignment_of(hash_key("the", 0)).reducers) > 1
    assert graph[REDUCER].first_table() is first.table
    graph, words = planned(job(mapper=mapper, consistency="migrate"))
    assert words[REDUCER].endswith("no hot key split")
    first = graph[REDUCER].first
    assert first is not None and not first.table.splits
    assert not seen, "a copy of the mapper was called, and what that holds stays as it is"


@pytest.mark.parametrize(
    ("keys", "split"),
    [
        ({"combiner": True}, "no hot key split"),
        ({"combiner": "auto"}, "no hot key split"),
        ({"combiner": "auto", "input": WORDS.slice(0, 4_000)}, "1 hot key split"),
        ({"input": CLICKS, "key": "user"}, "1 hot key split"),
    ],
    ids=["a combiner, which is not called", "one if that pays", "few rows for it", "rows of several places"],
)
def test_a_combiner_counts_a_key_once_a_block(keys: dict[str, Any], split: str) -> None:
    graph, words = planned(job(**keys))
    assert words[REDUCER].endswith(split) and graph[REDUCER].first is not None


def test_the_rows_of_two_inputs_count_by_how_many_each_has() -> None:
    few = WORDS.slice(0, 400)
    flow = Flow("both")
    many = flow.read(pa.table({"word": [f"word {row}" for row in range(ROWS)]}), name="many")
    flow.read(few.select(["word"]), name="few").union(many).key_by("word").reduce("count", name="counts", parallelism=4)
    _, words = planned(flow.job())
    assert words["counts"].endswith("no hot key split"), "half of `few` is one key, but that is 0.5 % of all"


def test_stages_behind_states_begin_with_the_ring() -> None:
    flow = Flow("two")
    counts = flow.read(WORDS, name="words").key_by("word").reduce("count", name="counts", parallelism=2)
    counts.key_by(lambda row: row["word"][-1]).reduce("count", name="endings", parallelism=2)
    graph, words = planned(flow.job())
    assert graph["counts"].first is not None
    assert words["endings"] == "with the plain ring: what counts emits is not known before it runs"


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"mapper": broken}, "the sample failed: test_first_tables.broken.map failed on record"),
        ({"mapper": interrupted}, "the sample failed: KeyboardInterrupt"),
        ({"mapper": nothing}, "the sample has no records"),
        ({"input": WORDS.slice(0, 0)}, "the sample has no records"),
    ],
    ids=["a mapper that fails", "a Ctrl-C in its thread", "a mapper that yields nothing", "an empty input"],
)
def test_what_cannot_be_sampled_begins_with_the_ring(keys: dict[str, Any], why: str) -> None:
    graph, words = planned(job(**keys))
    assert graph[REDUCER].first is None
    assert words[REDUCER].startswith(f"with the plain ring: {why}")


RELEASED = threading.Event()


CALLS: list[str] = []


def slow(record: dict[str, Any]) -> list[tuple[str, int]]:
    CALLS.append(threading.current_thread().name)
    RELEASED.wait()
    return []


def test_a_sample_that_takes_too_long_is_not_waited_for_and_ends_soon() -> None:
    """After the first row, or in the middle of the first rows; it does not go on beside the job."""
    CALLS.clear()
    try:
        graph, words = planned(job(mapper=slow), seconds=0.05, is_ready=lambda: bool(CALLS))
    finally:
        RELEASED.set()
    assert graph[REDUCER].first is None
    assert words == {REDUCER: "with the plain ring: the sample took longer than 0.05 s"}
    for thread in threading.enumerate():
        if thread.name == "dpa-sample":
            thread.join()
    assert 0 < len(CALLS) < 10


@pytest.mark.parametrize(
    "keys",
    [
        {"balance": {"first_table": "ring"}},
        {"balance": {"strategy": "halving"}},
        {"balance": {"strategy": "none"}},
        {"parallelism": {"reducers": 1}},
        {"grouping": "key"},
    ],
    ids=["not wanted", "halving", "no balancing", "one task", "another grouping"],
)
def test_where_none_is_to_be_planned_user_code_is_not_called(keys: dict[str, Any]) -> None:
    graph, words = planned(job(mapper=broken, **keys))
    assert words == {} and graph[REDUCER].first is None
    with pytest.raises(ConfigError, match="first_table"):
        job(balance={"strategy": "doubling", "first_table": "sample"})
