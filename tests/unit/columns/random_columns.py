"""Random steps on columns, some of them functions, with what polars makes of the whole input at once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa

import dpa
from dpa.flow import Stream

_DAY = dt.datetime(2020, 1, 1)


def table_of(rows: int, chance: Random) -> pa.Table:
    def column(make: Callable[[], Any], kind: pa.DataType) -> pa.Array:
        return pa.array([make() if chance.random() > 0.15 else None for _ in range(rows)], kind)

    return pa.table(
        {
            "n": column(lambda: chance.randint(-5, 9), pa.int64()),
            "m": column(lambda: chance.randint(0, 5), pa.int8()),
            "f": column(lambda: chance.choice([-0.5, 0.25, 1.0, 3.5]), pa.float64()),
            "s": column(lambda: chance.choice(["a", "ab", "", "ö"]), pa.string()),
            "c": column(lambda: chance.choice(["x", "y"]), pa.dictionary(pa.int8(), pa.string())),
            "d": column(lambda: _DAY + dt.timedelta(hours=chance.randint(0, 9000)), pa.timestamp("s")),
            "l": column(lambda: [chance.randint(0, 3) for _ in range(chance.randint(0, 3))], pa.list_(pa.int64())),
            "p": column(lambda: {"x": chance.randint(0, 3), "y": "z"}, pa.struct({"x": pa.int64(), "y": pa.string()})),
            "b": column(lambda: chance.random() > 0.5, pa.bool_()),
        }
    )


@dpa.batch_mapper
def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def every(row: dict[str, Any]) -> bool:
    return len(row) > 0


TRUNCATES = not pl.__version__.startswith("2.0.")
"""Whether SQL of polars has `date_trunc`, which needs the types of columns."""

Change = Callable[[Stream], Stream]


@dataclass
class Drawn:
    """Steps as they are drawn: `changes` for a flow, and the `frame` that polars has made so far."""

    frame: pl.DataFrame
    chance: Random
    changes: list[Change] = field(default_factory=list)
    names: int = 0

    def draw(self, steps: int) -> None:
        for _ in range(steps):
            word = self.chance.choice(
                ["filter", "with_columns", "with_columns", "select", "drop", "rename", "explode", "unnest", "function"]
            )
            getattr(self, f"_{word}")()

    def _of(self, *kinds: type[pl.DataType] | pl.DataType) -> str | None:
        fitting = [name for name, kind in self.frame.schema.items() if kind in kinds or type(kind) in kinds]
        return self.chance.choice(fitting) if fitting else None

    def _new(self) -> str:
        self.names += 1
        return f"new_{self.names}"

    def _do(self, change: Change, made: pl.DataFrame) -> None:
        self.changes.append(change)
        self.frame = made

    def _expression(self) -> tuple[pl.Expr, str | None]:
        """An expression and, where there is one, the SQL text that says the same."""
        number, text, decimal = self._of(pl.Int64, pl.Int8), self._of(pl.String), self._of(pl.Float64)
        moment, listed, flag = self._of(pl.Datetime), self._of(pl.List), self._of(pl.Boolean)
        found: list[tuple[pl.Expr, str | None]] = [(pl.lit(7, pl.Int64), "cast(7 AS bigint)")]
        if number:
            n = pl.col(number)
            found += [
                (n + 3, f"{number} + 3"),
                (n.fill_null(0).cast(pl.Int64), f"cast(coalesce({number}, 0) AS bigint)"),
            ]
            found += [(n.is_in([1, 2]), None), (n.cast(pl.String), f"cast({number} AS text)")]
            found += [(n.clip(0, 3), None), (pl.when(n > 2).then(pl.lit("big")).otherwise(pl.lit("small")), None)]
        if text:
            found += [
                (pl.col(text).str.to_uppercase(), f"upper({text})"),
                (pl.col(text).str.len_chars(), f"length({text})"),
            ]
            found += [(pl.concat_str(pl.col(text), pl.lit("!")), None)]
        if decimal:
            found += [(pl.col(decimal) / 2, f"{decimal} / 2"), (pl.col(decimal).abs(), f"abs({decimal})")]
        if moment:
            found += [(pl.col(moment).dt.year(), f"year({moment})"), (pl.col(moment).dt.offset_by("1h"), None)]
            found += [(pl.col(moment).dt.truncate("1mo"), f"date_trunc('month', {moment})" if TRUNCATES else None)]
        if listed and self.frame.schema[listed] == pl.List(pl.Int64):
            found += [(pl.col(listed).list.len(), None), (pl.col(listed).list.eval(pl.element() * 2), None)]
        if flag:
            found += [(~pl.col(flag), None), (pl.col(flag).fill_null(value=False), f"coalesce({flag}, false)")]
        return self.chance.choice(found)

    def _named(self) -> tuple[dict[str, Any], dict[str, pl.Expr]]:
        """Of one to three expressions by name, what a flow is given and what polars is given."""
        given: dict[str, Any] = {}
        meant: dict[str, pl.Expr] = {}
        for _ in range(self.chance.randint(1, 3)):
            expression, sql = self._expression()
            name = self._new() if self.chance.random() < 0.8 else self.chance.choice(self.frame.columns)
            given[name] = sql if sql and self.chance.random() < 0.5 else expression
            meant[name] = expression
        return given, meant

    def _filter(self) -> None:
        number, flag, text = self._of(pl.Int64, pl.Int8), self._of(pl.Boolean), self._of(pl.String)
        found: list[tuple[Any, pl.Expr]] = []
        if number:
            found += [(pl.col(number) > 0, pl.col(number) > 0), (f"{number} < 6 or {number} is null", None)]
            found[-1] = (found[-1][0], (pl.col(number) < 6) | pl.col(number).is_null())
        if flag:
            found.append((pl.col(flag), pl.col(flag)))
        if text:
            found.append((f"{text} <> 'a'", pl.col(text) != "a"))
        if found:
            given, meant = self.chance.choice(found)
            self._do(lambda rows: rows.filter(given), self.frame.filter(meant))

    def _with_columns(self) -> None:
        given, meant = self._named()
        self._do(lambda rows: rows.with_columns(**given), self.frame.with_columns(**meant))

    def _select(self) -> None:
        given, meant = self._named()
        kept = self.chance.sample(self.frame.columns, self.chance.randint(1, len(self.frame.columns)))
        kept = [name for name in kept if name not in given] or [next(n for n in self.frame.columns if n not in given)]
        self._do(lambda rows: rows.select(*map(pl.col, kept), **given), self.frame.select(*kept, **meant))

    def _drop(self) -> None:
        if len(self.frame.columns) > 2:
            name = self.chance.choice(self.frame.columns)
            self._do(lambda rows: rows.drop(name), self.frame.drop(name))

    def _rename(self) -> None:
        old = self.chance.sample(self.frame.columns, min(2, len(self.frame.columns)))
        new = {name: self._new() for name in old} if self.chance.random() < 0.7 or len(old) < 2 else {}
        new = new or {old[0]: old[1], old[1]: old[0]}
        self._do(lambda rows: rows.rename(new), self.frame.rename(new))

    def _explode(self) -> None:
        name = self._of(pl.List)
        if name:
            self._do(lambda rows: rows.explode(name), self.frame.explode(name))

    def _unnest(self) -> None:
        name = self._of(pl.Struct)
        if name and not {"x", "y"} & set(self.frame.columns):
            self._do(lambda rows: rows.unnest(name), self.frame.unnest(name))

    def _function(self) -> None:
        of_batches = self.chance.random() < 0.5
        self._do(lambda rows: rows.map(same) if of_batches else rows.filter(every), self.frame)
