"""What every feed promises, whatever it reads. A new feed is a line of `FEEDS`."""

from __future__ import annotations

import json
import os
import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_broker import make_topic, produce

from dpa.protocol.history.lean import has_lean_form
from dpa.sources._lines import LineFormat
from dpa.sources.feed import PAGE_SPLITS, Feed, Page, all_splits, table_of
from dpa.sources.foreign import ForeignFeed
from dpa.sources.generated import BLOCK_ROWS, GeneratedTable, Generator, ReadRate
from dpa.sources.kafka import KafkaFeed
from dpa.sources.kafka_records import RecordFormat
from dpa.sources.memory import MemoryFeed
from dpa.sources.parquet import parquet_table
from dpa.sources.poller import PolledRows, Poller
from dpa.sources.splits import Split
from dpa.sources.watched import WatchedFiles
from jobs.text_files import TextFiles

ROWS = 240
TABLE = pa.table({"id": range(ROWS), "line": [f"line {number}" for number in range(ROWS)]})


class Squares(Generator):
    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        return pa.record_batch({"id": pa.array(range(start, start + rows), pa.int64())})


def no_wait(seconds: float) -> None:
    pytest.fail(f"nothing has to wait {seconds} s at this pace")


def parquet(directory: Path) -> Feed:
    """Two files of row groups of ten rows."""
    for number in range(2):
        part = TABLE.slice(number * 120, 120)
        pq.write_table(part, directory / f"{number}.parquet", row_group_size=10)
    return replace(parquet_table([str(directory)]), columns=("line",), dictionary=("line",))


def watched(directory: Path) -> Feed:
    parquet(directory)
    return WatchedFiles(str(directory), columns=("line",), dictionary=("line",))


def watched_lines(kind: LineFormat, directory: Path) -> Feed:
    """Three files, the second of which ends without the end of a line; blank lines are none in CSV and JSON."""
    for number in range(3):
        rows = TABLE.slice(number * 80, 80).to_pylist()
        if kind.name == "csv":
            lines = ["id;line", *(f"{row['id']};{row['line']}" for row in rows)]
        else:
            lines = [json.dumps(row) if kind.name == "json" else row["line"] for row in rows]
        blank = [] if kind.name == "text" else ["", "\r"]
        end = "" if number == 1 else "\n"
        (directory / str(number)).write_bytes(("\n".join([*lines[:40], *blank, *lines[40:]]) + end).encode())
        os.utime(directory / str(number), (number, number))
    return WatchedFiles(str(directory), kind, declared=None if kind.name == "text" else TABLE.schema)


class Fetched(Poller):
    """Seven rows of the table at a time, every other time as dicts, and now and then none."""

    schema = TABLE.schema

    def __init__(self) -> None:
        self.turn = 0

    def poll(self) -> list[dict[str, Any]] | pa.Table | None:
        start, self.turn = self.turn * 7, self.turn + 1
        if start > ROWS + 7:
            return None
        part = TABLE.slice(start, 7)
        return part if self.turn % 2 else part.to_pylist()

    def position(self) -> int:
        return self.turn

    def resume(self, position: int) -> None:
        self.turn = position


def no_time() -> float:
    return 0.0


def text_files(directory: Path) -> Feed:
    for number in range(3):
        lines = TABLE["line"].to_pylist()[number * 80 : (number + 1) * 80]
        (directory / f"{number}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return TextFiles(str(directory))


GENERATED = GeneratedTable(Squares(), BLOCK_ROWS + ROWS)
IDS = pa.table({"id": pa.array(range(BLOCK_ROWS + ROWS), pa.int64())})


def topic(_: Path) -> Feed:
    """One partition, at a broker that the fixture fills in."""
    return KafkaFeed("", ("conformance",), RecordFormat(value="string"), columns=("value",))


FEEDS: dict[str, tuple[Callable[[Path], Feed], pa.Table]] = {
    "memory": (lambda _: MemoryFeed(TABLE), TABLE),
    "memory without rows": (lambda _: MemoryFeed(TABLE.slice(0, 0)), TABLE.slice(0, 0)),
    "parquet": (parquet, TABLE.select(["line"])),
    "watched": (watched, TABLE.select(["line"])),
    "watched CSV": (partial(watched_lines, LineFormat("csv", header=True, separator=";")), TABLE),
    "watched JSON": (partial(watched_lines, LineFormat("json")), TABLE),
    "watched text": (
        partial(watched_lines, LineFormat("text")),
        TABLE.select(["line"]).rename_columns(["value"]),
    ),
    "fetched": (lambda _: PolledRows(Fetched(), "fetched", clock=no_time), TABLE),
    "topic": (topic, TABLE.slice(0, 60).select(["line"]).rename_columns(["value"])),
    "generated": (lambda _: GENERATED, IDS),
    "generated at a pace": (lambda _: replace(GENERATED, pace=ReadRate(1e12, time.monotonic, no_wait)), IDS),
    "of one's own": (text_files, TABLE.select(["line"])),
    "foreign": (lambda directory: ForeignFeed(text_files(directory), "text_files"), TABLE.select(["line"])),
}
"""What makes each feed in a directory, and the rows that it has."""


@pytest.fixture(scope="module", params=FEEDS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Feed, pa.Table]:
    make, rows = FEEDS[request.param]
    feed = make(tmp_path_factory.mktemp("feed"))
    if isinstance(feed, KafkaFeed):
        feed = replace(feed, servers=request.getfixturevalue("kafka"))
        make_topic(feed.servers, feed.topics[0])
        produce(feed.servers, feed.topics[0], [line.encode() for line in rows["value"].to_pylist()])
    return feed, rows


def pages_of(feed: Feed, split_rows: int) -> list[Page]:
    """All pages; of an open feed those up to the first one without splits."""
    pages = [feed.poll(split_rows)]
    while pages[-1].position is not None and (pages[-1].splits or not feed.is_open):
        pages.append(feed.poll(split_rows, pages[-1].position))
    assert not feed.is_open or max(len(page.splits) for page in pages) <= PAGE_SPLITS
    return pages


def splits_of(feed: Feed, split_rows: int) -> list[Split]:
    return list(chain.from_iterable(page.splits for page in pages_of(feed, split_rows)))


def plain(table: pa.Table) -> pa.Table:
    """Without dictionaries."""
    return table.cast(
        pa.schema([(field.name, getattr(field.type, "value_type", field.type)) for field in table.schema])
    )


def read(splits: list[Split], like: pa.Table, batch_rows: int = 50) -> pa.Table:
    batches = [batch for split in splits for batch in split.batches(batch_rows)]
    assert all(batch.num_rows <= batch_rows for batch in batches)
    return plain(pa.Table.from_batches(batches)) if batches else like.slice(0, 0)


@pytest.mark.parametrize("split_rows", [30, 10_000])
def test_the_splits_in_their_order_are_the_rows(case: tuple[Feed, pa.Table], split_rows: int) -> None:
    feed, rows = case
    splits = splits_of(feed, split_rows)
    assert feed.is_open or splits == list(all_splits(feed, split_rows))
    assert sum(split.rows for split in splits) == rows.num_rows
    assert read(splits, rows).equals(rows)
    assert feed.schema is not None
    assert {feed.schema.field(name).type for name in rows.column_names} == set(rows.schema.types)


def test_every_position_gives_the_rest_again(case: tuple[Feed, pa.Table]) -> None:
    feed, rows = case
    split_rows = 3 if feed.is_open else 30
    pages = pages_of(feed, split_rows)
    for number, page in enumerate(pages[:-1], start=1):
        resumed = pickle.loads(pickle.dumps(feed)).poll(split_rows, pickle.loads(pickle.dumps(page.position)))
        assert read([*resumed.splits], rows).equals(read([*pages[number].splits], rows))
        assert resumed.position == pages[number].position
    assert read([split for page in pages for split in page.splits], rows).equals(rows)


@given(read_rows=st.lists(st.integers(0, 40), max_size=4), batch_rows=st.integers(1, 30))
@settings(max_examples=15, deadline=None)
def test_the_rest_of_a_split_is_all_that_was_not_read(
    case: tuple[Feed, pa.Table], read_rows: list[int], batch_rows: int
) -> None:
    feed, rows = case
    for split in splits_of(feed, 100)[-1:]:
        rest, expected = split, table_of([split])
        for wanted in read_rows:
            some = min(wanted, rest.rows)
            rest, expected = rest.after(some), expected.slice(some)
        assert rest.rows == expected.num_rows
        assert read([rest], rows, batch_rows).to_pylist() == expected.to_pylist()


def test_a_split_travels_and_is_read_again_with_the_same_rows(case: tuple[Feed, pa.Table]) -> None:
    feed, rows = case
    splits = splits_of(feed, 100)
    travelled = [pickle.loads(pickle.dumps(split)) for split in splits]
    assert all(isinstance(split, Split) and has_lean_form(type(split)) for split in travelled)
    for _ in range(2):
        assert read(travelled, rows).equals(rows)


def test_a_sample_has_rows_of_the_feed_in_order_and_is_the_same_again(case: tuple[Feed, pa.Table]) -> None:
    feed, rows = case
    known = rows[rows.column_names[-1]].to_pylist()
    for most in (7, 10_000):
        drawn = feed.sample(most, seed=1)[rows.column_names[-1]].to_pylist()
        assert drawn == feed.sample(most, seed=1)[rows.column_names[-1]].to_pylist()
        places = [known.index(row) for row in drawn]
        assert places == sorted(set(places))
        assert len(drawn) == len(known) or most < len(known)
    assert bool(feed.sample(7, seed=1, enough=lambda: True).num_rows) == bool(known)
