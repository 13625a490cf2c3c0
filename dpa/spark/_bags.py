"""Compares two tables whose rows have no key, as bags, and says in words what only one of them has.

Each row is paired off with an equal one of the other table. Candidates are found by sorting and joining, in a few
passes over the rows that are left; the choice of pairs that leaves the fewest is not searched for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl
import pyarrow as pa

from dpa.spark._equality import (
    aligned,
    cut,
    difference,
    digits_of,
    divergence,
    equal,
    series_of,
    shown_value,
    steady,
)

_SIDES = ("result", "reference")

_OTHER = {"result": "reference", "reference": "result"}

_FEW = 2_000
"""Most rows left of a table that are each compared with every one of the other."""

_LONGEST_ROW = 400
"""Characters of a row that a sentence shows."""


class Bags:
    """The rows of two tables with the same columns, paired off within a tolerance. Raises IncomparableError.

    A row is identified by its exact columns: neither floating nor nested. Rows of one identity are numbered in the
    order of their other columns, and equal rows of one number are a pair. What is left is paired likewise by all
    columns and, if a tolerance lets numbers differ, by the columns that are no numbers. If few rows are left, each is
    tried with all others.

    A pair is always equal, so tables of which no row is left are equal. The converse fails only where a coarse
    tolerance makes one row equal to several that differ: with two or more inexact columns, or one of lists, another
    choice of pairs might match more.
    """

    def __init__(self, result: pa.Table, reference: pa.Table, tolerance: float) -> None:
        self._tables = {"result": result, "reference": reference}
        self._tolerance = tolerance
        self._columns = {
            name: dict(zip(_SIDES, aligned(name, series_of(result, name), series_of(reference, name)), strict=True))
            for name in result.column_names
        }
        kinds = {name: sides["result"].dtype for name, sides in self._columns.items()}
        self._exact = [name for name, kind in kinds.items() if not (kind.is_float() or kind.is_nested())]
        self._frames = {side: self._frame(side) for side in _SIDES}
        no_numbers = [name for name in self._exact if not (tolerance and kinds[name].is_numeric())]
        rows = {side: frame["row"] for side, frame in self._frames.items()}
        # The exact columns come first, as sentences name rows by them. A missing row shifts the pairs of its identity,
        # which all columns mend. A number near another identity's is found by the columns that are no numbers.
        for identity in (self._exact, [*kinds], no_numbers):
            left = self._unequal(rows, identity)
            rows = {side: left[side].drop_nulls() for side in _SIDES}
            if left.is_empty():
                break
        # A row for two rows that their identity and number make a pair, were they equal; and one for each other row.
        self._left = self._unequal(self._tried(rows), self._exact).sort(*map(_form, self._exact), "number")

    def differences(self, shown: int) -> list[str]:
        """Describe the first `shown` rows that are left, in order, and count the others."""
        if self._left.is_empty():
            return []
        left = self._distinct(self._apart(self._left))
        pairs = left.select(_SIDES).head(shown).iter_rows()
        sentences = [sentence for here, there in pairs for sentence in self._about(here, there)]
        more = len(left) - shown
        return [*sentences, f"{more:,} more row{'s differ' if more > 1 else ' differs'}"] if more > 0 else sentences

    def _frame(self, side: str) -> pl.DataFrame:
        """A table's columns in their form for sorting and joining, and floating ones also as they are."""
        columns = {name: sides[side] for name, sides in self._columns.items()}
        digits = digits_of(self._tolerance)
        forms = [
            steady(pl.col(name), column.dtype, self._columns[name][_OTHER[side]].dtype, digits).alias(_form(name))
            for name, column in columns.items()
        ]
        floats = [pl.col(name).alias(f"~{name}") for name, column in columns.items() if column.dtype.is_float()]
        return pl.DataFrame(columns).select(*forms, *floats).with_row_index("row")

    def _unequal(self, rows: dict[str, pl.Series], identity: Sequence[str]) -> pl.DataFrame:
        """Of rows joined by identity and number, those that are alone or not equal."""
        forms = [_form(name) for name in identity]
        here, there = (_numbered(frame[rows[side]], forms, side) for side, frame in self._frames.items())
        pairs = here.join(there, on=[*forms, "number"], how="full", nulls_equal=True, coalesce=True)
        alone = pairs.filter(pl.any_horizontal(pl.col(*_SIDES).is_null()))
        both = pairs.drop_nulls(_SIDES)
        same = pl.repeat(True, len(both), dtype=pl.Boolean, eager=True)
        for name, sides in self._columns.items():
            one, other = (sides[side].gather(both[side]) for side in _SIDES)
            same &= equal(name, one, other, self._tolerance)
        return pl.concat([alone, both.filter(~same)])

    def _tried(self, rows: dict[str, pl.Series]) -> dict[str, pl.Series]:
        """Pair each row with the first that is equal, if few are left; returns the others."""
        here, there = rows["result"], rows["reference"]
        if max(len(here), len(there)) > _FEW:
            return rows
        alone = []
        for row in here:
            found = self._equal_to("result", row, "reference", there)
            if found.is_empty():
                alone.append(row)
            else:
                there = there.filter(there != found[0])
        return {"result": pl.Series(alone, dtype=here.dtype), "reference": there}

    def _equal_to(self, side: str, row: int, other: str, rows: pl.Series) -> pl.Series:
        """Of `rows` of the table `other`, those equal to one row of the table `side`."""
        for name, sides in self._columns.items():
            values, value = sides[other].gather(rows), sides[side].gather([row]).new_from_index(0, len(rows))
            here, there = (values, value) if other == "result" else (value, values)
            rows = rows.filter(equal(name, here, there, self._tolerance))
        return rows

    def _apart(self, left: pl.DataFrame) -> pl.DataFrame:
        """Separate the rows of a pair, unless they have an identity or are the only rows there are."""
        if self._exact or all(len(table) == 1 for table in self._tables.values()):
            return left
        nothing = pl.lit(None, left["result"].dtype)
        apart = pl.concat([left.with_columns(nothing.alias(side)) for side in reversed(_SIDES)])
        return apart.filter(pl.any_horizontal(pl.col(*_SIDES).is_not_null())).sort("number", maintain_order=True)

    def _distinct(self, left: pl.DataFrame) -> pl.DataFrame:
        """Drop all but the first of equal rows that are alone."""
        forms = [_form(name) for name in self._columns]
        for side in _SIDES:
            paired = pl.col(_OTHER[side]).is_not_null()
            alone = self._frames[side][left.filter(~paired)[side]]
            first = alone.unique(forms, keep="first", maintain_order=True)["row"]
            left = left.filter(paired | pl.col(side).is_in(first.implode()))
        return left

    def _about(self, here: int | None, there: int | None) -> list[str]:
        if there is None:
            assert here is not None
            return [self._about_alone("result", here)]
        if here is None:
            return [self._about_alone("reference", there)]
        subject = self._named("result", here, self._exact) if self._exact else "the row"
        sentences = []
        for name in self._columns:
            one, other = (
                series_of(self._tables[side].slice(row, 1), name)
                for side, row in zip(_SIDES, (here, there), strict=True)
            )
            if not equal(name, one, other, self._tolerance)[0]:
                sentences.append(difference(subject, *divergence(name, one, other, self._tolerance)))
        return sentences

    def _about_alone(self, side: str, row: int) -> str:
        subject, other = self._named(side, row, self._columns), _OTHER[side]
        counts = {each: len(self._equal_to(side, row, each, self._frames[each]["row"])) for each in _SIDES}
        if not counts[other]:
            return f"{subject} is missing in the {other}"
        if counts[side] > counts[other]:
            times = " and ".join(f"{_times(count)} in the {each}" for each, count in counts.items())
            return f"{subject} occurs {times}"
        return f"{subject} of the {side} is left over: each close row of the {other} is paired with another"

    def _named(self, side: str, row: int, names: Iterable[str]) -> str:
        """A row in a sentence: `row (symbol 'a', size 3)`."""
        values = ", ".join(f"{name} {shown_value(self._tables[side][name][row].as_py())}" for name in names)
        return f"row ({cut(values, _LONGEST_ROW)})"


def _numbered(frame: pl.DataFrame, identity: list[str], row: str) -> pl.DataFrame:
    """The identity of each row, its number among those of that identity in the order of the other columns, and which
    row it is, as the column `row`."""
    others = [column for column in frame.columns if column not in ("row", *identity)]
    first = [pl.col(column).ne_missing(pl.col(column).shift()) for column in identity]
    position = pl.int_range(pl.len())
    start = pl.when(pl.any_horizontal(pl.lit(False), *first)).then(position).otherwise(0).cum_max()
    ordered = frame.sort([*identity, *others]) if len(frame.columns) > 1 else frame
    return ordered.select(*identity, (position - start).alias("number"), pl.col("row").alias(row))


def _form(name: str) -> str:
    """The name of a column's form; no other column of a frame has it."""
    return f"={name}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
