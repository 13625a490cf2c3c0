"""A job that runs in the test's own process gives what plain Python gives, and says what its executors do wrong."""

import sys
import threading
from datetime import date
from operator import itemgetter
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from builders import Total, naive, pairs
from hypothesis import given, settings
from hypothesis import strategies as st

from dpa import Flow, Job
from dpa.aggregates import Count, Sum
from dpa.errors import ConfigError, ExecutorError, KeyTypeError
from dpa.executors import AnyReducer, Reducer, batch_mapper
from dpa.job import runs_here
from dpa.testing import LocalBackend, run_local

DAYS = [date(2026, 1, 31), date(2025, 1, 31), date(2026, 1, 31)]
records = st.lists(st.fixed_dictionaries({"key": st.text(max_size=2), "value": st.integers(-99, 99)}), max_size=40)
ways = st.fixed_dictionaries(
    {"reducers": st.integers(1, 5), "combine": st.booleans(), "batch_records": st.integers(1, 9)}
)


def add(left: int, right: int) -> int:
    return left + right


class Longest(Reducer[int, Any]):
    def zero(self) -> int:
        return 0

    def reduce(self, state: int, value: Any) -> int:
        return max(state, value["value"])


@pytest.mark.parametrize("value", [3, "three"])
def test_a_reducer_that_takes_a_plain_value_for_a_dict_reads_how_to_get_one(value: Any) -> None:
    with pytest.raises(ExecutorError, match=f"on key 'a', whose value {value!r} is no dict .*`reads`.*: TypeError: "):
        run_local(None, Longest(), [{"key": "a", "value": value}])


@batch_mapper
def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    values = pa.array([2 * value for value in batch.column("value").to_pylist()], pa.int64())
    return pa.record_batch({"key": batch.column("key").cast(pa.string()), "value": values})


class Order(Reducer[list[int], int]):
    """All values in the order in which they came: cannot merge, so every key must stay where it is."""

    def zero(self) -> list[int]:
        return []

    def reduce(self, state: list[int], value: int) -> list[int]:
        return [*state, value]


@pytest.mark.parametrize(
    ("mapper", "reducer", "of_values"),
    [
        (pairs, add, sum),
        (pairs, Total(), sum),
        (None, Sum(), sum),
        (doubled, Sum(), lambda values: 2 * sum(values)),
        (doubled, add, lambda values: 2 * sum(values)),
        (pairs, Order(), list),
    ],
    ids=["function", "reducer", "no mapper", "batches", "batches to function", "no merge"],
)
@settings(max_examples=20)
@given(data=records, how=ways)
def test_a_local_run_gives_what_plain_python_gives(mapper, reducer, of_values, data, how: dict[str, Any]) -> None:
    how["combine"] &= not isinstance(reducer, Order)
    table = pa.Table.from_pylist(data, pa.schema({"key": pa.string(), "value": pa.int64()}))
    found = run_local(mapper, reducer, table, **how)
    keys = found["key"].to_pylist()
    assert keys == sorted(keys)
    values = found["value"].to_pylist() if keys else []
    assert dict(zip(keys, values, strict=True)) == naive(((row["key"], row["value"]) for row in data), of_values)


KINDS = [["b", "a"], [5, -1, 5], [b"\xff", b"", b"\xff"], [None, "a", None], [None] * 3, [True, False, True], DAYS]


def test_keys_of_every_kind_come_through_and_composite_ones_in_the_order_of_their_columns() -> None:
    for keys in KINDS:
        found = run_local(None, Count(), pa.table({"key": keys})).to_pylist()
        assert {row["key"]: row["count"] for row in found} == naive(((key, 1) for key in keys), len)
    table = pa.table({"day": [*DAYS, None], "n": [1, 2, 3, 4], "country": ["b", "a", "b", "a"]})
    found = run_local(None, Sum("n"), table, key=["country", "day"])
    assert [tuple(row.values()) for row in found.to_pylist()] == [("a", DAYS[1], 2), ("a", None, 4), ("b", DAYS[0], 4)]
    assert found.column_names == ["country", "day", "n"]
    words = [{"value": "to be"}, {"value": "or not to be"}]
    found = run_local(
        lambda record: [((len(word), word), 1) for word in record["value"].split()], add, words, key=["length", "word"]
    )
    assert found.column_names == ["length", "word", "value"]
    assert found.to_pylist()[0] == {"length": 2, "word": "be", "value": 2}


def test_an_exception_in_a_reducer_names_it_and_the_key_and_where_it_was_raised() -> None:
    class Unlucky(Total):
        def reduce(self, state: int, value: int) -> int:
            if value == 13:
                raise LookupError("no luck")
            return state + value

    with pytest.raises(ExecutorError, match=r"Unlucky\.reduce failed on key 'b'") as error:
        run_local(pairs, Unlucky(), [{"key": "a", "value": 1}, {"key": "b", "value": 13}])
    assert "LookupError: no luck" in str(error.value)
    assert 'raise LookupError("no luck")' in str(error.value)


@pytest.mark.parametrize(
    ("base", "method"), [(Total, "zero"), (Total, "merge"), (Total, "finish"), (Count, "merge"), (Count, "finish")]
)
def test_an_exception_in_any_other_method_names_it_too(base: type[AnyReducer], method: str) -> None:
    def fail(*arguments: Any) -> Any:
        raise LookupError("no luck")

    broken = type("Broken", (base,), {method: fail})
    with pytest.raises(ExecutorError, match=rf"Broken\.{method} failed on (key '|\d keys)"):
        run_local(pairs, broken(), [{"key": str(number % 9), "value": number} for number in range(40)], batch_records=2)


@pytest.mark.parametrize("reducer", [add, Count()], ids=["records", "batches"])
@pytest.mark.parametrize("other", [int, lambda number: str(number).encode()], ids=["integers", "bytes"])
@pytest.mark.parametrize("reducers", [1, 5])
def test_a_job_whose_batches_have_keys_of_two_types_is_refused(reducer: Any, other: Any, reducers: int) -> None:
    for number in range(8):  # some of which share a reducer with the first key, while others do not
        keys = ["a", other(number)]
        with pytest.raises(KeyTypeError, match="a key is a string"):
            run_local(
                lambda record, keys=keys: [(keys[record["value"]], 1)],
                reducer,
                [0, 1],
                batch_records=1,
                reducers=reducers,
            )


class _Locked(Total):
    """Holds what no other process can have."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


def test_an_executor_that_no_actor_could_be_sent_is_refused_as_on_ray() -> None:
    records = [{"key": "a", "value": 1}]
    job = Job(input=records, reducer=_Locked())
    for run in (lambda: run_local(reducer=_Locked(), data=records), lambda: job.run(backend=LocalBackend())):
        with pytest.raises(
            ConfigError, match=r"reducer: .*_Locked cannot be sent to the actors: .*keep what it holds p"
        ):
            run()


ROWS = [{"word": word} for word in "abbccc"]


def counting(**sections: Any) -> Job:
    return Job(**{"input": ROWS, "key": "word", "reducer": "count", **sections})


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of jobs on Ray may run in this process too: they ask for Ray, and one is up."""
    monkeypatch.delenv("DPA_BACKEND", raising=False)
    if "ray" in sys.modules:
        monkeypatch.setattr(sys.modules["ray"], "is_initialized", lambda: False)


@pytest.mark.usefixtures("without_ray")
def test_few_rows_in_memory_are_processed_without_ray_and_the_report_says_so() -> None:
    result = counting().run()
    assert sorted(result.table().to_pylist(), key=itemgetter("word")) == [
        {"word": word, "count": count} for word, count in (("a", 1), ("b", 2), ("c", 3))
    ]
    assert result.report.backend == "local"
    assert "in this process, without Ray" in str(result)
    flow = Flow()
    flow.read(ROWS).key_by("word").reduce("count")
    assert flow.run().report.backend == "local"


BIG = pa.table({"word": ["a"] * 10_001})
SAYS_HOW: dict[str, dict[str, Any]] = {
    "rows": {"input": BIG},
    "file": {"input": {"format": "csv", "path": "words.csv"}},
    "address": {"ray": {"address": "127.0.0.1:1"}},
    "checkpoints": {"checkpoint": {"every": 1, "path": "checkpoints"}},
    "epochs": {"epoch_log": "log"},
    "balance": {"balance": {"strategy": "halving"}},
    "grouping": {"grouping": "shuffle"},
    "publish": {"output": {"path": "out", "publish": {"every": 1, "mode": "table"}}},
}


@pytest.mark.usefixtures("without_ray")
def test_whatever_says_how_processes_behave_needs_ray_or_the_environment_asks_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [name for name, sections in SAYS_HOW.items() if runs_here(counting(**sections).spec)] == []
    assert runs_here(counting().spec)
    with monkeypatch.context() as patched:  # a thread of a job that was refused still imports it
        patched.setitem(sys.modules, "ray", ModuleType("ray"))
        assert runs_here(counting().spec)
    monkeypatch.setenv("DPA_BACKEND", "ray")
    assert not runs_here(counting().spec)
    with pytest.raises(ConfigError, match="backend: 'spark' is neither `auto` nor `ray`"):
        counting().run(backend="spark")
