"""Encoding key columns: each key once, every row its code, whatever form the column has."""

import numpy as np
import pyarrow as pa
import pytest
from builders import KEY_TYPES, chunks, key_lists
from hypothesis import given
from hypothesis import strategies as st

from dpa.errors import KeyTypeError
from dpa.execution.keys import encode
from dpa.routing.hashing import Key

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
    names = keys.to_pylist()
    assert codes.dtype == np.int32
    assert [names[code] for code in codes] == expected
    assert len(set(names)) == len(names) == len(set(expected))


@pytest.mark.parametrize(("found", "kept"), COLUMN_TYPES.values(), ids=list(COLUMN_TYPES))
def test_a_plain_column_of_each_type_is_encoded(found: pa.DataType, kept: pa.DataType) -> None:
    expected = keys_like(found)
    check_encoded(pa.array(expected, found), expected)
    assert encode(pa.array(expected, found))[0].type == kept


@pytest.mark.parametrize("nulls", ["none", "in the rows", "in the dictionary", "in both"])
@pytest.mark.parametrize(("found", "kept"), COLUMN_TYPES.values(), ids=list(COLUMN_TYPES))
def test_a_dictionary_of_each_type_is_encoded(found: pa.DataType, kept: pa.DataType, nulls: str) -> None:
    first, _, second = keys_like(found)[:3]
    dictionary = pa.array(
        [first, second, None] if nulls in ("in the dictionary", "in both") else [first, second], found
    )
    rows = [1, 0, 1, len(dictionary) - 1] + ([None] if nulls in ("in the rows", "in both") else [])
    column = pa.DictionaryArray.from_arrays(pa.array(rows, pa.int8()), dictionary)
    check_encoded(column, [None if row is None else dictionary[row].as_py() for row in rows])
    assert encode(column)[0].type == kept


@given(key_lists())
def test_any_keys_are_encoded(some: list[Key]) -> None:
    check_encoded(pa.array(some), some)


@given(key_lists(least=1), st.data())
def test_entries_of_a_dictionary_that_no_row_uses_are_dropped(some: list[Key], data: st.DataObject) -> None:
    encoded = pa.array(some).dictionary_encode()
    start = data.draw(st.integers(0, len(some)))
    check_encoded(encoded[start:], some[start:])


@given(key_lists(), st.lists(st.integers(0, 40), max_size=3), st.booleans())
def test_chunks_with_dictionaries_of_their_own_share_their_keys(some: list[Key], cuts: list[int], plain: bool) -> None:
    kind = pa.array(some).type
    arrays = [pa.array(chunk, kind) for chunk in (*chunks(some, cuts), [])]
    column = pa.chunked_array(arrays if plain or pa.types.is_null(kind) else [a.dictionary_encode() for a in arrays])
    check_encoded(column, some)


@pytest.mark.parametrize("indices", [pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.int64(), pa.uint64()], ids=str)
def test_indices_of_any_width_become_codes(indices: pa.DataType) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([2, 0, 2], indices), pa.array(["a", "b", "c"]))
    check_encoded(column, ["c", "a", "c"])


def test_a_dictionary_that_repeats_a_key_keeps_every_rows_key() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([2, 0, 1]), pa.array(["a", "b", "a"]))
    keys, codes = encode(column)
    assert keys.take(pa.array(codes)).to_pylist() == ["a", "a", "b"]


@pytest.mark.parametrize("kind", [*KEY_TYPES.values(), pa.null(), pa.dictionary(pa.int8(), pa.string())], ids=str)
@pytest.mark.parametrize("chunked", [False, True], ids=["array", "chunked"])
def test_an_empty_column_has_no_keys(kind: pa.DataType, chunked: bool) -> None:
    column = pa.chunked_array([], kind) if chunked else pa.array([], kind)
    keys, codes = encode(column)
    assert (len(keys), len(codes)) == (0, 0)


@pytest.mark.parametrize("rows", [1, 5])
def test_nulls_only_are_one_key(rows: int) -> None:
    check_encoded(pa.nulls(rows), [None] * rows)
    check_encoded(pa.chunked_array([pa.nulls(rows), pa.nulls(0)]), [None] * rows)


@pytest.mark.parametrize("column", [pa.array([1.5]), pa.array([True]), pa.array([[1]]), pa.array([{"a": 1}])], ids=str)
def test_a_column_that_cannot_be_a_key_is_refused(column: pa.Array) -> None:
    with pytest.raises(KeyTypeError, match="are not supported; a key is"):
        encode(column)
