"""The hash of keys: the published Murmur3, the same for one key and for columns, and frozen by known values."""

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from builders import KEY_TYPES, key_array, key_lists, keys, seeds
from hypothesis import given
from hypothesis import strategies as st

from dpa.errors import KeyTypeError
from dpa.routing.hashing import hash_column, hash_key
from dpa.routing.keys import Key, key_type, to_python

LOOPED = 256
"""Columns of up to this many keys are hashed in a loop, longer ones by a column expression."""


@pytest.mark.parametrize(
    ("key", "seed", "hashed"),
    [
        ("", 0, 0),
        ("", 1, 0x514E28B7),
        ("", 0xFFFFFFFF, 0x81F16F39),
        (b"\x00\x00\x00\x00", 0, 0x2362F9DE),
        (b"\xff\xff\xff\xff", 0, 0x76293B50),
        ("aaaa", 0x9747B28C, 0x5A97808A),
        ("abc", 0x9747B28C, 0xC84A62DD),
        ("Hello, world!", 0x9747B28C, 0x24884CBA),
        ("ππππππππ", 0x9747B28C, 0xD58063C1),
        ("The quick brown fox jumps over the lazy dog", 0x9747B28C, 0x2FA826CD),
        ("token-0-0", 0, 0x5FBAE861),
        ("a", 0, 0x3C2569B2),
        ("Zoë", 0, 0x86712D1A),
        (0, 0, 0xD271C07F),
        (-17, 0, 0x299D9803),
        (None, 0, 0),
    ],
)
def test_the_hash_is_murmur3_as_published_and_known_keys_keep_theirs(key: Key, seed: int, hashed: int) -> None:
    assert hash_key(key, seed) == hashed


@given(keys, st.integers(-(2**63), 2**63 - 1), st.text(), seeds)
def test_integers_strings_and_null_are_hashed_as_their_bytes_in_utf_8(
    key: Key, number: int, text: str, seed: int
) -> None:
    assert 0 <= hash_key(key, seed) < 2**32
    assert hash_key(number, seed) == hash_key(str(number), seed)
    assert hash_key(text, seed) == hash_key(text.encode(), seed)
    assert hash_key(None, seed) == hash_key("", seed)


CEST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (True, "true"),
        (False, "false"),
        (date(2026, 1, 31), "2026-01-31"),
        (date(1, 1, 1), "0001-01-01"),
        (datetime(2026, 1, 31, 12, 0, 0, 5), "2026-01-31 12:00:00.000005"),
        (datetime(2026, 1, 31, 12, tzinfo=CEST), "2026-01-31 10:00:00.000000Z"),
        (Decimal("1.50"), "1.5"),
        (Decimal("-0.00"), "0"),
        (Decimal("1E+3"), "1000"),
        (Decimal("0.00000012"), "0.00000012"),
        (Decimal("12345678901234567890123456789012345678"), "12345678901234567890123456789012345678"),
        (2**64 - 1, "18446744073709551615"),
    ],
    ids=repr,
)
def test_a_key_is_hashed_as_its_canonical_text(key: Key, text: str) -> None:
    assert hash_key(key, 7) == hash_key(text, 7)


def test_a_composite_key_is_hashed_as_the_hashes_of_its_components_so_that_none_are_confused() -> None:
    day = hash_key(date(2026, 1, 31), 7).to_bytes(4, "little")
    assert hash_key((None, date(2026, 1, 31)), 7) == mmh3.hash(b"\xff\xff\xff\xff" + day, 7, signed=False)
    keys = [("a", "b"), ("b", "a"), ("ab", ""), ("", "ab"), ("ab", None), (None, "ab"), ("", ""), (None, None)]
    assert len({hash_key(key) for key in keys}) == len(keys)
    for length in (0, 3, LOOPED + 3):
        assert hash_column(pa.nulls(length), 7).tolist() == [hash_key(None, 7)] * length


@given(key_lists(least=1), seeds)
@pytest.mark.parametrize("long", [False, True], ids=["few keys", "many keys"])
def test_a_column_is_hashed_as_its_keys_one_by_one(long: bool, some: list[Key], seed: int) -> None:
    some = some * (LOOPED // len(some) + 1) if long else some
    hashes = hash_column(key_array(some), seed)
    assert hashes.dtype == np.uint32
    assert hashes.tolist() == [hash_key(key, seed) for key in some]


@pytest.mark.parametrize("kind", KEY_TYPES)
@pytest.mark.parametrize("length", [LOOPED - 1, LOOPED, LOOPED + 1])
def test_both_ways_of_hashing_a_column_meet_without_a_seam(kind: str, length: int) -> None:
    make = {"strings": "k{}ä".format, "bytes": "b{}".format, "decimals": lambda number: Decimal(number) / 8}
    made = pa.array([None, *map(make.get(kind, int), range(length + 3))])
    plain = (made.cast(pa.int32()) if kind == "dates" else made).cast(KEY_TYPES[kind])
    for column in (plain, pa.StructArray.from_arrays([plain, plain], names=["a", "b"])):
        for part in (column[:length], column[3:][:length]):
            assert hash_column(part).tolist() == [hash_key(key) for key in to_python(part)]


@pytest.mark.parametrize("key", [1.5, ["a"], Decimal("NaN"), object()])
def test_a_key_of_another_type_is_refused_by_name(key: object) -> None:
    with pytest.raises(KeyTypeError, match=f"of type {type(key).__name__}; a key is a string"):
        hash_key(key)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        (pa.null(), pa.null()),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.dictionary(pa.int32(), pa.int16()), pa.int64()),
        (pa.uint64(), pa.uint64()),
        (pa.bool_(), pa.bool_()),
        (pa.date32(), pa.date32()),
        (pa.date64(), pa.date32()),
        (pa.timestamp("s"), pa.timestamp("us")),
        (pa.timestamp("ns", "Europe/Berlin"), pa.timestamp("us", "UTC")),
        (pa.decimal128(10, 2), pa.decimal128(10, 2)),
        (pa.decimal32(5, -2), pa.decimal128(7, 0)),
        (pa.decimal256(60, 2), pa.decimal128(38, 2)),
        (pa.uuid(), pa.string()),
    ],
    ids=str,
)
def test_each_arrow_type_of_keys_is_kept_as_one_of_few(found: pa.DataType, kept: pa.DataType) -> None:
    assert key_type(found) == kept


@pytest.mark.parametrize(
    ("found", "remedy"),
    [
        (pa.float64(), r"cast\(x AS decimal"),
        (pa.dictionary(pa.int8(), pa.float32()), r"cast\(x AS decimal"),
        (pa.list_(pa.string()), r"to_json\(x\)"),
        (pa.map_(pa.string(), pa.string()), r"to_json\(x\)"),
        (pa.struct([("a", pa.string())]), r"as the key: `\[a, b\]"),
        (pa.duration("s"), r"cast\(x AS string\)"),
        (pa.time64("us"), r"cast\(x AS string\)"),
    ],
    ids=str,
)
def test_other_arrow_types_of_keys_are_refused_with_a_remedy(found: pa.DataType, remedy: str) -> None:
    with pytest.raises(KeyTypeError, match=f"not supported; a key is a string, an integer of 64 bits.*: .*{remedy}"):
        key_type(found)
