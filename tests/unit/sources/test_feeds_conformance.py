"""What every feed promises, whatever it reads. A new feed is a line of `FEEDS`."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpa.protocol.history.lean import has_lean_form
from dpa.sources.feed import Feed, all_splits, table_of
from dpa.sources.foreign import ForeignFeed
from dpa.sources.generated import BLOCK_ROWS, GeneratedTable, Generator, ReadRate
from dpa.sources.memory import MemoryFeed
from dpa.sources.parquet import parquet_table
from dpa.sources.splits import Split
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


def text_files(directory: Path) -> Feed:
    for number in range(3):
        lines = TABLE["line"].to_pylist()[number * 80 : (number + 1) * 80]
        (directory / f"{number}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return TextFiles(str(directory))


GENERATED = GeneratedTable(Squares(), BLOCK_ROWS + ROWS)
IDS = pa.table({"id": pa.array(range(BLOCK_ROWS + ROWS), pa.int64())})

FEEDS: dict[str, tuple[Callable[[Path], Feed], pa.Table]] = {
    "memory": (lambda _: MemoryFeed(TABLE), TABLE),
    "memory without rows": (lambda _: MemoryFeed(TABLE.slice(0, 0)), TABLE.slice(0, 0)),
    "parquet": (parquet, TABLE.select(["line"])),
    "generated": (lambda _: GENERATED, IDS),
    "generated at a pace": (lambda _: replace(GENERATED, pace=ReadRate(1e12, time.monotonic, no_wait)), IDS),
    "of one's own": (text_files, TABLE.select(["line"])),
    "foreign": (lambda directory: ForeignFeed(text_files(directory), "text_files"), TABLE.select(["line"])),
}
"""What makes each feed in a directory, and the rows that it has."""


@pytest.fixture(scope="module", params=FEEDS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Feed, pa.Table]:
    make, rows = FEEDS[request.param]
    return make(tmp_path_factory.mktemp("feed")), rows


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
    splits = list(all_splits(feed, split_rows))
    assert sum(split.rows for split in splits) == rows.num_rows
    assert read(splits, rows).equals(rows)
    assert feed.schema is not None
    assert {feed.schema.field(name).type for name in rows.column_names} == set(rows.schema.types)


def test_every_position_gives_the_rest_again(case: tuple[Feed, pa.Table]) -> None:
    feed, rows = case
    pages = [feed.poll(30)]
    while pages[-1].position is not None:
        pages.append(feed.poll(30, pages[-1].position))
    for number, page in enumerate(pages[:-1], start=1):
        resumed = feed.poll(30, pickle.loads(pickle.dumps(page.position)))
        assert read([*resumed.splits], rows).equals(read([*pages[number].splits], rows))
        assert resumed.position == pages[number].position
    assert read([split for page in pages for split in page.splits], rows).equals(rows)


@given(read_rows=st.lists(st.integers(0, 40), max_size=4), batch_rows=st.integers(1, 30))
@settings(max_examples=15, deadline=None)
def test_the_rest_of_a_split_is_all_that_was_not_read(
    case: tuple[Feed, pa.Table], read_rows: list[int], batch_rows: int
) -> None:
    feed, rows = case
    for split in list(all_splits(feed, 100))[-1:]:
        rest, expected = split, table_of([split])
        for wanted in read_rows:
            some = min(wanted, rest.rows)
            rest, expected = rest.after(some), expected.slice(some)
        assert rest.rows == expected.num_rows
        assert read([rest], rows, batch_rows).to_pylist() == expected.to_pylist()


def test_a_split_travels_and_is_read_again_with_the_same_rows(case: tuple[Feed, pa.Table]) -> None:
    feed, rows = case
    splits = list(all_splits(feed, 100))
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
