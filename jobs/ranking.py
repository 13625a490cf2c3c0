"""Rankings by a count: partial ones first, then the ranking of all, as trending topics and top-k need them."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import Any

from dpa import Reducer
from dpa.executors import Record

Entry = tuple[int, Any]
"""A negated count and a name: the least entry has the greatest count and, among equal counts, the least name."""


class Ranking(Reducer[list[Entry], Record]):
    """The `k` rows of each key with the greatest `count`, in that order, as the list column `ranking`.

    Its values are rows of two columns: `count`, and the one that is called `name` here.
    """

    def __init__(self, name: str, k: int = 10) -> None:
        self.name = name
        self.k = k

    def zero(self) -> list[Entry]:
        return []

    def reduce(self, state: list[Entry], value: Record) -> list[Entry]:
        entry = (-value["count"], value[self.name])
        if len(state) < self.k or entry < state[-1]:
            insort(state, entry)
        return state[: self.k]

    def merge(self, left: list[Entry], right: list[Entry]) -> list[Entry]:
        return sorted(left + right)[: self.k]

    def finish(self, state: list[Entry]) -> dict[str, list[Record]]:
        return {"ranking": [{self.name: name, "count": -negated} for negated, name in state]}


def entries(record: Record) -> Iterator[Record]:
    """The entries of a ranking as rows, for the stage that ranks them once more."""
    yield from record["ranking"]


def reference(name: str, counted: str, k: int = 10) -> str:
    """The ranking of all as a query of Spark's, over a query for the columns `name` and `count`."""
    ordered = f"array_sort(collect_list(struct(-count AS negated, {name})))"
    entry = f"named_struct('{name}', e.{name}, 'count', -e.negated)"
    return f"SELECT slice(transform({ordered}, e -> {entry}), 1, {k}) AS ranking FROM ({counted})"
