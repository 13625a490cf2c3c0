"""Encoding key columns: each key once, every row its code, whatever form the column has."""

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from builders import KEY_TYPES, chunks, key_array, key_lists, one_table
from hypothesis import given
from hypothesis import strategies as st

from dpa.errors import KeyTypeError
from dpa.execution.keys import column_of, encode
from dpa.routing.keys import Key, in_words, one_type, to_arrow, to_python

NOON = datetime(2026, 1, 31, 12)
COLUMN_TYPES = {
    "string": (pa.string(), pa.string()),
    "large string": (pa.large_string(), pa.string()),
    "string view": (pa.string_view(), pa.string()),
    "small integer": (pa.int16(), pa.int64()),
    "unsigned integer": (pa.uint32(), pa.int64()),
    "integer": (pa.int64(), pa.int64()),
    "binary": (pa.binary(), pa.binary()),
    "large binary": (pa.large_binary(), pa.binary()),
    "fixed-size binary": (pa.binary(2), pa.binary()),
    "binary view": (pa.binary_view(), pa.binary()),
}


def keys_like(found: pa.DataType) -> list[Key]:
    if pa.types.is_integer(found):
        return [12, None, 7, 12, 0]
    return ["ab", None, "yz", "ab", "éa"] if "string" in str(found) else [b"ab", None, b"yz", b"ab", b"\xff\x00"]


def check_encoded(column: pa.Array | pa.ChunkedArray, expected: list[Key]) -> None:
    """Decoding gives the column back, every key is used, and none comes twice."""
    keys, codes = encode(column)
    names = to_python(keys)
    assert codes.dtype == np.int32
    assert [names[code] for code in codes] == expected
    assert len(set(names)) == len(names) == len(set(expected))


@pytest.mark.parametrize("nulls", [(), ("rows",), ("dictionary",), ("rows", "dictionary")], ids=" and ".join)
@pytest.mark.parametrize(("found", "kept"), COLUMN_TYPES.values(), ids=list(COLUMN_TYPES))
def test_columns_of_each_type_are_encoded(found: pa.DataType, kept: pa.DataType, nulls: tuple[str, ...]) -> None:
    expected = keys_like(found)
    check_encoded(pa.array(expected, found), expected)
    first, _, second = expected[:3]
    dictionary = pa.array([first, second, *([None] if "dictionary" in nulls else [])], found)
    rows = [1, 0, 1, len(dictionary) - 1, *([None] if "rows" in nulls else [])]
    column = pa.DictionaryArray.from_arrays(pa.array(rows, pa.int8()), dictionary)
    check_encoded(column, [None if row is None else dictionary[row].as_py() for row in rows])
    assert encode(column)[0].type == encode(pa.array(expected, found))[0].type == kept


@given(key_lists())
def test_any_keys_are_encoded_and_go_to_python_and_back(some: list[Key]) -> None:
    column = key_array(some)
    check_encoded(column, some)
    assert to_python(column) == some
    assert to_arrow(to_python(column), column.type).equals(column)


@given(key_lists(least=1, composite=False), st.data())
def test_entries_of_a_dictionary_that_no_row_uses_are_dropped(some: list[Key], data: st.DataObject) -> None:
    encoded = key_array(some).dictionary_encode()
    start = data.draw(st.integers(0, len(some)))
    check_encoded(encoded[start:], some[start:])


@given(key_lists(), st.lists(st.integers(0, 40), max_size=3), st.booleans())
def test_chunks_with_dictionaries_of_their_own_share_their_keys(some: list[Key], cuts: list[int], plain: bool) -> None:
    kind = key_array(some).type
    arrays = [to_arrow(chunk, kind) for chunk in (*chunks(some, cuts), [])]
    plain |= pa.types.is_null(kind) or pa.types.is_struct(kind)
    column = pa.chunked_array(arrays if plain else [array.dictionary_encode() for array in arrays])
    check_encoded(column, some)


@pytest.mark.parametrize("indices", [pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.int64(), pa.uint64()], ids=str)
def test_indices_of_any_width_become_codes_also_where_a_dictionary_repeats_a_key(indices: pa.DataType) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([2, 0, 2], indices), pa.array(["a", "b", "c"]))
    check_encoded(column, ["c", "a", "c"])
    column = pa.DictionaryArray.from_arrays(pa.array([2, 0, 1]), pa.array(["a", "b", "a"]))
    keys, codes = encode(column)
    assert keys.take(pa.array(codes)).to_pylist() == ["a", "a", "b"]


@pytest.mark.parametrize("kind", [*KEY_TYPES.values(), pa.null(), pa.dictionary(pa.int8(), pa.string())], ids=str)
@pytest.mark.parametrize("chunked", [False, True], ids=["array", "chunked"])
def test_an_empty_column_has_no_keys(kind: pa.DataType, chunked: bool) -> None:
    column = pa.chunked_array([], kind) if chunked else pa.array([], kind)
    keys, codes = encode(column)
    assert (len(keys), len(codes)) == (0, 0)


ODDLY_KEPT = {
    "date64": (pa.array([date(2026, 1, 31)], pa.date64()), date(2026, 1, 31)),
    "seconds": (pa.array([NOON], pa.timestamp("s")), NOON),
    "nanoseconds": (pa.array([NOON], pa.timestamp("ns")), NOON),
    "instants elsewhere": (pa.array([NOON], pa.timestamp("s", "Europe/Berlin")), NOON.replace(tzinfo=timezone.utc)),
    "wide decimal": (pa.array([Decimal("1.50")], pa.decimal256(50, 2)), Decimal("1.5")),
    "negative scale": (pa.array([Decimal(1500)], pa.decimal128(5, -2)), Decimal(1500)),
    "uuid": (
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([UUID(int=10**30).bytes], pa.binary(16))),
        str(UUID(int=10**30)),
    ),
}


@pytest.mark.parametrize("column", ODDLY_KEPT)
def test_a_key_of_another_type_that_does_is_kept_without_loss(column: str) -> None:
    found, expected = ODDLY_KEPT[column]
    check_encoded(found, [expected])
    check_encoded(pa.chunked_array([found, pa.nulls(1, found.type)]), [expected, None])
    check_encoded(pa.DictionaryArray.from_arrays(pa.array([0, 0]), found), [expected, expected])
    check_encoded(pa.StructArray.from_arrays([found, found], names=["a", "b"]), [(expected, expected)])


NO_KEY = "are not supported; a key is"


@pytest.mark.parametrize(
    ("column", "remedy"),
    [
        (pa.array([1.5]), NO_KEY),
        (pa.array([[1]]), NO_KEY),
        (pa.array([{"a": {"b": 1}}]), NO_KEY),
        (pa.array([{"a": [1]}]), NO_KEY),
        (pa.array([1], pa.int64()).cast(pa.timestamp("ns")), "round timestamps to microseconds"),
        (pa.array([2**62], pa.int64()).cast(pa.timestamp("s")), "round timestamps to microseconds"),
        (pa.array([Decimal("1" * 45)], pa.decimal256(50, 2)), "decimals to 38 digits"),
        (pa.array([10**8], pa.int32()).cast(pa.date32()), "years 1 to 9999"),
        (pa.array([None, -(2**62)], pa.int64()).cast(pa.timestamp("us")), "years 1 to 9999"),
    ],
    ids=lambda given: str(given.type) if isinstance(given, pa.Array) else "",
)
def test_a_column_that_is_no_key_and_keys_that_would_change_are_refused(column: pa.Array, remedy: str) -> None:
    with pytest.raises(KeyTypeError, match=remedy):
        encode(column)


@pytest.mark.parametrize(
    "keys",
    [[UUID(int=5)], [np.uint64(2**63), 5], [np.bool_(True), False], [datetime(2026, 1, 1, tzinfo=timezone.utc), None]],
    ids=["uuid", "numpy integers", "numpy booleans", "instants"],
)
def test_a_mapper_may_make_keys_of_what_goes_with_a_supported_type(keys: list[Any]) -> None:
    expected = [str(key) if isinstance(key, UUID) else key for key in keys]
    assert to_python(column_of(keys)) == expected


def test_types_of_keys_have_one_type_together_or_are_refused() -> None:
    one = pa.struct([("a", pa.null()), ("b", pa.int64())])
    other = pa.struct([("a", pa.string()), ("b", pa.null())])
    for types, expected in (
        ([pa.null(), pa.bool_()], pa.bool_()),
        ([pa.int64(), pa.uint64()], pa.uint64()),
        ([pa.decimal128(3, 1), pa.decimal128(5, 4), pa.decimal128(2, 0)], pa.decimal128(6, 4)),
        ([one, other], pa.struct([("a", pa.string()), ("b", pa.int64())])),
    ):
        assert one_type(types) == one_type(reversed(types)) == expected
    for types in (
        [pa.int64(), pa.string()],
        [pa.bool_(), pa.int64()],
        [pa.timestamp("us"), pa.timestamp("us", "UTC")],
        [pa.decimal128(38, 0), pa.decimal128(38, 38)],
        [pa.struct([("a", pa.int64())]), pa.struct([("a", pa.string())])],
        [pa.struct([("a", pa.int64())]), pa.int64()],
    ):
        with pytest.raises(KeyTypeError, match=r"this job has keys of types .* and .*; a key is"):
            one_type(types)


def test_results_become_one_table_whose_keys_have_one_type_or_are_refused() -> None:
    tables = [pa.table({"a": kind, "b": [1], "n": [2]}) for kind in ([None], ["x"])]
    tables += [pa.table({"a": [], "b": [], "n": []})]
    whole = one_table(tables, ("a", "b"))
    assert whole.schema.types == [pa.string(), pa.int64(), pa.int64()]
    assert whole.num_rows == 2
    with pytest.raises(KeyTypeError, match="do not go with keys of type uint64"):
        one_table([pa.table({"key": [-1]}), pa.table({"key": pa.array([2**63], pa.uint64())})], "key")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("the", "'the'"),
        (None, "None"),
        (date(2026, 1, 31), "2026-01-31"),
        (NOON, "2026-01-31 12:00:00"),
        (Decimal("1.50"), "1.50"),
        (("DE", None, date(2026, 1, 31)), "('DE', None, 2026-01-31)"),
        ("x" * 300, "'" + "x" * 199 + "..."),
    ],
    ids=repr,
)
def test_a_sentence_names_a_key(key: Key, words: str) -> None:
    assert in_words(key) == words
