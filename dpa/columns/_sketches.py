"""Sketches of the package `datasketches` as states: HyperLogLog for numbers of different values, KLL for quantiles."""

from collections.abc import Callable
from typing import Any

import polars as pl

from dpa.errors import ConfigError

_LOG2_REGISTERS = 14  # of HyperLogLog: the standard error is 0.8 % (1.04 / sqrt(2**14))
_KLL_SIZE = 400  # the parameter k of KLL: in 99 % of all cases a rank is off by less than 0.7 %


def package() -> Any:
    """Raises ConfigError if the package is not installed."""
    try:
        import datasketches
    except ImportError:
        raise ConfigError("needs the package `datasketches`, which `pip install dpa[sketches]` installs") from None
    return datasketches


def folded(values: pl.Expr, fold: Callable[[pl.Series], bytes]) -> pl.Expr:
    """The sketch of each group's values, as bytes."""
    return pl.map_groups([values], lambda series: fold(series[0]), return_dtype=pl.Binary, returns_scalar=True)


def distinct(values: pl.Series) -> bytes:
    found = package().hll_sketch(_LOG2_REGISTERS)
    for value in values.to_list():
        is_plain = type(value) in (int, float, str) and value != ""  # which the sketch would not count
        found.update(value if is_plain else repr(value))
    return found.serialize_compact()  # type: ignore[no-any-return]


def distinct_merged(states: pl.Series) -> bytes:
    datasketches = package()
    found = datasketches.hll_union(_LOG2_REGISTERS)
    for state in states:
        found.update(datasketches.hll_sketch.deserialize(state))
    return found.get_result(datasketches.HLL_8).serialize_compact()  # type: ignore[no-any-return]


def distinct_count(state: pl.Expr) -> pl.Expr:
    hll = package().hll_sketch
    return state.map_elements(lambda each: round(hll.deserialize(each).get_estimate()), return_dtype=pl.Int64)


def ranks(values: pl.Series) -> bytes:
    """Of float64 without nulls; NaN is no value."""
    found = package().kll_doubles_sketch(_KLL_SIZE)
    found.update(values.to_numpy(writable=True))
    return found.serialize()  # type: ignore[no-any-return]


def ranks_merged(states: pl.Series) -> bytes:
    kll = package().kll_doubles_sketch
    found = kll(_KLL_SIZE)
    for state in states:
        found.merge(kll.deserialize(state))
    return found.serialize()  # type: ignore[no-any-return]


def quantile(state: pl.Expr, share: float) -> pl.Expr:
    """The least value that at least this share of the values is not greater than; null without values."""
    kll = package().kll_doubles_sketch

    def of(each: bytes) -> float | None:
        sketch = kll.deserialize(each)
        return None if sketch.is_empty() else sketch.get_quantile(share, inclusive=True)

    return state.map_elements(of, return_dtype=pl.Float64)
