"""Differences of documents as merge patches: what is applied is what was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dpa.door._changes import applied, difference

NAMES = some.sampled_from(["a", "b", "c", "stages"])
SCALARS = some.none() | some.booleans() | some.integers(-2, 2) | some.floats(0, 1) | some.sampled_from(["", "x"])
VALUES = some.recursive(
    SCALARS, lambda inner: some.lists(some.integers(0, 2), max_size=3) | some.dictionaries(NAMES, inner, max_size=4)
)
DOCUMENTS = some.dictionaries(NAMES, VALUES, max_size=4)


def without_nulls(document: Any) -> Any:
    if not isinstance(document, dict):
        return document
    return {name: without_nulls(value) for name, value in document.items() if value is not None}


@given(DOCUMENTS, DOCUMENTS)
def test_a_difference_makes_the_later_document_of_the_earlier(before: dict[str, Any], after: dict[str, Any]) -> None:
    kept, patch = json.dumps(before), difference(before, after)
    made = applied(without_nulls(before), json.loads(json.dumps(patch)))
    assert json.dumps(made, sort_keys=True) == json.dumps(without_nulls(after), sort_keys=True)
    assert json.dumps(before) == kept
    assert not difference(after, after)
    assert applied({}, difference({}, after)) == without_nulls(after)


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_patches_are_applied_as_the_standard_has_it(document: Any, patch: Any, expected: Any) -> None:
    """The cases of RFC 7396, appendix A."""
    assert applied(document, patch) == expected


def test_a_difference_of_large_views_names_what_has_changed_alone() -> None:
    tasks = {str(task): {"queue": task, "busy": 0.5, "node": "one"} for task in range(256)}
    after = {**tasks, "7": {"queue": 8, "busy": 0.5, "node": "one"}}
    assert difference({"tasks": tasks}, {"tasks": after}) == {"tasks": {"7": {"queue": 8}}}
