"""Random steps on columns, some of them functions, with what polars makes of the whole input at once."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
from arrow_columns import COLUMNS

import dpa
from dpa._util.inference import known_schema
from dpa.columns.arrow import to_frame
from dpa.flow import Stream

_DAY = dt.datetime(2020, 1, 1)
_VIENNA = pa.timestamp("us", "Europe/Vienna")

_Make = Callable[[Random], Any]


def _one_of(*values: Any) -> _Make:
    return lambda chance: chance.choice(values)


def _digits(most: int, scale: int) -> _Make:
    return lambda chance: Decimal(chance.randint(-(10**most) + 1, 10**most - 1)).scaleb(-scale)


def _list_of(make: _Make) -> _Make:
    return lambda chance: [make(chance) for _ in range(chance.randint(0, 3))]


KINDS: dict[str, tuple[_Make, pa.DataType]] = {
    "n": (lambda chance: chance.randint(-5, 9), pa.int64()),
    "m": (lambda chance: chance.randint(0, 5), pa.int8()),
    "f": (_one_of(-0.5, 0.25, 1.0, 3.5), pa.float64()),
    "s": (_one_of("a", "ab", "", "ö"), pa.string()),
    "c": (_one_of("x", "y"), pa.dictionary(pa.int8(), pa.string())),
    "d": (lambda chance: _DAY + dt.timedelta(hours=chance.randint(0, 900)), pa.timestamp("s")),
    "l": (_list_of(lambda chance: chance.randint(0, 3)), pa.list_(pa.int64())),
    "p": (lambda chance: {"x": chance.randint(0, 3), "y": "z"}, pa.struct({"x": pa.int64(), "y": pa.string()})),
    "b": (_one_of(True, False), pa.bool_()),
    "large": (_one_of(2**62, -(2**62), 2**63 - 1, -(2**63), 1, -7), pa.int64()),
    "positive": (_one_of(0, 3, 2**63, 2**64 - 1), pa.uint64()),
    "float": (_one_of(math.nan, -0.0, 0.0, math.inf, 2.5, -1.0), pa.float64()),
    "infinite": (_one_of(math.inf, -math.inf, 0.5, math.nan), pa.float64()),
    "half": (_one_of(math.nan, -0.0, 0.5, -8.0), pa.float32()),
    "money": (_digits(5, 2), pa.decimal128(7, 2)),
    "price": (_digits(20, 2), pa.decimal128(24, 2)),
    "wide": (_digits(38, 3), pa.decimal128(38, 3)),
    "moment": (lambda chance: _DAY + dt.timedelta(minutes=chance.randint(0, 90)), _VIENNA),
    "day": (lambda chance: dt.date(2020, 2, chance.randint(1, 29)), pa.date32()),
    "time": (lambda chance: dt.time(chance.randint(0, 23), 30), pa.time64("us")),
    "span": (lambda chance: dt.timedelta(seconds=chance.randint(-9, 9)), pa.duration("ms")),
    "bytes": (_one_of(b"", b"a", b"\xff\x00"), pa.binary()),
    "words": (_list_of(_one_of("a", "b", None)), pa.list_(pa.string())),
    "points": (_list_of(lambda chance: {"x": chance.randint(0, 2)}), pa.list_(pa.struct({"x": pa.int64()}))),
    "nothing": (_one_of(None), pa.null()),
}
"""Of each column of an input how a value is made, and its type."""


def _can_be_taken(column: pa.Array) -> bool:
    try:
        column.take(pa.array([0]))
    except pa.ArrowNotImplementedError:  # Arrow takes no rows of views
        return False
    return known_schema(pa.schema([("x", column.type)])).types == [column.type]


TAKEN = [column for column in COLUMNS if _can_be_taken(column)]


def table_of(rows: int, chance: Random) -> pa.Table:
    """Of some columns with values of several kinds, and some of any Arrow type, whose names begin with `any`."""
    drawn = chance.sample([*KINDS], chance.randint(4, 10))
    names = drawn if {"n", "s"} & {*drawn} else ["n", *drawn]
    table = pa.table({name: _column(rows, chance, *KINDS[name]) for name in names})
    for number in range(chance.choice([0, 0, 1, 2])):
        given = chance.choice(TAKEN)
        places = [chance.randrange(len(given)) for _ in range(rows)]
        table = table.append_column(f"any_{number}", given.take(pa.array(places, pa.int64())))
    return table


def _column(rows: int, chance: Random, make: _Make, kind: pa.DataType) -> pa.Array:
    return pa.array([make(chance) if chance.random() > 0.15 else None for _ in range(rows)], kind)


@dpa.batch_mapper
def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def every(row: dict[str, Any]) -> bool:
    return len(row) > 0


TRUNCATES = not pl.__version__.startswith("2.0.")
"""Whether SQL of polars has `date_trunc`, which needs the types of columns."""

Change = Callable[[Stream], Stream]
Found = list[tuple[Any, Any]]

WORDS = ("filter", "with_columns", "with_columns", "select", "drop", "rename", "explode", "unnest", "function")


@dataclass
class Drawn:
    """Steps as they are drawn.

    Attributes:
        frame: the rows that polars has made so far.
        passed: the columns of the input that rows still have as they were, by their names now.
        changes: the steps of a flow.
        fails: what the message of a job that must fail says; empty: it must not.
        by_function: whether a function has made keys, whose type is not known unless one is not null.
    """

    frame: pl.DataFrame
    chance: Random
    passed: dict[str, pa.Field] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    names: int = 0
    fails: str = ""
    by_function: bool = False

    @staticmethod
    def of(table: pa.Table, chance: Random) -> Drawn:
        return Drawn(to_frame(table), chance, {each.name: each for each in table.schema})

    @property
    def any_kind(self) -> set[str]:
        """The columns that came with any Arrow type."""
        return {name for name, field in self.passed.items() if field.name.startswith("any_")}

    def draw(self, steps: int) -> None:
        for _ in range(steps):
            getattr(self, f"_{self.chance.choice(WORDS)}")()

    def of_kind(self, *kinds: type[pl.DataType] | pl.DataType) -> str | None:
        fitting = [name for name, kind in self.frame.schema.items() if kind in kinds or type(kind) in kinds]
        return self.chance.choice(fitting) if fitting else None

    def new(self) -> str:
        self.names += 1
        return f"new_{self.names}"

    def do(self, change: Change, made: pl.DataFrame, passed: dict[str, str] | None = None) -> None:
        """`passed`: the columns that rows keep as they were, by their names before; None: all."""
        self.changes.append(change)
        self.frame = made
        if passed is not None:
            self.passed = {new: self.passed[old] for old, new in passed.items() if old in self.passed}

    def _expressions(self) -> Iterator[Found]:
        """Expressions and, where there are any, the SQL texts that say the same."""
        yield [(pl.lit(7, pl.Int64), "cast(7 AS bigint)")]
        if name := self.of_kind(pl.Int64, pl.Int8, pl.UInt64):
            n = pl.col(name)
            yield [
                (n + 3, f"{name} + 3"),
                (n.is_in([1, 2]), None),
                (n.cast(pl.String), f"cast({name} AS text)"),
                (n.clip(0, 3), None),
                (pl.when(n > 2).then(pl.lit("big")).otherwise(pl.lit("small")), None),
            ]
        if name := self.of_kind(pl.Int64, pl.Int8):
            yield [(pl.col(name).fill_null(0).cast(pl.Int64), f"cast(coalesce({name}, 0) AS bigint)")]
        if name := self.of_kind(pl.String):
            text = pl.col(name)
            yield [
                (text.str.to_uppercase(), f"upper({name})"),
                (text.str.len_chars(), f"length({name})"),
                (pl.concat_str(text, pl.lit("!")), None),
            ]
        if name := self.of_kind(pl.Float64, pl.Float32):
            yield [(pl.col(name) / 2, f"{name} / 2"), (pl.col(name).abs(), f"abs({name})"), (pl.col(name) > 0, None)]
        if name := self.of_kind(pl.Decimal):
            yield [(pl.col(name) > 0, f"{name} > 0"), (pl.col(name).is_null(), f"{name} is null")]
        if name := self.of_kind(pl.Datetime):
            moment = pl.col(name)
            yield [(moment.dt.year(), f"year({name})"), (moment.dt.offset_by("1h"), None)]
            yield [(moment.dt.truncate("1mo"), f"date_trunc('month', {name})" if TRUNCATES else None)]
        if name := self.of_kind(pl.Date):
            yield [(pl.col(name).dt.offset_by("2d"), None), (pl.col(name).dt.weekday(), None)]
        if name := self.of_kind(pl.Duration):
            yield [(pl.col(name) * 2, None), (pl.col(name).dt.total_seconds(), None)]
        if name := self.of_kind(pl.Binary):
            yield [(pl.col(name).bin.size(), None), (pl.col(name).bin.starts_with(b"a"), None)]
        if (name := self.of_kind(pl.List)) and self.frame.schema[name] == pl.List(pl.Int64):
            yield [(pl.col(name).list.len(), None), (pl.col(name).list.eval(pl.element() * 2), None)]
        if name := self.of_kind(pl.Boolean):
            yield [(~pl.col(name), None), (pl.col(name).fill_null(value=False), f"coalesce({name}, false)")]

    def _named(self) -> tuple[dict[str, Any], dict[str, pl.Expr]]:
        """Of one to three expressions by name, what a flow is given and what polars is given."""
        given: dict[str, Any] = {}
        meant: dict[str, pl.Expr] = {}
        for _ in range(self.chance.randint(1, 3)):
            expression, sql = self.chance.choice(self.chance.choice([*self._expressions()]))
            name = self.new() if self.chance.random() < 0.8 else self.chance.choice(self.frame.columns)
            given[name] = sql if sql and self.chance.random() < 0.5 else expression
            meant[name] = expression
        return given, meant

    def _filter(self) -> None:
        number, flag, text = self.of_kind(pl.Int64, pl.Int8), self.of_kind(pl.Boolean), self.of_kind(pl.String)
        moment = self.of_kind(pl.Datetime)
        found: Found = []
        if number:
            found.append((pl.col(number) > 0, pl.col(number) > 0))
            found.append((f"{number} < 6 or {number} is null", (pl.col(number) < 6) | pl.col(number).is_null()))
        if flag:
            found.append((pl.col(flag), pl.col(flag)))
        if text:
            found.append((f"{text} <> 'a'", pl.col(text) != "a"))
        if moment:
            found.append((pl.col(moment).is_not_null(), pl.col(moment).is_not_null()))
        if found:
            given, meant = self.chance.choice(found)
            self.do(lambda rows: rows.filter(given), self.frame.filter(meant))

    def _kept(self, *, but: Any = ()) -> dict[str, str]:
        return {name: name for name in self.frame.columns if name not in but}

    def _with_columns(self) -> None:
        given, meant = self._named()
        self.do(lambda rows: rows.with_columns(**given), self.frame.with_columns(**meant), self._kept(but=given))

    def _select(self) -> None:
        given, meant = self._named()
        kept = self.chance.sample(self.frame.columns, self.chance.randint(1, len(self.frame.columns)))
        kept = [name for name in kept if name not in given]
        if not kept:
            return
        made = self.frame.select(*kept, **meant)
        self.do(lambda rows: rows.select(*map(pl.col, kept), **given), made, {name: name for name in kept})

    def _drop(self) -> None:
        if len(self.frame.columns) > 2:
            name = self.chance.choice(self.frame.columns)
            self.do(lambda rows: rows.drop(name), self.frame.drop(name), self._kept(but=[name]))

    def _rename(self) -> None:
        old = self.chance.sample(self.frame.columns, min(2, len(self.frame.columns)))
        new = {name: self.new() for name in old} if self.chance.random() < 0.7 or len(old) < 2 else {}
        new = new or {old[0]: old[1], old[1]: old[0]}
        self.do(lambda rows: rows.rename(new), self.frame.rename(new), self._kept() | new)

    def _explode(self) -> None:
        name = self.of_kind(pl.List)
        if name:
            self.do(lambda rows: rows.explode(name), self.frame.explode(name), self._kept(but=[name]))

    def _unnest(self) -> None:
        name = self.of_kind(pl.Struct)
        fields = [each.name for each in self.frame.schema[name].fields] if name else []  # type: ignore[attr-defined]
        if name and not {*fields} & {*self.frame.columns}:
            self.do(lambda rows: rows.unnest(name), self.frame.unnest(name), self._kept(but=[name]))

    def _function(self) -> None:
        of_batches = self.chance.random() < 0.5
        self.do(lambda rows: rows.map(same) if of_batches else rows.filter(every), self.frame)
