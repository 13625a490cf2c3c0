"""Files of bytes: Parquet that is cut or flipped, and lines in encodings and with headers that nobody expects."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

HEADERS = (
    *("k,v", "k,k", "k,v,,", ",", "", "k", '"k","v', "k;v", "k,v\r", "\ufeffk,v", "k,v,k", " k , v ", "k,é", "k\x00,v"),
    *("window_start,k", "k,v," * 50, "'k',v", '"a""b",v', "k\tv"),
)
"""First lines of CSV."""

LINES: dict[str, tuple[str, ...]] = {
    "csv": ("a,1", "b,2", "a,", ",", "b,-9223372036854775808", 'a,"2"', "ä,3"),
    "json": (
        '{"k": "a", "v": 1}',
        '{"k": "b", "v": 2}',
        '{"v": 2}',
        "{}",
        '{"k": "ä", "v": 1.5}',
        '{"k": null, "x": [1]}',
    ),
    "text": ("a", "", "ä", "a\x00b", "a,1", "\u2028"),
}
"""Lines that are as they should be, or nearly."""

WRONG = (
    *(b"null", b"1", b"[]", b'[{"k": 1}]', b'"a"', b"{", b"}", b'{"k": 1}{"k": 2}', b'{"k": 1}\n{"k": 2}', b"", b" "),
    *(
        b"\xff\xfe",
        b'{"k": "\xff"}',
        b"\x00",
        b'{"k": "\x00"}',
        b'{"k": 1e999}',
        b'{"v": 99999999999999999999}',
        b"NaN",
    ),
    *(
        b'{"k": {"k": {"k": []}}}',
        b'{"k": "a", "k": "b"}',
        b"[" * 2_000,
        b'{"k":' * 2_000,
        b"a" * 100_000,
        b"\xef\xbb\xbf",
    ),
    *(b'"', b'"a', b'a"b,1', b'"a""b",1', b"a\\,1", b"a,1,2,3,4", b"a,\r1", b"\r", b'"a\nb",1', b"\x1f\x8b"),
)
"""Lines and values that are none of their kind, or hardly."""

ENCODINGS = ("utf-8", "utf-8", "utf-8", "utf-8", "latin-1", "utf-16", "utf-8-sig", "utf-16-be")


def lines(kind: str, draw: random.Random) -> bytes:
    """A file of lines of a kind; now and then one that ends in the middle, or is empty."""
    found = [draw.choice(LINES[kind]) for _ in range(draw.choice((0, 1, 3, 20)))]
    if kind == "csv" and draw.random() < 0.8:
        found.insert(0, draw.choice(HEADERS) if draw.random() < 0.6 else "k,v")
    end = draw.choice(("\n", "\n", "\n", "\r\n"))
    text = end.join(found) + draw.choice(("", end))
    data = text.encode(draw.choice(ENCODINGS), errors="replace")
    if draw.random() < 0.4:
        parts = data.split(b"\n")
        parts.insert(draw.randrange(len(parts) + 1), draw.choice(WRONG))
        data = draw.choice((b"\n", b"\n", b"\r")).join(parts)
    return _cut(data, draw, often=0.05)


def parquet(table: pa.Table, path: Path, draw: random.Random) -> bool:
    """Write a table, and break it now and then. Returns False where Parquet has no such types."""
    data = io.BytesIO()
    groups = draw.choice((None, 1, 3))
    try:
        pq.write_table(table, data, row_group_size=groups, compression=draw.choice(("none", "snappy", "zstd")))
    except (pa.ArrowException, OSError, ValueError, TypeError):
        return False
    path.write_bytes(_flipped(_cut(data.getvalue(), draw, often=0.08), draw))
    return True


def _cut(data: bytes, draw: random.Random, often: float) -> bytes:
    return data[: draw.randrange(len(data) + 1)] if draw.random() < often else data


def _flipped(data: bytes, draw: random.Random) -> bytes:
    if not data or draw.random() > 0.1:
        return data
    found = bytearray(data)
    for _ in range(draw.choice((1, 4))):
        found[draw.randrange(len(found))] = draw.randrange(256)
    return bytes(found)
