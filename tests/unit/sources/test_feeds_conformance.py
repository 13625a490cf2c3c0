"""What every feed promises, whatever it reads. A new feed is a line of `FEEDS`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kafka_broker import make_topic, produce

from dpa.errors import TableError
from dpa.sources.feed import Feed, Page
from dpa.sources.files import file_table
from dpa.sources.foreign import PolledRows, Poller
from dpa.sources.generated import BLOCK_ROWS, GeneratedTable, Generator, ReadRate
from dpa.sources.ipc import ipc_file
from dpa.sources.kafka import KafkaFeed, RecordFormat
from dpa.sources.lines import LineFormat, text_table
from dpa.sources.memory import MemoryFeed
from dpa.sources.parquet import parquet_table
from dpa.sources.paths import data_files
from dpa.sources.scans import ScanFormat, scan_file, scanned
from dpa.sources.watched import WatchedFiles
from dpa.testing import FeedError, check_feed
from jobs.text_files import Lines, TextFiles

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


def arrow(directory: Path) -> Feed:
    """Two files of record batches of ten rows, with the columns in another order."""
    for number, names in enumerate((["id", "line"], ["line", "id"])):
        part = TABLE.slice(number * 120, 120).select(names)
        with pa.ipc.new_file(directory / f"{number}.arrow", part.schema) as writer:
            writer.write_table(part, max_chunksize=10)
    return file_table(ipc_file, [str(directory)])


def scan(form: ScanFormat, directory: Path) -> Feed:
    for number in range(2):
        rows = TABLE.slice(number * 120, 120).to_pylist()
        lines = [json.dumps(row) if form.name == "json" else f"{row['id']},{row['line']}" for row in rows]
        (directory / f"{number}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    look = partial(scan_file, form=form, declared=TABLE.schema)
    return replace(scanned(file_table(look, [str(directory)])), columns=("line",))


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


def text(directory: Path) -> Feed:
    text_files(directory)
    return text_table(data_files(str(directory)))


GENERATED = GeneratedTable(Squares(), BLOCK_ROWS + ROWS)
IDS = pa.table({"id": pa.array(range(BLOCK_ROWS + ROWS), pa.int64())})


def topic(_: Path) -> Feed:
    """One partition, at a broker that the fixture fills in."""
    return KafkaFeed("", ("conformance",), RecordFormat(value="string"), columns=("value",))


FEEDS: dict[str, tuple[Callable[[Path], Feed], pa.Table]] = {
    "memory": (lambda _: MemoryFeed(TABLE), TABLE),
    "memory without rows": (lambda _: MemoryFeed(TABLE.slice(0, 0)), TABLE.slice(0, 0)),
    "parquet": (parquet, TABLE.select(["line"])),
    "arrow": (arrow, TABLE),
    "CSV in place": (partial(scan, ScanFormat("csv", header=False, quote="")), TABLE.select(["line"])),
    "JSON in place": (partial(scan, ScanFormat("json")), TABLE.select(["line"])),
    "watched": (watched, TABLE.select(["line"])),
    "watched CSV": (partial(watched_lines, LineFormat("csv", header=True, separator=";")), TABLE),
    "watched JSON": (partial(watched_lines, LineFormat("json")), TABLE),
    "watched text": (partial(watched_lines, LineFormat("text")), TABLE.select(["line"]).rename_columns(["value"])),
    "text": (text, TABLE.select(["line"]).rename_columns(["value"])),
    "fetched": (lambda _: PolledRows(Fetched(), "fetched", clock=no_time), TABLE),
    "topic": (topic, TABLE.slice(0, 60).select(["line"]).rename_columns(["value"])),
    "generated": (lambda _: GENERATED, IDS),
    "generated at a pace": (lambda _: replace(GENERATED, pace=ReadRate(1e12, time.monotonic, no_wait)), IDS),
    "of one's own": (text_files, TABLE.select(["line"])),
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


def test_a_feed_keeps_its_promises(case: tuple[Feed, pa.Table]) -> None:
    check_feed(*case)


class Remembers(TextFiles):
    """Goes on behind its own last page, whatever the position."""

    at = 0

    def poll(self, split_rows: int, position: Any = None) -> Page:
        self.at = 0 if position is None else self.at % len(self.files)
        page = super().poll(split_rows, self.at)
        self.at += 1
        return page


class Loses(TextFiles):
    """The last line of each file."""

    def poll(self, split_rows: int, position: Any = None) -> Page:
        page = super().poll(split_rows, position)
        return Page([replace(split, rows=split.rows - 1) for split in page.splits], page.position)


class Reorders(TextFiles):
    """Has the last file first."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.files.reverse()


class Draws(TextFiles):
    """A sample from anywhere."""

    def sample(self, *given: Any, **more: Any) -> pa.Table:
        return pa.table({"line": ["elsewhere"]})


@dataclass(frozen=True)
class Whole(Lines):
    """Has no rest."""

    def after(self, rows: int) -> Lines:
        return self


class Repeats(TextFiles):
    def poll(self, split_rows: int, position: Any = None) -> Page:
        page = super().poll(split_rows, position)
        return Page([Whole(split.path, split.rows) for split in page.splits], page.position)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Remembers, "Remembers: a second poll from the position 1"),
        (Loses, "Loses: its splits have 237 rows by their `rows`, where 240 are due"),
        (Reorders, "row 0 is {'line': 'line 160'}, where {'line': 'line 0'} is due"),
        (Draws, "Draws: a sample of 7 rows differs from the feed"),
        (Repeats, "a split of Repeats: ValueError: the split has .* rows by its `rows`, and 80 by its `batches`"),
    ],
)
def test_a_promise_that_is_broken_is_said(tmp_path: Path, kind: type[TextFiles], said: str) -> None:
    text_files(tmp_path)
    with pytest.raises((FeedError, TableError), match=said):
        check_feed(kind(str(tmp_path)), TABLE.select(["line"]))


def test_rows_of_other_types_are_said_too() -> None:
    with pytest.raises(FeedError, match=r"MemoryFeed: its splits of 30 rows have the columns .*int64.*int32"):
        check_feed(MemoryFeed(TABLE), TABLE.cast(pa.schema({"id": pa.int32(), "line": pa.string()})))
