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


@dataclass(frozen=True)
class Comparison:
    """`matches`: whether they agree. `rows`: rows of the reference. `differences`: the first few, a sentence each."""

    matches: bool
    rows: int
    differences: tuple[str, ...] = ()


def compare(result: pa.Table, reference: pa.Table, key: KeyName, tolerance: float = 0.0, shown: int = 5) -> Comparison:
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
        shown: for how many keys, in key order, or rows differences are put into words.
    """
    differences = _about_columns(result, reference, key)
    if not differences:
        try:
            keyed = bool(names_of(key))
            rows = _Matching(result, reference, key, tolerance) if keyed else Bags(result, reference, tolerance)
            differences = rows.differences(shown)
        except IncomparableError as error:
            differences = [str(error)]
    return Comparison(not differences, reference.num_rows, tuple(differences))


class _Matching:
    """The rows of two tables, matched by key, and where their values differ. A composite key is matched as a struct of
    its columns."""

    def __init__(self, result: pa.Table, reference: pa.Table, key: KeyName, tolerance: float) -> None:
        self._tables = {"result": result, "reference": reference}
        self._key = key
        names = names_of(key)
        columns = [aligned(name, series_of(result, name), series_of(reference, name)) for name in names]
        self._keys = {
            side: pl.DataFrame(dict(zip(names, of_side, strict=True))).to_struct() if len(names) > 1 else of_side[0]
            for side, of_side in zip(self._tables, zip(*columns, strict=True), strict=True)
        }
        rows, other_rows = (pl.DataFrame({"key": series}).with_row_index(name) for name, series in self._keys.items())
        self._index = rows.join(other_rows, on="key", how="full", nulls_equal=True, coalesce=True)
        self._both = self._index.drop_nulls(["result", "reference"])
        values = [name for name in result.column_names if name not in names]
        self._unequal = {name: self._where_unequal(name, tolerance) for name in values}

    def differences(self, shown: int) -> list[str]:
        """What differs for the first `shown` keys that are not the same in both, and how many more there are."""
        keys = self._suspects()
        sentences = [sentence for key in keys.head(shown) for sentence in self._about(key)]
        return [*sentences, f"{len(keys) - shown:,} more keys differ"] if len(keys) > shown else sentences

    def _where_unequal(self, name: str, tolerance: float) -> pl.Series:
        """For each matched pair of rows, whether the column differs."""
        values = [series_of(table, name).gather(self._both[side]) for side, table in self._tables.items()]
        return ~equal(name, values[0], values[1], tolerance)

    def _suspects(self) -> pl.Series:
        """The keys that are not once in both tables with the same values, in order, null first."""
        alone = self._index.filter(pl.any_horizontal(pl.col("result", "reference").is_null()))["key"]
        repeated = [series.filter(series.is_duplicated()) for series in self._keys.values()]
        unequal = [self._both["key"].filter(mask) for mask in self._unequal.values()]
        return pl.concat([alone, *repeated, *unequal]).unique().sort(nulls_last=False)

    def _about(self, key: Any) -> list[str]:
        subject = self._named(key)
        rows = {
            side: series.eq_missing(pl.Series([key], dtype=series.dtype)).arg_true()
            for side, series in self._keys.items()
        }
        counts = [
            f"{subject} {f'occurs {len(found):,} times' if len(found) else 'is missing'} in the {side}"
            for side, found in rows.items()
            if len(found) != 1
        ]
        if counts:
            return counts
        pair = self._both["result"].index_of(rows["result"][0])
        assert pair is not None
        sentences = []
        for name, unequal in self._unequal.items():
            if unequal[pair]:
                here, there = (self._tables[side][name][rows[side][0]].as_py() for side in self._tables)
                sentences.append(difference(subject, name, here, there))
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
