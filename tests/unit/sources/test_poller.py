"""Rows that a class of the user's fetches: how they become pages, and what is said where the class fails."""

from __future__ import annotations

from collections import deque
from typing import Any

import pyarrow as pa
import pytest

from dpa import Job, Poller
from dpa.config import parse
from dpa.errors import ConfigError, TableError
from dpa.sources.feed import table_of
from dpa.sources.foreign import PolledRows
from dpa.testing import LocalBackend

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


def test_a_new_object_goes_on_where_the_last_one_was() -> None:
    page = PolledRows(Scripted(), "x", clock=lambda: 0.0).poll(2)
    poller = Scripted()
    assert table_of(PolledRows(poller, "x").poll(1, page.position).splits)["n"].to_pylist() == [2]
    assert poller.resumed == 1


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
