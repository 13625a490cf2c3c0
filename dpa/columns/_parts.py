"""The aggregates that `agg` knows: what each keeps of rows, how states are merged, and what comes out.

Each state is one column. Variances are merged as by Chan, Golub and LeVeque (1983, equation 2.1), in the form for any
number of states. Types and special values are those of the ready-made reducers (`dpa.aggregates`): sums of integers
have 64 bits and are exact, a sum of no values is null, and NaN is greater than any number."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from dpa.columns import _sketches as sketches
from dpa.errors import ConfigError
from dpa.executors import exact, quotient

_DIGITS = 38  # the most digits of a decimal

MOST_VALUES = 1_000_000
"""The most values of a key that a state may list."""


@dataclass(frozen=True, eq=False)
class Aggregate:
    """An aggregate of the rows of a group.

    Attributes:
        label: what states and messages call it, such as `sum(euros)`.
        of: the row-wise expression that it is of.
        partial: makes the state, an expression for `group_by(...).agg(...)`, of `of` and its type.
        merge: makes the state of several states and their type, likewise.
        final: makes the result, row by row, of the state and its type.
        lists: whether the state lists values, whose number is bounded.
    """

    label: str
    of: pl.Expr
    partial: Callable[[pl.Expr, pl.DataType], pl.Expr]
    merge: Callable[[pl.Expr, pl.DataType], pl.Expr]
    final: Callable[[pl.Expr, pl.DataType], pl.Expr] = lambda state, kind: state
    lists: bool = False


_LIMB = 10**19
"""The numbers of digits of a sum of long decimals are kept in two parts, which no number of rows makes too long."""

_WHOLE = pl.Decimal(_DIGITS, 0)


def total(values: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """The exact sum as a state, null without values. That of integers, of durations and of long decimals is a struct,
    which holds any sum: whether the result is too large does not depend on which rows are summed up first."""
    if kind == pl.Null:
        return values.first()
    if kind.is_integer() or kind == pl.Boolean:
        found = pl.struct(integer=values.cast(pl.Int128).sum().cast(_WHOLE))
    elif isinstance(kind, pl.Decimal) and kind.precision + 10 > _DIGITS:
        number, of = values.to_physical(), pl.lit(None, kind)
        found = pl.struct(
            (number // _LIMB).sum().cast(_WHOLE).alias("high"),
            (number % _LIMB).sum().cast(_WHOLE).alias("low"),
            of.alias("type"),
        )
    elif isinstance(kind, pl.Decimal):
        found = values.sum().cast(pl.Decimal(kind.precision + 10, kind.scale))
    elif kind.is_float():
        found = values.cast(pl.Float64).sum()
    elif kind == pl.Duration:
        whole = values.to_physical().cast(pl.Int128).sum().cast(_WHOLE)
        found = pl.struct(whole.alias("integer"), pl.lit(None, kind).alias("type"))
    else:
        raise _wrong(kind, "numbers")
    return pl.when(values.count() > 0).then(found)


def _merged_total(states: pl.Expr, kind: pl.DataType) -> pl.Expr:
    if isinstance(kind, pl.Struct):
        fields = [states.struct.field(name) for name in _fields(kind)]
        sums = [
            field.first() if name == "type" else field.sum() for name, field in zip(_fields(kind), fields, strict=True)
        ]
        return pl.when(states.count() > 0).then(pl.struct(sums))
    if isinstance(kind, pl.Decimal):  # with 10 digits more than the values, which rows do not use up
        return pl.when(states.count() > 0).then(states.sum().cast(kind))
    return total(states, kind)


def _whole_total(state: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """The result. It raises, as a strict cast does, if a sum of integers or durations does not fit in int64, or one of
    decimals in 38 digits."""
    if not isinstance(kind, pl.Struct):
        return state
    fields = _fields(kind)
    if "integer" in fields:
        return state.struct.field("integer").cast(pl.Int64).cast(fields.get("type", pl.Int64))
    kind = pl.Decimal(_DIGITS, fields["type"].scale)
    return state.map_batches(lambda states: pl.Series(exact(_joined(states), _in_arrow(kind), "it")), return_dtype=kind)


def _joined(states: pl.Series) -> pa.Array:
    """Sums of decimals, of which those of long ones are in two parts, in Arrow, which has 76 digits."""
    if not isinstance(states.dtype, pl.Struct):
        return states.to_arrow()
    high, low = (states.struct.field(name).to_arrow() for name in ("high", "low"))
    whole = pc.add(pc.multiply(high.cast(pa.decimal256(46)), pa.scalar(Decimal(_LIMB), pa.decimal256(20))), low)
    kind = pa.decimal256(76, _fields(states.dtype)["type"].scale)
    return pa.Array.from_buffers(kind, len(whole), whole.buffers(), offset=whole.offset)


def _in_arrow(kind: pl.Decimal) -> pa.DataType:
    return pa.decimal128(kind.precision, kind.scale)


def _counted(states: pl.Expr, kind: pl.DataType) -> pl.Expr:
    return states.sum()


def count(label: str, of: pl.Expr, *, nulls: bool = False) -> Aggregate:
    def partial(values: pl.Expr, kind: pl.DataType) -> pl.Expr:
        return (values.null_count() if nulls else values.count()).cast(pl.Int64)

    return Aggregate(label, of, partial, _counted)


def rows() -> Aggregate:
    return Aggregate("len()", pl.len(), lambda values, kind: values.cast(pl.Int64), _counted)


def sums(label: str, of: pl.Expr) -> Aggregate:
    return Aggregate(label, of, total, _merged_total, _whole_total)


def least(label: str, of: pl.Expr, *, nan: bool = False) -> Aggregate:
    def fold(values: pl.Expr, kind: pl.DataType) -> pl.Expr:
        return values.nan_min() if nan and kind.is_float() else _ordered(values, kind).min()

    return Aggregate(label, of, fold, fold)


def greatest(label: str, of: pl.Expr) -> Aggregate:
    def fold(values: pl.Expr, kind: pl.DataType) -> pl.Expr:
        return values.nan_max() if kind.is_float() else _ordered(values, kind).max()

    return Aggregate(label, of, fold, fold)


def _ordered(values: pl.Expr, kind: pl.DataType) -> pl.Expr:
    if kind.is_nested() or kind == pl.Object:
        raise _wrong(kind, "values with an order")
    _check_kept(kind)
    return values


def _check_kept(kind: pl.DataType) -> None:
    """States are columns of Arrow, which has no order of a text's own."""
    if isinstance(kind, pl.Enum):
        raise ConfigError("needs values whose order survives, and an Enum's does not: replace them with numbers")


def truth(label: str, of: pl.Expr, *, every: bool, ignore_nulls: bool) -> Aggregate:
    def fold(values: pl.Expr, kind: pl.DataType) -> pl.Expr:
        if kind not in (pl.Boolean, pl.Null):
            raise _wrong(kind, "booleans")
        values = values.cast(pl.Boolean)
        return values.all(ignore_nulls=ignore_nulls) if every else values.any(ignore_nulls=ignore_nulls)

    return Aggregate(label, of, fold, fold)


def mean(label: str, of: pl.Expr) -> Aggregate:
    """Of decimals the sum is exact; `Aggregation` divides it as `dpa.aggregates.Mean` does."""

    def partial(values: pl.Expr, kind: pl.DataType) -> pl.Expr:
        number = values.count().cast(pl.Int64).alias("count")
        if isinstance(kind, pl.Decimal):
            return pl.struct(total(values, kind).alias("sum"), number, pl.lit(None, kind).alias("type"))
        return pl.struct(_floats(values, kind).sum().alias("sum"), number)

    def merge(states: pl.Expr, kind: pl.DataType) -> pl.Expr:
        fields = _fields(kind)
        summed, number = states.struct.field("sum"), states.struct.field("count").sum().alias("count")
        if "type" in fields:
            whole = _merged_total(summed, fields["sum"]).alias("sum")
            return pl.struct(whole, number, pl.lit(None, fields["type"]).alias("type"))
        return pl.struct(summed.sum().alias("sum"), number)

    def final(state: pl.Expr, kind: pl.DataType) -> pl.Expr:
        summed, number = state.struct.field("sum"), state.struct.field("count")
        if "type" in _fields(kind):
            return state.map_batches(_mean_of_decimals, return_dtype=_decimal_mean(_fields(kind)["type"]))
        return pl.when(number > 0).then(summed / number)

    return Aggregate(label, of, partial, merge, final)


def spread(label: str, of: pl.Expr, *, ddof: int, root: bool) -> Aggregate:
    """Variance or standard deviation."""

    def partial(values: pl.Expr, kind: pl.DataType) -> pl.Expr:
        numbers = _floats(values, kind)
        squares = numbers.var(ddof=0) * numbers.count()
        return pl.struct(
            numbers.count().cast(pl.Int64).alias("count"), numbers.mean().alias("mean"), squares.alias("squares")
        )

    def merge(states: pl.Expr, kind: pl.DataType) -> pl.Expr:
        number, means, squares = (states.struct.field(name) for name in ("count", "mean", "squares"))
        near = means.drop_nulls().first()  # sums of large means lose digits
        middle = near + (number * (means - near)).sum() / number.sum()
        off = (number * (means - middle) ** 2).sum()
        return pl.struct(number.sum().alias("count"), middle.alias("mean"), (squares.sum() + off).alias("squares"))

    def final(state: pl.Expr, kind: pl.DataType) -> pl.Expr:
        number = state.struct.field("count")
        found = pl.when(number > ddof).then(state.struct.field("squares") / (number - ddof))
        return found.sqrt() if root else found

    return Aggregate(label, of, partial, merge, final)


def _floats(values: pl.Expr, kind: pl.DataType) -> pl.Expr:
    if not (kind.is_numeric() or kind in (pl.Boolean, pl.Null)):
        raise _wrong(kind, "numbers")
    return values.cast(pl.Float64)


def _fields(kind: pl.DataType) -> dict[str, Any]:
    assert isinstance(kind, pl.Struct)
    return dict(kind)


def _decimal_mean(kind: Any) -> pl.Decimal:
    return pl.Decimal(min(kind.precision + 4, _DIGITS), min(kind.scale + 4, _DIGITS))


def _mean_of_decimals(states: pl.Series) -> pl.Series:
    """Rounded half up, by Arrow, which has 76 digits."""
    fields = states.struct
    kind = _decimal_mean(fields.field("type").dtype)
    found = quotient(_joined(fields.field("sum")), fields.field("count").to_arrow(), _in_arrow(kind), "it")
    return pl.Series(states.name, found)


@dataclass(frozen=True)
class Order:
    """The order of rows whose first or last value counts, as polars has it.

    Attributes:
        descending: of each column that orders.
        nulls_last: likewise.
        known: whether rows count only if they have a value in the first column that orders, as for `max_by`.
    """

    descending: Sequence[bool]
    nulls_last: Sequence[bool]
    known: bool = False


def at_end(label: str, of: pl.Expr, by: Sequence[pl.Expr], order: Order, *, last: bool) -> Aggregate:
    """The value of the first or last row. Of rows that tie the least or greatest value counts, so that the order in
    which rows come is without effect."""
    names = [f"by{place}" for place in range(len(by))]
    whole = pl.struct(*(each.alias(name) for each, name in zip(by, names, strict=True)), of.alias("value"))

    def end(structs: pl.Expr, kind: pl.DataType) -> pl.Expr:
        for field in _fields(kind).values():
            _check_kept(field)
        columns = [structs.struct.field(name) for name in (*names, "value")]
        descending, nulls_last = [*order.descending, False], [*order.nulls_last, False]
        ordered = structs.sort_by(columns, descending=descending, nulls_last=nulls_last)
        return ordered.last() if last else ordered.first()

    def final(state: pl.Expr, kind: pl.DataType) -> pl.Expr:
        value = state.struct.field("value")
        return pl.when(state.struct.field("by0").is_not_null()).then(value) if order.known else value

    return Aggregate(label, whole, end, end, final)


def values_of(label: str, of: pl.Expr) -> Aggregate:
    """All values as a list, in ascending order."""
    return Aggregate(
        label,
        of,
        lambda values, kind: values.implode(),
        lambda states, kind: _listed(states).implode(),
        lambda state, kind: state.list.sort(),
        lists=True,
    )


def different(label: str, of: pl.Expr, *, nulls: bool = True) -> Aggregate:
    """The number of different values, with null as one of them or not."""

    def final(state: pl.Expr, kind: pl.DataType) -> pl.Expr:
        # without nulls from the start, polars would group twice as slowly
        counted = state if nulls else state.list.drop_nulls()
        return counted.list.len().cast(pl.Int64)

    return Aggregate(
        label,
        of,
        lambda values, kind: values.unique().implode(),
        lambda states, kind: _listed(states).unique().implode(),
        final,
        lists=True,
    )


def extremes(label: str, of: pl.Expr, k: int, *, least: bool) -> Aggregate:
    """The `k` greatest or least values as a list that begins with them; nulls are no values."""

    def some(values: pl.Expr, kind: pl.DataType) -> pl.Expr:
        _check_kept(kind)
        ordered = values.drop_nulls().sort(descending=not least)
        return ordered.head(k).implode()

    def merge(states: pl.Expr, kind: pl.DataType) -> pl.Expr:
        return some(_listed(states), kind)

    return Aggregate(label, of, some, merge, lists=True)


def commonest(label: str, of: pl.Expr) -> Aggregate:
    """The most frequent values as a list in ascending order; null is one. The state lists values with their counts."""

    def merge(states: pl.Expr, kind: pl.DataType) -> pl.Expr:
        return _recounted(_listed(states))

    def partial(pairs: pl.Expr, kind: pl.DataType) -> pl.Expr:
        return _recounted(pairs)

    def final(state: pl.Expr, kind: pl.DataType) -> pl.Expr:
        value, count = pl.element().struct.field("value"), pl.element().struct.field("count")
        return state.list.eval(value.filter(count == count.max()).sort())

    pairs = pl.struct(of.alias("value"), pl.lit(1, pl.Int64).alias("count"))
    return Aggregate(label, pairs, partial, merge, final, lists=True)


def _recounted(pairs: pl.Expr) -> pl.Expr:
    """A list of pairs of a value and its count, each value once: the last of equal ones ends their running count."""
    pairs = pairs.sort_by(pairs.struct.field("value"))
    value, running = pairs.struct.field("value"), pairs.struct.field("count").cum_sum()
    is_last = value.is_last_distinct()
    until = running.filter(is_last)
    count = until - until.shift(1, fill_value=0)
    return pl.struct(value.filter(is_last).alias("value"), count.alias("count")).implode()


def about_different(label: str, of: pl.Expr) -> Aggregate:
    """About the number of different values, by a sketch; null is one."""
    sketches.package()
    return Aggregate(
        label,
        of,
        lambda values, kind: sketches.folded(values.unique(), sketches.distinct),
        lambda states, kind: sketches.folded(states, sketches.distinct_merged),
        lambda state, kind: sketches.distinct_count(state),
    )


def about_quantile(label: str, of: pl.Expr, share: float) -> Aggregate:
    """About the value that this share of the values is not greater than, by a sketch."""
    sketches.package()
    return Aggregate(
        label,
        of,
        lambda values, kind: sketches.folded(_floats(values, kind).drop_nulls(), sketches.ranks),
        lambda states, kind: sketches.folded(states, sketches.ranks_merged),
        lambda state, kind: sketches.quantile(state, share),
    )


def _listed(states: pl.Expr) -> pl.Expr:
    """The values of all lists of a group."""
    return states.explode(keep_nulls=False, empty_as_null=False)


def _wrong(kind: Any, needs: str) -> ConfigError:
    return ConfigError(f"needs {needs}, and what it is of is {kind}")
