"""Pairs off the rows of two tables that have no key: each row of one with an equal row of the other.

Rows that can be a pair are found by sorting and joining, in a few passes over the rows that are left. Which choice of
pairs leaves the fewest is not searched for.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

from dpa.spark._equality import aligned, digits_of, equal, series_of, steady

SIDES = ("result", "reference")

OTHER = {"result": "reference", "reference": "result"}

_FEW = 2_000
"""Most rows of a table that are each compared with every row that is left of the other table."""


class Pairing:
    """The rows of two tables with the same columns, paired off within a tolerance.

    A row is identified by its exact columns: neither floating nor nested. Rows of one identity are numbered in the
    order of their other columns, and those of one number are a pair if these are equal within the tolerance. Rows that
    are left are paired in the same way once more with those alike in all columns, then (if there is a tolerance, which
    is for all numbers) with those alike in what are no numbers, and if few are left, each with any that is equal.

    A pair is always equal, so where no row is left the tables are equal. The converse has a limit where a tolerance is
    so coarse that one row is equal to several others, which differ: if rows of one identity have two or more inexact
    columns, or one of lists, then another choice of pairs may match rows that this one leaves.

    Attributes:
        columns: by name, the column of each side, in the types in which they are compared.
        exact: the names of the columns that identify a row.
        left: a row for two rows that `exact` and their number make a pair, were they equal, and one for each row that
            is alone, with null for the other's; in order.
    """

    def __init__(self, result: pa.Table, reference: pa.Table, tolerance: float) -> None:
        """Pair off the rows.

        Raises:
            IncomparableError: two columns of one name are of different kinds.
        """
        self._tolerance = tolerance
        self.columns = {
            name: dict(zip(SIDES, aligned(name, series_of(result, name), series_of(reference, name)), strict=True))
            for name in result.column_names
        }
        kinds = {name: sides["result"].dtype for name, sides in self.columns.items()}
        self.exact = [name for name, kind in kinds.items() if not (kind.is_float() or kind.is_nested())]
        self._frames = {side: self._frame(side) for side in SIDES}
        no_numbers = [name for name in self.exact if not (tolerance and kinds[name].is_numeric())]
        self.left = self._not_paired(self.exact, list(kinds), no_numbers).sort(*map(_form, self.exact), "number")

    def _frame(self, side: str) -> pl.DataFrame:
        """A table's columns in their form for sorting and joining, and floating ones also as they are."""
        columns = {name: sides[side] for name, sides in self.columns.items()}
        digits = digits_of(self._tolerance)
        forms = [
            steady(pl.col(name), column.dtype, self.columns[name][OTHER[side]].dtype, digits).alias(_form(name))
            for name, column in columns.items()
        ]
        floats = [pl.col(name).alias(f"~{name}") for name, column in columns.items() if column.dtype.is_float()]
        return pl.DataFrame(columns).select(*forms, *floats).with_row_index("row")

    def _not_paired(self, *identities: Sequence[str]) -> pl.DataFrame:
        """Pair rows by the first columns that identify them, then those that are left by the next, then by trial. What
        is left has a row for two rows that the first columns would make a pair, were they equal, and one for each row
        that is alone, with null for the other's."""
        rows = {side: frame["row"] for side, frame in self._frames.items()}
        for identity in identities:
            left = self._unequal(rows, identity)
            rows = {side: left[side].drop_nulls() for side in SIDES}
            if left.is_empty():
                break
        return self._unequal(self._tried(rows), identities[0])

    def _unequal(self, rows: dict[str, pl.Series], identity: Sequence[str]) -> pl.DataFrame:
        """Of rows joined by their identity, and by their number among the rows of one identity, those not equal."""
        forms = [_form(name) for name in identity]
        here, there = (_numbered(frame[rows[side]], forms, side) for side, frame in self._frames.items())
        pairs = here.join(there, on=[*forms, "number"], how="full", nulls_equal=True, coalesce=True)
        alone = pairs.filter(pl.any_horizontal(pl.col("result", "reference").is_null()))
        both = pairs.drop_nulls(["result", "reference"])
        return pl.concat([alone, both.filter(~self._equal(both["result"], both["reference"]))])

    def _tried(self, rows: dict[str, pl.Series]) -> dict[str, pl.Series]:
        """The rows that are left when, if they are few, each is paired with the first that is equal."""
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

    def _equal(self, here: pl.Series, there: pl.Series) -> pl.Series:
        """For pairs of rows, whether all columns are equal."""
        same = pl.repeat(True, len(here), dtype=pl.Boolean, eager=True)
        for name, sides in self.columns.items():
            same &= equal(name, sides["result"].gather(here), sides["reference"].gather(there), self._tolerance)
        return same

    def _equal_to(self, side: str, row: int, other: str, rows: pl.Series) -> pl.Series:
        """Of `rows` of the table `other`, those that equal one row of the table `side`."""
        for name, sides in self.columns.items():
            values, value = sides[other].gather(rows), sides[side].gather([row]).new_from_index(0, len(rows))
            here, there = (values, value) if other == "result" else (value, values)
            rows = rows.filter(equal(name, here, there, self._tolerance))
        return rows

    def count(self, side: str, row: int, other: str) -> int:
        """How many rows of the table `other` equal one row of the table `side`."""
        return len(self._equal_to(side, row, other, self._frames[other]["row"]))

    def alike(self, side: str, rows: pl.Series) -> pl.Series:
        """Of each group of rows of a table that are alike in all columns, the first."""
        forms = [_form(name) for name in self.columns]
        return self._frames[side][rows].unique(forms, keep="first", maintain_order=True)["row"]


def _numbered(frame: pl.DataFrame, identity: list[str], row: str) -> pl.DataFrame:
    """The identity of each row, its number among the rows of that identity in the order of the other columns, and as
    the column `row` which one it is."""
    others = [column for column in frame.columns if column not in ("row", *identity)]
    first = [pl.col(column).ne_missing(pl.col(column).shift()) for column in identity]
    position = pl.int_range(pl.len())
    start = pl.when(pl.any_horizontal(pl.lit(False), *first)).then(position).otherwise(0).cum_max()
    ordered = frame.sort([*identity, *others]) if len(frame.columns) > 1 else frame
    return ordered.select(*identity, (position - start).alias("number"), pl.col("row").alias(row))


def _form(name: str) -> str:
    """The name of a column's form for sorting and joining; no other column of a frame has it."""
    return f"={name}"
