"""A reducer that breaks a law is caught, with a counter-example; one that keeps them passes."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from builders import Total

from dpa.aggregates import Distinct, Mean, Sum
from dpa.errors import ConfigError, ExecutorError
from dpa.executors import BatchReducer, Groups, Reducer
from dpa.testing import LawError, check_reducer_laws


def add(left: int, right: int) -> int:
    return left + right


class Lists(Reducer[list[int], list[int]]):
    """The sum of values that are lists of two numbers each."""

    def zero(self) -> list[int]:
        return [0, 0]

    def reduce(self, state: list[int], value: list[int]) -> list[int]:
        return [state[0] + value[0], state[1] + value[1]]

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        return self.reduce(left, right)


def test_a_lawful_reducer_passes() -> None:
    check_reducer_laws(add, [1, 5, -3, 0])
    check_reducer_laws(max, ["a", "", "xyz"])
    check_reducer_laws(Lists(), [[1, 2], [3, 4], [0, -1]])
    check_reducer_laws(Distinct(), ["a", "b", "a"])
    check_reducer_laws(Sum(), [{"value": 1}, {"value": 2.5}, {"value": None}])
    check_reducer_laws(Mean(), [{"value": 1.0}, {"value": 4.0}])


class FromOne(Total):
    """Starts at one: the state of no values is no identity."""

    def zero(self) -> int:
        return 1


Nested = tuple[int, tuple[int, ...]]


class ForgetsNested(Reducer[Nested, int]):
    """Keeps what was merged in beside its own total, but not what that had been merged with: not associative."""

    def zero(self) -> Nested:
        return 0, ()

    def reduce(self, state: Nested, value: int) -> Nested:
        return state[0] + value, state[1]

    def merge(self, left: Nested, right: Nested) -> Nested:
        return left[0], (*left[1], right[0])

    def finish(self, state: Nested) -> int:
        return state[0] + sum(state[1])


class MergesOnce(BatchReducer):
    """A mean whose merged states count the states instead of the values: right once, then wrong."""

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({"mean": groups.aggregate("value", "mean"), "n": groups.sizes()})

    def merge(self, groups: Groups) -> pa.RecordBatch:
        means, n = (groups.values.column(name).to_numpy() for name in ("mean", "n"))
        total, count = np.bincount(groups.ids, means * n), np.bincount(groups.ids, n)
        return pa.record_batch({"mean": total / count, "n": groups.sizes()})

    def finish(self, states: pa.RecordBatch) -> pa.RecordBatch:
        return states.select(["mean"])


class Popped(Lists):
    """`finish` takes the last number out of the state, which all that is reduced or merged later lacks."""

    def finish(self, state: list[int]) -> int:
        return sum(state) + 0 * state.pop()


class Scaled(Reducer[dict[str, float], float]):
    """A mean; `finish` divides the state's total in place, which only a merge or another finish notices."""

    def zero(self) -> dict[str, float]:
        return {"total": 0.0, "n": 0}

    def reduce(self, state: dict[str, float], value: float) -> dict[str, float]:
        return {"total": state["total"] + value, "n": state["n"] + 1}

    def merge(self, left: dict[str, float], right: dict[str, float]) -> dict[str, float]:
        return {name: left[name] + right[name] for name in left}

    def finish(self, state: dict[str, float]) -> float:
        state["total"] /= state["n"]
        return state["total"]


class Added(BatchReducer):
    """The sum of floats, from which other classes differ in one method."""

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({"value": np.bincount(groups.ids, groups.values.column("value"), len(groups))})

    def merge(self, groups: Groups) -> pa.RecordBatch:
        return Added.reduce(self, groups)


class OfAll(Added):
    """The total of all groups, for each of them."""

    def merge(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({"value": np.full(len(groups), pc.sum(groups.values.column("value")).as_py() or 0.0)})


class AsTheyCome(Added):
    """A row a group in the order in which the groups come, as `group_by` of Arrow, pandas and polars gives them."""

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        rows = pa.table({"id": groups.ids, "value": groups.values.column("value")})
        found = rows.group_by("id", use_threads=False).aggregate([("value", "sum")])
        return pa.record_batch({"value": found["value_sum"].combine_chunks()})


class ByRow(Added):
    """Makes its columns of rows, of which there may be none."""

    def finish(self, states: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([{"total": row["value"]} for row in states.to_pylist()])


def one_row(base: type[BatchReducer], method: str) -> BatchReducer:
    """A reducer one of whose methods gives a single row, whatever it is given."""

    def single(self: Any, argument: Any) -> pa.RecordBatch:
        return getattr(base, method)(self, argument).slice(0, 1)

    return type("OneRow", (base,), {method: single})()


NUMBERS = [3, 5, 8, 1, 9, 2]
COLUMNS = [{"value": float(number)} for number in NUMBERS]


UNLAWFUL: dict[str, tuple[Any, list[Any]]] = {
    "subtraction": (lambda left, right: left - right, NUMBERS),
    "last value": (lambda left, right: right, NUMBERS),
    "no identity": (FromOne(), NUMBERS),
    "forgets nested": (ForgetsNested(), NUMBERS),
    "merges only once": (MergesOnce(), COLUMNS),
    "finish takes from the state": (Popped(), [[1, 2], [3, 4]]),
    "finish divides the state": (Scaled(), NUMBERS),
    "of all groups": (OfAll(), COLUMNS),
    "groups as they come": (AsTheyCome(), COLUMNS),
}


@pytest.mark.parametrize(("reducer", "values"), UNLAWFUL.values(), ids=UNLAWFUL)
def test_an_unlawful_reducer_is_caught_with_a_counter_example(reducer: Any, values: list[Any]) -> None:
    with pytest.raises(LawError, match=r"(must|identity).*; for \[.*\] in parts \["):
        check_reducer_laws(reducer, values)


def test_a_finish_that_changes_the_state_is_named_as_such() -> None:
    for reducer, values in ((Popped(), [[1, 2]]), (Scaled(), NUMBERS)):
        with pytest.raises(LawError, match="finish must not change the state"):
            check_reducer_laws(reducer, values)


@pytest.mark.parametrize("method", ["reduce", "merge", "finish"])
def test_a_batch_reducer_of_the_wrong_length_is_caught(method: str) -> None:
    with pytest.raises(ExecutorError, match=rf"OneRow\.{method} must return .* one row a group \([23]\), not 1 rows"):
        check_reducer_laws(one_row(Added, method), COLUMNS)


def test_a_batch_reducer_gives_no_groups_the_columns_that_it_gives_others() -> None:
    law = r"ByRow: finish must give the same columns for no groups .*; for \[\{'value': .*\]: none, not total: double"
    with pytest.raises(LawError, match=law):
        check_reducer_laws(ByRow(), COLUMNS)

    class Greatest(Added):
        def finish(self, states: pa.RecordBatch) -> pa.RecordBatch:
            most = max(states.column("value").to_pylist())
            return pa.record_batch({"value": states.column("value"), "most": np.full(states.num_rows, most)})

    with pytest.raises(ExecutorError, match=r"Greatest\.finish failed on 0 keys: ValueError"):
        check_reducer_laws(Greatest(), [{"value": 1.0}])


@pytest.mark.parametrize("reducer", [add, Sum()], ids=["records", "batches"])
def test_a_check_that_would_check_nothing_is_refused(reducer: Any) -> None:
    with pytest.raises(ConfigError, match=r"to check .*(add|Sum) takes at least one value and one trial"):
        check_reducer_laws(reducer, [])
    with pytest.raises(ConfigError, match="one trial"):
        check_reducer_laws(reducer, COLUMNS, trials=0)


def test_one_value_is_enough_to_catch_a_reducer_and_the_counter_example_is_small() -> None:
    with pytest.raises(LawError, match=r"for \[(\('a', 3\)(, )?){2,3}\] in parts"):
        check_reducer_laws(lambda left, right: right - left, [3])


def test_the_state_of_no_values_is_never_finished() -> None:
    class Range(Total):
        def zero(self) -> Any:
            return None

        def reduce(self, state: Any, value: int) -> Any:
            return (value, value) if state is None else (min(state[0], value), max(state[1], value))

        def merge(self, left: Any, right: Any) -> Any:
            return left or right if left is None or right is None else (min(left[0], right[0]), max(left[1], right[1]))

        def finish(self, state: Any) -> dict[str, int]:
            return {"least": state[0], "greatest": state[1]}

    check_reducer_laws(Range(), NUMBERS)


def test_a_reducer_without_merge_has_no_laws_to_keep() -> None:
    class Alone(Total):
        merge = Reducer.merge

    with pytest.raises(LawError, match=r"Alone has no merge"):
        check_reducer_laws(Alone(), NUMBERS)
