"""Compares a result with its reference and says in words where they first differ. Rows are matched by key, and without
a key as bags.

Polars compares whole columns. Only the few rows that are shown are looked at value by value."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from dpa._util.words import shortened
from dpa.routing.keys import KeyName, in_words, names_of
from dpa.spark._equality import (
    LONGEST,
    IncomparableError,
    aligned,
    difference,
    digits_of,
    divergence,
    equal,
    series_of,
    shown_value,
    steady,
)

ROUNDING = 1e-9  # how far sums of floating-point numbers may be apart, relatively: Spark adds them up in another order

_SIDES = ("result", "reference")

_OTHER = {"result": "reference", "reference": "result"}

_UNUSED = "\0"  # how no name of a column ends
_LONGEST_ROW = 400  # characters of a row that a sentence shows
_SHOWN = 5  # how many keys, in key order, or rows to describe


@dataclass(frozen=True)
class Comparison:
    """Whether the tables agree, the rows of the reference, and sentences on the first few differences."""

    matches: bool
    rows: int
    differences: tuple[str, ...] = ()


def compare(
    result: pa.Table, reference: pa.Table, key: KeyName, tolerance: float | Mapping[str, float] = 0.0
) -> Comparison:
    """Compare two tables that should have the same columns and rows, in any order.

    Null equals null, also as a key, and NaN equals NaN. The width of integers, the order of columns and the layout of
    strings do not matter. Lists and structs are compared by content.

    Args:
        key: the column that rows are matched by, or the columns of a composite key. `()`: no key; then rows are paired
            off as `_Bags` does, which also names its limit.
        tolerance: the greatest relative difference of two equal numbers, |a - b| / max(|a|, |b|); or of those of
            columns by name, 0 for others.
    """
    of_columns = tolerance if isinstance(tolerance, Mapping) else dict.fromkeys(result.column_names, tolerance)
    tolerances = {name: of_columns.get(name, 0.0) for name in result.column_names}
    differences = _about_columns(result, reference, key)
    if not differences:
        try:
            keyed = bool(names_of(key))
            rows = _Matching(result, reference, key, tolerances) if keyed else _Bags(result, reference, tolerances)
            differences = rows.differences(_SHOWN)
        except IncomparableError as error:
            differences = [str(error)]
    return Comparison(not differences, reference.num_rows, tuple(differences))


class _Matching:
    """The rows of two tables matched by key, a composite one as a struct."""

    def __init__(self, result: pa.Table, reference: pa.Table, key: KeyName, tolerances: Mapping[str, float]) -> None:
        self._tables = {"result": result, "reference": reference}
        self._key = key
        self._tolerances = tolerances
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
        values = {name: {side: series_of(table, name) for side, table in self._tables.items()} for name in self._values}
        unequal = pairs.filter(~_are_equal(values, pairs, tolerances))
        self._odd = pl.concat([found.filter(~once), unequal]).sort("key", nulls_last=False)

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
            if not equal(name, series_of(rows[0], name), series_of(rows[1], name), self._tolerances[name])[0]:
                sentences.append(difference(subject, name, *(row[name][0].as_py() for row in rows)))
        return sentences

    def _named(self, key: Any) -> str:
        """A key in a sentence: `word 'the'`, or `(country, day) ('DE', 2026-01-31)`."""
        if isinstance(self._key, str):
            return f"{self._key} {shown_value(key)}"
        return f"({', '.join(self._key)}) {in_words(tuple(key.values()), LONGEST)}"


class _Bags:
    """The rows of two tables with the same columns, paired off within a tolerance. Raises IncomparableError.

    Rows are first paired by all columns, with numbers rounded to about the tolerance; among rows that agree, any pair
    will do. What is left, because rounding put close numbers apart, is paired in order, among rows that agree in the
    columns that no tolerance is for. A pair counts if the two rows are equal. Rows that are all equal in the order of
    their inexact columns, among those that agree in the others, are paired so.

    So tables of which no row is left are equal. The converse fails only where a coarse tolerance makes one row equal to
    several that differ: with two or more inexact columns, or one of lists, another choice of pairs might match more."""

    def __init__(self, result: pa.Table, reference: pa.Table, tolerances: Mapping[str, float]) -> None:
        self._tables = {"result": result, "reference": reference}
        self._tolerances = tolerances
        self._columns = {
            name: dict(zip(_SIDES, aligned(name, series_of(result, name), series_of(reference, name)), strict=True))
            for name in result.column_names
        }
        kinds = {name: sides["result"].dtype for name, sides in self._columns.items()}
        self._exact = [name for name, kind in kinds.items() if not (kind.is_float() or kind.is_nested())]
        self._frames = {side: self._frame(side) for side in _SIDES}
        no_numbers = [name for name in self._exact if not (tolerances[name] and kinds[name].is_numeric())]
        # Rows of no exact columns have nothing that says which two are meant to be one, unless there are no others.
        are_alone = all(len(table) == 1 for table in self._tables.values())
        shown_by = self._exact if self._exact or are_alone else [*kinds]
        rows = {side: frame["row"] for side, frame in self._frames.items()}
        for identity in ([*kinds], no_numbers, shown_by):
            self._left = self._unequal(rows, identity)
            rows = {side: self._left[side].drop_nulls() for side in _SIDES}
        if not self._left.is_empty():
            # In order, numbers of one column are paired if any choice of pairs does; but of tables that differ, rows
            # behind a missing one would be paired wrongly.
            in_order = self._unequal({side: frame["row"] for side, frame in self._frames.items()}, self._exact)
            self._left = self._left.clear() if in_order.is_empty() else self._left
        self._left = self._left.sort(*map(_form, shown_by), "number")

    def differences(self, shown: int) -> list[str]:
        """Describe the first `shown` rows that are left, in order, and count the others."""
        if self._left.is_empty():
            return []
        left = self._distinct(self._left)
        pairs = left.select(_SIDES).head(shown).iter_rows()
        sentences = [sentence for here, there in pairs for sentence in self._about(here, there)]
        more = len(left) - shown
        return [*sentences, f"{more:,} more row{'s differ' if more > 1 else ' differs'}"] if more > 0 else sentences

    def _frame(self, side: str) -> pl.DataFrame:
        """A table's columns in their form for sorting and joining, and floating ones also as they are."""
        columns = {name: sides[side] for name, sides in self._columns.items()}
        digits = {name: digits_of(self._tolerances[name]) for name in columns}
        forms = [
            steady(pl.col(name), column.dtype, self._columns[name][_OTHER[side]].dtype, digits[name]).alias(_form(name))
            for name, column in columns.items()
        ]
        floats = [pl.col(name).alias(f"~{name}") for name, column in columns.items() if column.dtype.is_float()]
        return pl.DataFrame(columns).select(*forms, *floats).with_row_index("row")

    def _unequal(self, rows: dict[str, pl.Series], identity: Sequence[str]) -> pl.DataFrame:
        """Of rows joined by identity and number, those that are alone or not equal."""
        forms = [_form(name) for name in identity]
        here, there = (_numbered(frame[rows[side]], forms, side) for side, frame in self._frames.items())
        pairs = here.join(there, on=[*forms, "number"], how="full", nulls_equal=True, coalesce=True, suffix=_UNUSED)
        alone = pairs.filter(pl.any_horizontal(pl.col(*_SIDES).is_null()))
        both = pairs.drop_nulls(_SIDES)
        return pl.concat([alone, both.filter(~_are_equal(self._columns, both, self._tolerances))])

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
        if here is None or there is None:
            side, row = ("result", here) if here is not None else ("reference", there)
            assert row is not None
            return [self._about_alone(side, row)]
        subject = self._named("result", here, self._exact) if self._exact else "the row"
        sentences = []
        for name in self._columns:
            one, other = (
                series_of(self._tables[side].slice(row, 1), name)
                for side, row in zip(_SIDES, (here, there), strict=True)
            )
            if not equal(name, one, other, self._tolerances[name])[0]:
                sentences.append(difference(subject, *divergence(name, one, other, self._tolerances[name])))
        return sentences

    def _about_alone(self, side: str, row: int) -> str:
        subject, other = self._named(side, row, self._columns), _OTHER[side]
        forms = [_form(name) for name in self._columns]
        own = self._frames[side][[row]].select(forms)
        counts = {
            each: len(frame.join(own, on=forms, how="semi", nulls_equal=True)) if forms else len(frame)
            for each, frame in self._frames.items()
        }
        if not counts[other]:
            return f"{subject} is missing in the {other}"
        times = " and ".join(
            f"{'once' if count == 1 else f'{count:,} times'} in the {each}" for each, count in counts.items()
        )
        return f"{subject} occurs {times}"

    def _named(self, side: str, row: int, names: Iterable[str]) -> str:
        """A row in a sentence: `row (symbol 'a', size 3)`."""
        values = ", ".join(f"{name} {shown_value(self._tables[side][name][row].as_py())}" for name in names)
        return f"row ({shortened(values, _LONGEST_ROW)})"


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


def _are_equal(
    columns: Mapping[str, Mapping[str, pl.Series]], pairs: pl.DataFrame, tolerances: Mapping[str, float]
) -> pl.Series:
    same = pl.repeat(True, len(pairs), dtype=pl.Boolean, eager=True)
    for name, sides in columns.items():
        one, other = (sides[side].gather(pairs[side]) for side in _SIDES)
        same &= equal(name, one, other, tolerances[name])
    return same


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
