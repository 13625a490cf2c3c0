"""Rows that classes of users fetch or give: how they become pages, what passes through, what is said of failures."""

from __future__ import annotations

import inspect
import pickle
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dpa import Feed, Job, Page, Poller
from dpa.config import parse
from dpa.errors import ConfigError, TableError
from dpa.sources.feed import NumberedFeed, table_of
from dpa.sources.foreign import ForeignFeed, PolledRows
from dpa.sources.splits import channel_of
from dpa.testing import LocalBackend
from jobs.text_files import Lines, TextFiles

SCHEMA = pa.schema([("n", pa.int64()), ("word", pa.string())])


class Scripted(Poller):
    """Gives what it was made with, one after the other."""

    schema = SCHEMA

    def __init__(self, given: list[Any] | None = None) -> None:
        self.given, self.at, self.resumed = given or [[{"n": n}] for n in range(5)], 0, 0

    def poll(self) -> Any:
        self.at += 1
        found = self.given[self.at - 1] if self.at <= len(self.given) else None
        if isinstance(found, Exception):
            raise found
        return found

    def position(self) -> Any:
        return self.at

    def resume(self, position: Any) -> None:
        self.at, self.resumed = position, self.resumed + 1


class Bare(Poller):
    """Lacks a schema."""

    poll = position = Scripted.poll
    resume = Scripted.resume


def test_a_page_has_what_comes_together_up_to_the_rows_of_a_split_or_a_time() -> None:
    poller = Scripted([[{"n": 1}, {"word": "b"}], [{"n": 2}], [], [{"n": 3}], None])
    feed = PolledRows(poller, "x", clock=lambda: 0.0)
    first = feed.poll(100)
    assert table_of(first.splits).to_pylist() == [
        {"n": 1, "word": None},
        {"n": None, "word": "b"},
        {"n": 2, "word": None},
    ]
    last = feed.poll(100, first.position)
    assert (total := [split.rows for split in last.splits]) == [1] and last.position is None, total
    assert poller.resumed == 0
    assert len(feed.poll(2).splits) == 1 and poller.resumed == 1  # from the beginning
    times = deque([0.0, 0.0, 0.1])
    assert [split.rows for split in PolledRows(Scripted(), "x", clock=times.popleft).poll(100).splits] == [1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("ab", r"x.poll: TypeError: it gives a str, where a list of dicts, Arrow data or None is due"),
        ([1], r"x.poll: TypeError: a row is a dict by column name, not 1"),
        ([{"m": 1}], r"x.poll: TypeError: a row has 'm', which is no column of `schema`: it has n, word"),
        ([{"n": "a"}], r"x.poll: Arrow(Invalid|TypeError): .*'a'.* int"),
        (pa.table({"n": [1]}), r"a batch has no column 'word', and the feed's `schema` declares it as string"),
        (OSError("gone"), r"x.poll: OSError: gone \(.*test_poller.py:\d+\)"),
    ],
)
def test_what_is_no_row_is_said(given: Any, message: str) -> None:
    with pytest.raises(TableError, match=message):
        PolledRows(Scripted([given]), "x").poll(9)


def test_a_position_must_be_picklable_and_a_schema_declared() -> None:
    poller = Scripted()
    poller.position = lambda: lambda: 0  # type: ignore[method-assign]
    with pytest.raises(TableError, match=r"x.position: .*(pickle|local object)"):
        PolledRows(poller, "x").poll(9)
    with pytest.raises(TableError, match="x: its attribute `schema` must be a Schema of pyarrow"):
        _ = PolledRows(Bare(), "x").schema


def test_a_job_reads_what_a_poller_fetches() -> None:
    read = {"format": "feed", "use": f"{__name__}:Scripted"}
    job = Job(file=parse({"input": read, "key": "n", "reducer": "count"}))
    assert job.run(backend=LocalBackend()).table()["count"].to_pylist() == [1] * 5
    wrong = Job(file=parse({"input": {"format": "feed", "use": "sys:path"}, "key": "n", "reducer": "count"}))
    with pytest.raises(ConfigError, match=r"is list, not a `dpa\.Feed` or `dpa\.Poller`"):
        wrong.run(backend=LocalBackend())


def test_what_a_poller_gave_before_it_failed_is_given_again() -> None:
    poller = Scripted([[{"n": 1}], ConnectionError("gone"), [{"n": 2}], None])
    feed = PolledRows(poller, "x", clock=lambda: 0.0)
    with pytest.raises(TableError, match="gone"):
        feed.poll(100)
    poller.given[1] = [{"n": 9}]
    assert table_of(feed.poll(100).splits)["n"].to_pylist() == [1, 9, 2] and poller.resumed == 1


@dataclass(frozen=True)
class LinesOf(Lines):
    """Some lines of a file, which is their channel."""

    @property
    def channel(self) -> str:
        return Path(self.path).stem


class Archived(TextFiles):
    """Files that wait to be removed."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.released: list[Any] = []

    def poll(self, split_rows: int, position: Any = None) -> Page:
        page = super().poll(split_rows, position)
        return Page([LinesOf(split.path, split.rows) for split in page.splits], page.position)  # type: ignore[attr-defined]

    def release(self, position: Any, unread: Sequence[Any]) -> None:
        self.released += [position, *unread]
        if position is None:
            raise OSError("nothing was read")

    def lag(self, position: Any) -> Mapping[str, int]:
        return {Path(file).stem: 1 for file in self.files[position or 0 :]}


def test_channels_lag_and_release_pass_through(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("to be\nor not\n", encoding="utf-8")
    archived = Archived(str(tmp_path))
    feed = NumberedFeed(ForeignFeed(archived, "archived"))
    page = feed.poll(10)
    [split] = pickle.loads(pickle.dumps(page.splits))
    assert channel_of(split) == channel_of(split.after(1)) == "a"
    assert feed.lag(page.position) == {"b": 1}
    feed.release(page.position, [split.after(1)])
    [lines] = archived.poll(10).splits
    assert archived.released == [1, replace(lines, rows=1, start=1)], "its own splits, as far as they are unread"
    with pytest.raises(TableError, match=r"archived.release: OSError: nothing was read"):
        feed.release(None, [])


def test_all_that_a_feed_may_say_passes_through() -> None:
    said = {name for name, _ in inspect.getmembers(Feed) if not name.startswith("_")}
    said.remove("rows_now")  # made of what polls give
    assert said - vars(ForeignFeed).keys() == {"is_open", "patience", "poll_seconds"}, "these are copied"
