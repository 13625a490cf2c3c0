"""A join with rows that every task has gives what a shuffled one gives."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.types as pat
import pytest
from arrow_columns import COLUMNS

from dpa import Flow
from dpa.columns.joining import Side, compares
from dpa.errors import ConfigError
from dpa.local.backend import LocalBackend
from dpa.result import Result

HOWS = ("inner", "left", "semi", "anti")
DAYS = [dt.date(2020, 2, day) for day in (1, 2, 3)]
MOMENTS = [dt.datetime(2020, 2, 1, hour, 5, 6, 789) for hour in (1, 2, 3)]
MONEY = [Decimal("1.50"), Decimal("-0.25"), Decimal("7.00")]

KEYS: list[tuple[list[Any], tuple[pa.DataType, ...]]] = [
    (["a", "", "ö"], (pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()))),
    (
        [b"ab", b"\xff\x00", b"zz"],
        (pa.binary(), pa.large_binary(), pa.binary(2), pa.dictionary(pa.int32(), pa.binary())),
    ),
    ([0, 1, 120], tuple(map(pa.type_for_alias, ("int8", "int32", "int64", "uint8", "uint32", "uint64")))),
    ([2**63, 1, 2**64 - 1], (pa.uint64(),)),
    ([True, False, True], (pa.bool_(),)),
    (DAYS, (pa.date32(),)),
    (MOMENTS, (pa.timestamp("us"),)),
    (MOMENTS, (pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Vienna"), pa.timestamp("us", "+01:00"))),
    (MONEY, (pa.decimal128(5, 2), pa.decimal128(9, 4), pa.decimal32(6, 3), pa.decimal64(12, 2), pa.decimal256(20, 2))),
    ([0, 1, 2], (pa.dictionary(pa.int16(), pa.int64()), pa.int16())),
]


def joined(left: pa.Table, right: pa.Table, how: str, *, left_on: Any, right_on: Any, **options: Any) -> Result:
    flow = Flow("joined")
    sides = (flow.read(left, name="rows"), flow.read(right, name="others"))
    sides[0].join(sides[1], left_on=left_on, right_on=right_on, how=how, **options)
    return flow.run(backend=LocalBackend())


def both_ways(left: pa.Table, right: pa.Table, how: str, form: str = "broadcast", **on: Any) -> pa.Table:
    """The rows, which are the same by both forms."""
    every = joined(left, right, how, **on)
    assert [join.form for join in every.report.joins] == [form], every.report.joins
    shuffled = joined(left, right, how, **on, broadcast_mb=0).table()
    assert every.table().schema == shuffled.schema
    assert sorted(map(repr, every.table().to_pylist())) == sorted(map(repr, shuffled.to_pylist()))
    return every.table()


def column(values: list[Any], kind: pa.DataType, rows: int, chance: Random) -> pa.Array:
    drawn = [chance.choice([None, *values]) for _ in range(rows)]
    plain = pa.array(drawn, kind.value_type if pat.is_dictionary(kind) else kind)
    return plain.dictionary_encode().cast(kind) if pat.is_dictionary(kind) else plain


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(("values", "kinds"), KEYS, ids=lambda given: str(given[0]))
def test_keys_of_every_type_match_as_in_a_shuffled_join(
    values: list[Any], kinds: tuple[pa.DataType, ...], how: str
) -> None:
    chance = Random(len(values) + len(kinds))
    for kind in kinds:
        other = chance.choice(kinds)
        left = pa.table({"k": column(values, kind, 40, chance), "row": range(40), "x": range(40)})
        right = pa.table({"id": column(values[1:], other, 6, chance), "x": pa.array(range(6), pa.int8())})
        both_ways(left, right, how, left_on="k", right_on="id")


@pytest.mark.parametrize("seed", range(24))
def test_several_keys_match_as_in_a_shuffled_join(seed: int) -> None:
    chance = Random(seed)
    drawn = [chance.choice(KEYS) for _ in range(chance.randint(2, 3))]
    sizes, tables = (chance.choice([0, 1, 60]), chance.choice([0, 1, 30])), []
    if not all(sizes):  # rows of one side alone do not show the common type of both sides' decimals
        drawn = [(values, kinds[:1]) for values, kinds in drawn]
    for rows in sizes:
        keys = {f"k{place}": column(of, chance.choice(kinds), rows, chance) for place, (of, kinds) in enumerate(drawn)}
        tables.append(pa.table({**keys, "v": column([0.5, float("nan"), -0.0], pa.float64(), rows, chance)}))
    names = [f"k{place}" for place in range(len(drawn))]
    both_ways(*tables, HOWS[seed % 4], left_on=names, right_on=names)


@pytest.mark.parametrize("rows", sorted({len(values) for values in COLUMNS}))
def test_values_of_every_type_are_passed_on_as_in_a_shuffled_join(rows: int) -> None:
    """All columns of as many rows at once."""
    columns = {f"v{place}": values for place, values in enumerate(COLUMNS) if len(values) == rows}
    table = pa.table({"k": range(rows), **columns})
    for how in ("inner", "left"):
        both_ways(table, table.slice(1), how, left_on="k", right_on="k")


@pytest.mark.parametrize(
    "keys",
    [
        pa.array(MOMENTS, pa.timestamp("ns")),
        pa.array(MOMENTS, pa.timestamp("s")),
        pa.array(DAYS, pa.date64()),
        pa.nulls(3),
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes([n] * 16) for n in range(3)], pa.binary(16))),
    ],
    ids=lambda keys: str(keys.type),
)
def test_keys_that_polars_compares_otherwise_are_shuffled(keys: pa.Array) -> None:
    assert not compares(keys.type)
    table = pa.table({"k": keys, "v": range(len(keys))})
    both_ways(table, table, "left", "shuffled", left_on="k", right_on="k")


@pytest.mark.parametrize(("left", "right"), [("int64", "string"), ("double", "double"), ("timestamp[us]", "date32")])
def test_keys_of_two_types_are_refused_before_any_rows_are_read(left: str, right: str) -> None:
    kinds = (pa.type_for_alias(name) for name in (left, right))
    tables = [pa.table({"k": pa.array([], kind), "v": pa.array([], pa.int8())}) for kind in kinds]
    with pytest.raises(ConfigError, match="key"):
        joined(*tables, "inner", left_on="k", right_on="k")


def test_an_inner_join_takes_the_smaller_side_where_the_right_one_is_too_large() -> None:
    large = pa.table({"id": pa.array(range(60), pa.int32()), "v": range(60), "name": ["x" * 1_000] * 60})
    small = pa.table({"k": [3, 4, None, 3, 99], "v": list("abcde")})
    found = joined(small, large, "inner", left_on="k", right_on="id", broadcast_mb=0.01)
    [join] = found.report.joins
    assert (join.form, join.side, join.rows) == ("broadcast", "rows", 4)  # null matches nothing
    assert found.table().schema.names == ["k", "v", "v_right", "name"]
    shuffled = joined(small, large, "inner", left_on="k", right_on="id", broadcast_mb=0).table()
    assert found.table().schema == shuffled.schema
    order = [("v", "ascending")]
    assert found.table().sort_by(order).equals(shuffled.sort_by(order))
    [join] = joined(small, large, "left", left_on="k", right_on="id", broadcast_mb=0.01).report.joins
    assert (join.form, join.why) == ("shuffled", "'others' has more than 0.01 MiB (`broadcast_mb`)")


def test_rows_keep_their_order() -> None:
    left = pa.table({"k": [3, 1, 2, 1, 9, 3], "v": range(6)})
    right = pa.table({"k": [1, 2, 3, 3], "w": range(4)})
    flow = Flow("order")
    rows = flow.read(left, name="rows", parallelism=1).join(flow.read(right, name="others"), "k", "left")
    assert rows.head(10).column("v").to_pylist() == [0, 0, 1, 2, 3, 4, 5, 5]


def test_the_digest_is_that_of_the_values() -> None:
    def side(keys: pa.Array, **values: pa.Array) -> str:
        return Side(pa.table({"key": keys, **values})).digest

    keys, words = pa.array([1, None, 3]), pa.array(["a", None, "c"])
    known = side(keys, word=words)
    behind = pa.array([0, 1, None, 3, 4]).slice(1, 3)
    assert side(behind, word=pa.chunked_array([words.slice(0, 1), words.slice(1)])) == known
    assert side(pa.array([1, 0, 3]), word=words) != known
    assert side(keys, word=pa.array(["a", "", "c"])) != known
    assert side(keys, name=words) != known
    assert side(pa.array([3, None, 1]), word=words) != known
