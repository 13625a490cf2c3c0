"""The one schema of a result, whatever types the shares have by themselves."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from builders import Total, block_of, one_table, pairs
from hypothesis import given
from hypothesis import strategies as st

from dpa.aggregates import Count, Mean, Sum, TopK
from dpa.errors import ExecutorError, KeyTypeError
from dpa.execution.block import object_array
from dpa.execution.receivers import receiver_of, store_of
from dpa.execution.schemas import ShareSchema, agreed, as_agreed
from dpa.executors import BatchReducer, FunctionReducer, Groups, Reducer, batch_mapper
from dpa.testing import run_local


class Given(Reducer[Any, Any]):
    def zero(self) -> Any:
        return None

    def reduce(self, state: Any, value: Any) -> Any:
        return value

    def merge(self, left: Any, right: Any) -> Any:
        return left if right is None else right


def share(**of_keys: Any) -> pa.Table:
    """The share of a reducer that returns these values, by key."""
    store = store_of(receiver_of(Given()))
    store.reduce(block_of(list(of_keys), object_array(list(of_keys.values()))))
    return store.finish("key").table


PROMOTED = {
    "nulls and integers": (None, 1, [None, 1]),
    "nulls and structs": (None, [{"x": 1}], [None, [{"x": 1}]]),
    "integers and floats": (1, 2.5, [1.0, 2.5]),
    "lists of nulls and of integers": ([None], [1], [[None], [1]]),
    "empty lists and lists of texts": ([], ["a"], [[], ["a"]]),
    "structs with more fields": ([{"x": 1}], [{"x": 2, "y": "b"}], [[{"x": 1, "y": None}], [{"x": 2, "y": "b"}]]),
}


@pytest.mark.parametrize(("one", "other", "together"), PROMOTED.values(), ids=PROMOTED)
def test_types_are_promoted_where_arrow_can(one: Any, other: Any, together: list[Any]) -> None:
    table = one_table([share(a=one), share(b=other)], "key")
    assert table["value"].to_pylist() == together
    assert table.schema == one_table([share(b=other), share(a=one)], "key").schema


REFUSED = {
    "integers and texts": (1, "one", "column 'value': int64 for key 'a' and string for key 'b'"),
    "integers and booleans": (1, True, "column 'value': int64 for key 'a' and bool for key 'b'"),
    "lists of integers and of texts": ([1], ["one"], "for key 'a' and list<item: string> for key 'b'"),
    "a column here and two there": ({"x": 1}, {"x": 1, "y": 2}, "columns: x for key 'a' and x, y for key 'b'"),
    "a value here and columns there": (1, {"x": 1}, "columns: value for key 'a' and x for key 'b'"),
}


@pytest.mark.parametrize(("one", "other", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_promoted_is_refused_with_both_keys(one: Any, other: Any, message: str) -> None:
    with pytest.raises(ExecutorError, match="same keys") as refusal:
        one_table([share(a=one), share(b=other)], "key")
    assert message in str(refusal.value)
    if not message.startswith("columns: value"):
        with pytest.raises(ExecutorError, match=r"Given.finish: .* for key 'a' and .* for key 'b'"):
            share(a=one, b=other)
    with pytest.raises(ExecutorError, match=r"column 'value' of the result is int64 on one reducer and double"):
        one_table([share(a=2**60 + 1), share(b=0.5)], "key")


def test_shares_have_columns_in_any_order_and_keys_of_one_type_and_an_empty_one_has_no_say() -> None:
    one, other = pa.table({"key": ["a"], "x": [1], "y": ["b"]}), pa.table({"key": ["c"], "y": ["d"], "x": [2]})
    assert one_table([one, other], "key").to_pylist()[1] == {"key": "c", "x": 2, "y": "d"}
    text, raw = (pa.table({"key": pa.array([key]), "value": [1]}) for key in ("a", b"a"))
    with pytest.raises(KeyTypeError, match="keys of types binary and string"):
        one_table([text, raw], "key")
    assert one_table([text, pa.table({"key": pa.nulls(1), "value": [2]})], "key")["key"].to_pylist() == ["a", None]
    with pytest.raises(ExecutorError, match=r"Given.finish: column 'value' of the result, for key 'b': .*object"):
        share(a=1, b=object())
    empty = store_of(receiver_of(Given())).finish("key").table
    schema = agreed([ShareSchema.of(empty, "key"), ShareSchema.of(share(a=1), "key")])
    assert schema is not None
    assert as_agreed(empty, schema, "key").schema == schema == share(a=1).schema
    assert agreed([None, None]) is None


VALUES = st.one_of(st.none(), st.integers(-9, 9), st.floats(allow_nan=False), st.lists(st.integers(0, 3), max_size=2))


@given(st.dictionaries(st.text(max_size=3), VALUES, min_size=1, max_size=8), st.integers(1, 4), st.integers(0, 99))
def test_a_result_does_not_depend_on_which_reducer_has_which_key(of_keys: dict, reducers: int, seed: int) -> None:
    """Neither its values and types nor whether it is refused."""
    draw, shares = random.Random(seed), [{} for _ in range(reducers)]
    for key, value in of_keys.items():
        draw.choice(shares)[key] = value
    try:
        whole = one_table([share(**of_keys)], "key").sort_by("key")
    except ExecutorError:
        with pytest.raises(ExecutorError):
            one_table([share(**some) for some in shares], "key")
        return
    assert one_table([share(**some) for some in shares], "key").sort_by("key") == whole


@batch_mapper
def lengths(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow.compute as pc

    return pa.record_batch({"key": batch["word"], "value": pc.utf8_length(batch["word"])})


class NeedsAGroup(BatchReducer):
    def reduce(self, groups: Groups) -> pa.RecordBatch:
        raise ValueError(f"first of {groups.ids[0]}")

    merge = reduce


INPUT = pa.schema([("word", pa.large_string()), ("value", pa.int64())])
EMPTY = {
    "a batch reducer": (None, "word", Count(), {"word": pa.string(), "count": pa.int64()}),
    "a batch reducer that changes types": (None, "word", Mean(), {"word": pa.string(), "value": pa.float64()}),
    "a batch mapper": (lengths, "key", Sum(), {"key": pa.string(), "value": pa.int64()}),
    "a function reducer": (None, "word", max, {"word": pa.string(), "value": pa.int64()}),
    "a reducer of one record at a time": (None, "word", Total(), {"word": pa.string(), "value": pa.int64()}),
    "dicts": (None, "word", TopK(2), {"word": pa.string(), "top": pa.list_(pa.null())}),
    "a mapper that has yielded nothing": (pairs, "word", Total(), {"word": pa.null(), "value": pa.int64()}),
    "a column that is not known": (pairs, "word", Sum(), {"word": pa.null(), "value": pa.null()}),
    "a count of records that are not known": (pairs, "word", Count(), {"word": pa.null(), "count": pa.int64()}),
    "a reducer that fails on nothing": (None, "word", NeedsAGroup(), {"word": pa.string()}),
}


@pytest.mark.parametrize(("mapper", "key", "reducer", "columns"), EMPTY.values(), ids=EMPTY)
def test_an_empty_result_keeps_its_columns_and_types(mapper: Any, key: str, reducer: Any, columns: dict) -> None:
    result = run_local(mapper, reducer, INPUT.empty_table(), key=key)
    assert dict(zip(result.schema.names, result.schema.types, strict=True)) == columns
    assert result.num_rows == 0


def test_the_columns_of_an_empty_result_are_those_of_a_full_one() -> None:
    rows = pa.table({"word": pa.array(["a", "b"], pa.large_string()), "value": [1, 2]})
    for reducer in (Count(), Mean(), Sum(), FunctionReducer(max)):
        full, nothing = (run_local(None, reducer, data, key="word") for data in (rows, INPUT.empty_table()))
        assert full.schema == nothing.schema
