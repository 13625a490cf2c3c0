"""Compares two tables whose rows have no key, as bags, and says in words what one has and the other has not."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl
import pyarrow as pa

from dpa.spark._differences import cut, difference, divergence, shown_value
from dpa.spark._equality import equal, series_of
from dpa.spark._pairing import OTHER, SIDES, Pairing

_LONGEST_ROW = 400
"""Characters of a row that a sentence shows."""


class Bags:
    """The rows of two tables with the same columns that are not in both, as `Pairing` pairs them off."""

    def __init__(self, result: pa.Table, reference: pa.Table, tolerance: float) -> None:
        """Compare the tables.

        Raises:
            IncomparableError: two columns of one name are of different kinds.
        """
        self._tables = {"result": result, "reference": reference}
        self._tolerance = tolerance
        self._pairing = Pairing(result, reference, tolerance)

    def differences(self, shown: int) -> list[str]:
        """What differs in the first `shown` rows that are left, in order, and how many more there are."""
        if self._pairing.left.is_empty():
            return []
        left = self._distinct(self._apart(self._pairing.left))
        pairs = left.select(SIDES).head(shown).iter_rows()
        sentences = [sentence for here, there in pairs for sentence in self._about(here, there)]
        more = len(left) - shown
        return [*sentences, f"{more:,} more row{'s differ' if more > 1 else ' differs'}"] if more > 0 else sentences

    def _apart(self, left: pl.DataFrame) -> pl.DataFrame:
        """What is left, with the two rows of a pair apart if nothing says that they belong together: neither what
        identifies them, nor that there are no others."""
        if self._pairing.exact or all(len(table) == 1 for table in self._tables.values()):
            return left
        nothing = pl.lit(None, left["result"].dtype)
        apart = pl.concat([left.with_columns(nothing.alias(side)) for side in reversed(SIDES)])
        return apart.filter(pl.any_horizontal(pl.col(*SIDES).is_not_null())).sort("number", maintain_order=True)

    def _distinct(self, left: pl.DataFrame) -> pl.DataFrame:
        """What is left, with only the first of equal rows that are alone in a table."""
        for side in SIDES:
            paired = pl.col(OTHER[side]).is_not_null()
            first = self._pairing.alike(side, left.filter(~paired)[side])
            left = left.filter(paired | pl.col(side).is_in(first.implode()))
        return left

    def _about(self, here: int | None, there: int | None) -> list[str]:
        """The sentences about a row of what is left."""
        if there is None:
            assert here is not None
            return [self._about_alone("result", here)]
        if here is None:
            return [self._about_alone("reference", there)]
        exact = self._pairing.exact
        subject = self._named("result", here, exact) if exact else "the row"
        rows = {"result": here, "reference": there}
        sentences = []
        for name in self._pairing.columns:
            one, other = (series_of(self._tables[side].slice(row, 1), name) for side, row in rows.items())
            if not equal(name, one, other, self._tolerance)[0]:
                sentences.append(difference(subject, *divergence(name, one, other, self._tolerance)))
        return sentences

    def _about_alone(self, side: str, row: int) -> str:
        subject, other = self._named(side, row, self._pairing.columns), OTHER[side]
        counts = {each: self._pairing.count(side, row, each) for each in SIDES}
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


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
