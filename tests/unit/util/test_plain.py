"""Plain data: it comes back as it was, and reading it runs nothing."""

import io
import os
import pickle
from collections import Counter
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa.protocol.checkpoint_format import PlainError, Schema
from dpa.sources.feed import Page


@dataclass(frozen=True)
class Leaf:
    value: Any
    more: int = 7
    secret: str = "derived"


@dataclass(frozen=True, kw_only=True)
class Node:
    leaves: tuple[Leaf, ...]
    states: Any = ()


class Mine:
    """A user's, which is pickled as it is."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mine) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)


HERE = __name__
SCHEMA = Schema({HERE: "Leaf Inner=Node"}, derived=("Leaf.secret",), foreign=("Inner.states",))


def loaded(data: bytes) -> Any:
    return SCHEMA.load(io.BytesIO(data))


def same(one: Any, other: Any) -> bool:
    """Whether two things are equal, of one type, with all that is in them."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, pa.RecordBatch | pa.Table):
        return one.schema.equals(other.schema, check_metadata=True) and one.equals(other)
    if is_dataclass(one):
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same([*one], [*other]) and same([*one.values()], [*other.values()])
    return repr(one) == repr(other) if isinstance(one, float) else bool(one == other)


_KEYS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
_ARRAYS = st.builds(
    lambda kind, shape: np.zeros(shape, kind) + (np.arange(shape[0]) if len(shape) == 1 else 0),
    st.sampled_from(["int64", "uint32", "float64", "int8", ">i4"]),
    st.sampled_from([(0,), (3,), (2, 2)]),
)
_COLUMNS = st.one_of(
    st.lists(st.none() | st.integers(-5, 5), max_size=4).map(lambda found: pa.array(found, pa.int64())),
    st.lists(st.none() | st.text(max_size=3), max_size=4).map(lambda found: pa.array(found, pa.string())),
    st.lists(st.text(max_size=3), max_size=4).map(lambda found: pa.array(found, pa.string()).dictionary_encode()),
    st.integers(0, 3).map(pa.nulls),
    st.lists(st.lists(st.integers(0, 3)), min_size=2, max_size=4).map(
        lambda found: pa.array(found, pa.list_(pa.int32())).slice(1)
    ),
)
_ARROW = st.one_of(
    _COLUMNS,
    _COLUMNS.map(lambda column: pa.record_batch([column, column], ["a", "a"])),
    st.lists(_COLUMNS, max_size=3).map(
        lambda found: pa.table({f"{place}": column for place, column in enumerate(found[:1])})
    ),
    st.just(pa.schema([pa.field("x", pa.timestamp("us", "UTC"), metadata={"of": "it"})], {"all": "of it"})),
    st.just(pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))),
)
_NUMBERS = st.sampled_from([np.int64(3), np.float32(0.1), np.bool_(True), np.uint8(255)])
_THINGS = st.recursive(
    _KEYS | _ARRAYS | _ARROW | _NUMBERS | st.integers().map(Mine) | st.just(Counter("aab")),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(_KEYS, inner, max_size=3),
        st.sets(_KEYS, max_size=3),
        inner.map(Leaf),
        st.lists(inner.map(Leaf), max_size=2).map(lambda found: Node(leaves=tuple(found))),
    ),
    max_leaves=12,
)


@given(_THINGS)
def test_whatever_is_written_comes_back(thing: Any) -> None:
    assert same(loaded(SCHEMA.dumps(thing)), thing)


def test_what_is_shared_is_written_once_and_shared_again() -> None:
    schema = pa.schema([(f"column {number}", pa.int64()) for number in range(100)])
    one, many = (SCHEMA.dumps([Leaf(schema) for _ in range(number)]) for number in (1, 1_000))
    assert len(many) < len(one) + 1_000 * 40
    found = loaded(many)
    assert found[0].value is found[-1].value


def test_lists_of_what_users_bring_are_pickled_together_by_what_is_given_for_it() -> None:
    given = []

    def dumps(thing: object) -> bytes:
        given.append(thing)
        return pickle.dumps(thing)

    states = [Mine(1), 2, {"a": Leaf(3)}]
    assert loaded(SCHEMA.dumps(Node(leaves=(), states=states), dumps)).states == states
    assert given == [states]


def test_a_field_that_is_lacking_has_its_default_and_one_too_many_is_refused() -> None:
    assert loaded(pickle.dumps(("Leaf", {"value": 1}))) == Leaf(1)
    for later in ("later", "secret"):
        with pytest.raises(PlainError, match=r"it holds .*Leaf.*, which is nothing that is known"):
            loaded(pickle.dumps(("Leaf", {"value": 1, later: 2})))


def test_a_class_of_the_same_name_and_an_object_of_dpa_that_is_no_record_are_not_written() -> None:
    Leaf = type("Leaf", (), {})
    assert SCHEMA.name_of(Leaf) is None and SCHEMA.name_of(Node) == "Inner"
    with pytest.raises(TypeError, match=r"dpa\.sources\.feed\.Page is no record, and cannot be written"):
        SCHEMA.dumps([Page(())])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nothing",
        pickle.dumps(Mine(1)),
        pickle.dumps(("Page", {"splits": ()})),
        pickle.dumps(("tuple", 7)),
        pickle.dumps((1, 2)),
        pickle.dumps({"value": 1}),
    ],
    ids=["empty", "no pickle", "a class", "no record of these", "no items", "no tag", "no tuple"],
)
def test_what_is_no_plain_data_is_refused(data: bytes) -> None:
    with pytest.raises(PlainError):
        loaded(data)


def test_a_pickle_that_runs_code_is_refused_before_it_runs(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.mkdir, (str(tmp_path / "made"),)

    with pytest.raises(PlainError, match=r"it names .*\.mkdir, and plain data names no class"):
        loaded(pickle.dumps([1, Harmful()]))
    assert not (tmp_path / "made").exists()
