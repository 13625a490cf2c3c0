"""A record on which a reducer or a process raises leaves no trace in the states, however these are kept and changed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpa import Process, Reducer
from dpa.errors import ExecutorError
from dpa.execution.block import Block, object_array
from dpa.execution.receivers import receiver_of, store_of
from dpa.tolerance import Letters, Tolerance

Rows = list[tuple[int, int]]
"""Keys and values."""

BAD = 7
"""Values of this are raised on, after the state was changed."""


def plus(state: int, value: int) -> int:
    if value == BAD:
        raise ValueError
    return state + value


def appended(state: list[int], value: int) -> list[int]:
    state.append(value)
    if value == BAD:
        raise ValueError
    return state


def kept(state: Any, value: dict[str, list[int]]) -> Any:
    """Has a value of the user's as a state, and changes both."""
    if state is None:
        state = value
    else:
        state["n"].extend(value["n"])
    if BAD in value["n"]:
        value["n"].clear()
        raise ValueError
    return state


class Held:
    """What neither `pickle` nor `copy` can copy."""

    def __init__(self) -> None:
        self.found: list[int] = []

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("this is mine alone")


def held(state: Held, value: int) -> Held:
    appended(state.found, value)
    return state


def joined(left: Held, right: Held) -> Held:
    left.found += right.found
    return left


def merged(left: Any, right: Any) -> Any:
    return right if left is None else left if right is None else {"n": left["n"] + right["n"]}


KINDS: dict[str, tuple[Callable[[], Any], Any, Any, Callable[[Any], list[int]]]] = {
    "numbers": (int, plus, plus, lambda state: [state]),
    "lists": (list, appended, list.__add__, list),
    "large lists": (lambda: [0] * 1_000, appended, list.__add__, lambda state: [value for value in state if value]),
    "values": (lambda: None, kept, merged, lambda state: state["n"]),
    "what cannot be copied": (Held, held, joined, lambda state: state.found),
}
"""How a state is begun, changed, merged, and looked at."""


def made(base: type, **methods: Any) -> Any:
    return type("Made", (base,), {name: staticmethod(method) for name, method in methods.items()})()


def emitting(key: str, state: list[int], value: int) -> tuple[list[int], list[dict[str, Any]]]:
    return appended(state, value), [{"key": key, "value": value}]


def blocks_of(rows: list[Rows], wrap: Callable[[int], Any]) -> list[Block]:
    return [
        Block.of(pa.array([f"k{key}" for key, _ in part]), object_array([wrap(value) for _, value in part]), 0)
        for part in rows
    ]


def left(rows: list[Rows]) -> dict[str, list[int]]:
    """The values of each key on which nothing raises."""
    found: dict[str, list[int]] = {}
    for key, value in (row for part in rows for row in part):
        if value != BAD:
            found.setdefault(f"k{key}", []).append(value)
    return found


ROWS = st.lists(st.lists(st.tuples(st.booleans(), st.sampled_from([1, 2, BAD])), min_size=1, max_size=8), max_size=3)


@settings(max_examples=60)
@given(rows=ROWS, kind=st.sampled_from([*KINDS]), may_merge=st.booleans())
def test_states_are_those_of_the_other_records(rows: list[Rows], kind: str, may_merge: bool) -> None:
    zero, reduce, merge, values = KINDS[kind]
    can_merge = may_merge or kind == "what cannot be copied"
    letters = Letters()
    receiver = receiver_of(made(Reducer, zero=zero, reduce=reduce, merge=merge))
    store: Any = store_of(replace(receiver, tolerance=Tolerance("step", letters, merges=can_merge)))
    for block in blocks_of(rows, lambda value: {"n": [value]} if kind == "values" else value):
        store.reduce(block)
    expected = left(rows)
    found = dict(zip(store.keys, map(values, store.states), strict=True))
    assert found == ({key: [sum(of)] for key, of in expected.items()} if kind == "numbers" else expected)
    assert dict(zip(store.keys, store.records.tolist(), strict=True)) == {key: len(of) for key, of in expected.items()}
    assert letters.count == sum(value == BAD for part in rows for _, value in part)
    failed = letters.take()
    wanted = '{"n": [7]}' if kind == "values" else "7"
    assert failed is None or {letter.record for letter in failed.letters} == {wanted}


@settings(max_examples=20)
@given(rows=ROWS)
def test_a_process_emits_nothing_for_a_record_on_which_it_raises(rows: list[Rows]) -> None:
    receiver = receiver_of(made(Process, zero=list, process=emitting))
    store: Any = store_of(replace(receiver, tolerance=Tolerance("step", Letters())))
    emitted = [batch.to_pylist() for block in blocks_of(rows, int) if (batch := store.reduce(block)) is not None]
    good = [{"key": f"k{key}", "value": value} for part in rows for key, value in part if value != BAD]
    assert [row for part in emitted for row in part] == good
    assert dict(zip(store.keys, store.states, strict=True)) == left(rows)


def test_each_record_is_folded_again_once_however_many_others_fail() -> None:
    calls = 0

    def counted(state: list[int], value: int) -> list[int]:
        nonlocal calls
        calls += 1
        return appended(state, value)

    receiver = receiver_of(made(Reducer, zero=list, reduce=counted))
    store: Any = store_of(replace(receiver, tolerance=Tolerance("step", Letters())))
    rows = [(0, BAD if row % 2 else 1) for row in range(100)]
    store.reduce(blocks_of([rows], int)[0])
    assert store.states == [[1] * 50]
    assert calls == 129


def test_a_record_that_is_refused_only_the_second_time_is_left_out_too() -> None:
    seen = set[int]()

    def once(state: list[int], value: int) -> list[int]:
        if value == 3 and value in seen:
            raise KeyError(value)
        seen.add(value)
        return appended(state, value)

    letters = Letters()
    receiver = receiver_of(made(Reducer, zero=list, reduce=once))
    store: Any = store_of(replace(receiver, tolerance=Tolerance("step", letters)))
    store.reduce(blocks_of([[(0, value) for value in (1, 3, 5, BAD, 2)]], int)[0])
    assert store.states == [[1, 5, 2]]
    failed = letters.take()
    assert failed is not None
    assert [(letter.record, letter.error) for letter in failed.letters] == [("7", "ValueError"), ("3", "KeyError")]


def test_states_that_can_be_neither_copied_nor_merged_are_an_error() -> None:
    receiver = receiver_of(made(Reducer, zero=Held, reduce=held))
    store: Any = store_of(replace(receiver, tolerance=Tolerance("step", Letters())))
    blocks = blocks_of([[(0, 1)], [(0, 2)]], int)
    store.reduce(blocks[0])
    with pytest.raises(ExecutorError, match=r"states must be such as `pickle` .* TypeError: this is mine alone"):
        store.reduce(blocks[1])
