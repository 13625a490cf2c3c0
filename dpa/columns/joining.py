"""A join with rows that every task has, as a verb of a lazy query: no row of the other side travels for it.

Which keys are equal is decided as by joins of two stages (`dpa.execution.receivers._join`): keys are compared in the
types in which dpa keeps them, and null equals nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import polars as pl
import pyarrow as pa
import pyarrow.types as pat

from dpa.columns.arrow import held, to_frame
from dpa.columns.query import Verb


def compares(kind: pa.DataType) -> bool:
    """Whether polars casts keys of this type to the one in which dpa keeps them, and none of them changes."""
    kind = kind.value_type if pat.is_dictionary(kind) else kind
    if pat.is_decimal(kind):
        return bool(kind.precision <= 38 and kind.scale >= 0)
    is_other = pat.is_null(kind) or pat.is_date64(kind) or isinstance(kind, pa.BaseExtensionType)
    return not (is_other or (pat.is_timestamp(kind) and kind.unit != "us"))


@dataclass(frozen=True, eq=False)
class Side:
    """The rows that every task has: key columns, and then those that the result has, under their names there."""

    table: pa.Table

    def __reduce__(self) -> tuple[type[Side], tuple[pa.Table]]:
        return Side, (self.table,)  # without the frame, which each process makes

    @cached_property
    def frame(self) -> pl.DataFrame:
        return to_frame(self.table)

    @property
    def digest(self) -> str:
        """The same for the same rows in the same order, however they are laid out in memory."""
        found = hashlib.sha256(str(self.table.schema.remove_metadata()).encode())
        for column in self.table.columns:
            for part in (column.is_valid(), column.drop_null()):
                for batch in pa.table({"": part}).combine_chunks().to_batches():
                    found.update(batch.serialize())
        return found.hexdigest()


@dataclass(frozen=True, eq=False, kw_only=True)
class Lookup(Verb):
    """A join of rows with a side.

    Attributes:
        how: `inner`, `left`, `semi` or `anti`.
        side: the other rows.
        keys: the key columns of the result, by the names that they have before.
        values: the names in the result of the other columns that it has of the rows, by the names before.
        order: the columns of the result.
    """

    how: Literal["inner", "left", "semi", "anti"]
    side: Side
    keys: Mapping[str, pa.Field]
    values: Mapping[str, str]
    order: tuple[str, ...]

    def lazy(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        kept = held(pa.schema(list(self.keys.values())))
        keys = [pl.col(old).cast(kept[new.name]).alias(new.name) for old, new in self.keys.items()]
        rows = frame.select(*keys, *(pl.col(old).alias(new) for old, new in self.values.items()))
        on = self.side.table.column_names[: len(keys)]
        other = self.side.frame.lazy()
        joined = rows.join(other, left_on=kept.names(), right_on=on, how=self.how, maintain_order="left")
        return joined.select(self.order)

    def passes_on(self, columns: Mapping[str, pa.Field], frame: pl.LazyFrame) -> dict[str, pa.Field]:
        passed = {new: columns[old] for old, new in self.values.items() if old in columns}
        of_side = {field.name: field for field in self.side.table.schema if field.name in self.order}
        return {**{new.name: new for new in self.keys.values()}, **passed, **of_side}
