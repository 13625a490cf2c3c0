"""Compares a result with its reference, row by row, and says in words where they first differ.

Rows are matched by key here; rows without a key are paired off in `dpa.spark._bags`.

Whole columns are compared at a time (polars); values are looked at one by one only for the few rows that are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from dpa.routing.keys import KeyName, in_words, names_of
from dpa.spark._bags import Bags
from dpa.spark._differences import LONGEST, difference, shown_value
from dpa.spark._equality import IncomparableError, aligned, equal, series_of

_SHOWN = 5
"""For how many keys, in key order, or rows differences are put into words."""


@dataclass(frozen=True)
class Comparison:
    """`matches`: whether they agree. `rows`: rows of the reference. `differences`: the first few, a sentence each."""

    matches: bool
    rows: int
    differences: tuple[str, ...] = ()


def compare(result: pa.Table, reference: pa.Table, key: KeyName, tolerance: float = 0.0) -> Comparison:
    """Compare two tables that should have the same columns and the same rows, in any order: one row for each key or,
    without a key, each row as often as in the other table.

    Null equals null, also as a key, and NaN equals NaN. The width of integers, the order of columns and how Arrow lays
    strings out do not matter; lists and structs are compared by what they hold.

    Args:
        result: the table to check.
        reference: the table that it should equal.
        key: the column that rows are matched by, or the columns of a composite key; `()`: rows have no key of their
            own. Then tables match if their rows can be paired off such that each pair is equal, and a pair is found as
            `dpa.spark._pairing.Pairing` says, which also says when it is not.
        tolerance: greatest relative difference of two numbers, |a - b| / max(|a|, |b|), that still counts as equal.
    """
    differences = _about_columns(result, reference, key)
    if not differences:
        try:
            keyed = bool(names_of(key))
            rows = _Matching(result, reference, key, tolerance) if keyed else Bags(result, reference, tolerance)
            differences = rows.differences(_SHOWN)
        except IncomparableError as error:
            differences = [str(error)]
    return Comparison(not differences, reference.num_rows, tuple(differences))


class _Matching:
    """The rows of two tables, matched by key, and where their values differ. A composite key is matched as a struct of
    its columns."""

    def __init__(self, result: pa.Table, reference: pa.Table, key: KeyName, tolerance: float) -> None:
        self._tables = {"result": result, "reference": reference}
        self._key = key
        self._tolerance = tolerance
        names = names_of(key)
        columns = [aligned(name, series_of(result, name), series_of(reference, name)) for name in names]
        here, there = (
            pl.DataFrame({"key": pl.DataFrame(of_side).to_struct() if len(names) > 1 else of_side[0]})
            .with_row_index(side)
            .group_by("key")
            .agg(pl.col(side).first(), pl.len().alias(f"in {side}"))
            for side, of_side in zip(self._tables, zip(*columns, strict=True), strict=True)
        )
        found = here.join(there, on="key", how="full", nulls_equal=True, coalesce=True)
        once = pl.all_horizontal(pl.col("in result", "in reference").fill_null(0) == 1)
        pairs = found.filter(once)
        self._values = [name for name in result.column_names if name not in names]
        differs = pl.repeat(False, len(pairs), dtype=pl.Boolean, eager=True)
        for name in self._values:
            one, other = (series_of(table, name).gather(pairs[side]) for side, table in self._tables.items())
            differs |= ~equal(name, one, other, tolerance)
        self._odd = pl.concat([found.filter(~once), pairs.filter(differs)]).sort("key", nulls_last=False)

    def differences(self, shown: int) -> list[str]:
        """What differs for the first `shown` keys that are not once in both tables with the same values, in order, null
        first, and how many more there are."""
        more = len(self._odd) - shown
        sentences = [
            sentence for found in self._odd.head(shown).iter_rows(named=True) for sentence in self._about(found)
        ]
        return [*sentences, f"{more:,} more keys differ"] if more > 0 else sentences

    def _about(self, found: dict[str, Any]) -> list[str]:
        subject = self._named(found["key"])
        counts = {side: found[f"in {side}"] or 0 for side in self._tables}
        sentences = [
            f"{subject} {f'occurs {count:,} times' if count else 'is missing'} in the {side}"
            for side, count in counts.items()
            if count != 1
        ]
        for name in self._values if not sentences else ():
            rows = [table.slice(found[side], 1) for side, table in self._tables.items()]
            if not equal(name, series_of(rows[0], name), series_of(rows[1], name), self._tolerance)[0]:
                sentences.append(difference(subject, name, *(row[name][0].as_py() for row in rows)))
        return sentences

    def _named(self, key: Any) -> str:
        """A key in a sentence: `word 'the'`, or `(country, day) ('DE', 2026-01-31)`."""
        if isinstance(self._key, str):
            return f"{self._key} {shown_value(key)}"
        return f"({', '.join(self._key)}) {in_words(tuple(key.values()), LONGEST)}"


def _about_columns(result: pa.Table, reference: pa.Table, key: KeyName) -> list[str]:
    """What is wrong with the columns' names."""
    sentences = []
    for side, table in (("result", result), ("reference", reference)):
        twice = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
        sentences += [f"the {side} has more than one column {name!r}" for name in twice]
    missing = [name for name in reference.column_names if name not in result.column_names]
    extra = [name for name in result.column_names if name not in reference.column_names]
    if missing:
        sentences.append(f"the result has no {_columns(missing)} (it has {', '.join(result.column_names)})")
    if extra:
        sentences.append(f"the reference has no {_columns(extra)} (it has {', '.join(reference.column_names)})")
    absent = [] if sentences else [name for name in names_of(key) if name not in result.column_names]
    return sentences + [f"neither the result nor the reference has the key column {name!r}" for name in absent]


def _columns(names: Sequence[str]) -> str:
    return f"column{'s' if len(names) > 1 else ''} {', '.join(repr(name) for name in names)}"
