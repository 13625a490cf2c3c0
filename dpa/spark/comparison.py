"""Compares a result with its reference and says in words where they first differ. Rows are matched by key here, and
without a key by `dpa.spark._bags`.

Polars compares whole columns. Only the few rows that are shown are looked at value by value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from dpa.routing.keys import KeyName, in_words, names_of
from dpa.spark._bags import Bags
from dpa.spark._equality import LONGEST, IncomparableError, aligned, difference, equal, series_of, shown_value

_SHOWN = 5
"""How many keys, in key order, or rows to describe."""


@dataclass(frozen=True)
class Comparison:
    """Whether the tables agree, the rows of the reference, and sentences on the first few differences."""

    matches: bool
    rows: int
    differences: tuple[str, ...] = ()


def compare(result: pa.Table, reference: pa.Table, key: KeyName, tolerance: float = 0.0) -> Comparison:
    """Compare two tables that should have the same columns and rows, in any order.

    Null equals null, also as a key, and NaN equals NaN. The width of integers, the order of columns and the layout of
    strings do not matter. Lists and structs are compared by content.

    Args:
        key: the column that rows are matched by, or the columns of a composite key. `()`: no key; then rows are paired
            off as `dpa.spark._bags.Bags` does, which also names its limit.
        tolerance: the greatest relative difference of two equal numbers, |a - b| / max(|a|, |b|).
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
    """The rows of two tables matched by key, a composite one as a struct."""

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
        """Describe the first `shown` keys that do not have one equal row in each table, in order, null first; count the
        others."""
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
