"""The feed of the package in `tests/packages`, installed as pip installs it, on a real server of Redis."""

from __future__ import annotations

import pickle
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from redis import Redis
from redis_server import installed, program, redis_server

from dpa import Feed, Job
from dpa.config import parse
from dpa.errors import ConfigError, TableError
from dpa.sources.feed import all_splits, table_of
from dpa.sources.foreign import ForeignFeed
from dpa.testing import LocalBackend, check_feed

COLUMNS = {"page": "string", "seconds": "int64"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with redis_server() as url:
        yield url


@pytest.fixture(scope="module")
def package(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    site = str(installed(tmp_path_factory.mktemp("package")))
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(site)
        import dpa_redis_streams

        yield dpa_redis_streams
    del sys.modules["dpa_redis_streams"]


@pytest.fixture
def redis(url: str) -> Iterator[Redis]:
    with Redis.from_url(url) as client:
        client.flushall()
        yield client


def add(redis: Redis, stream: str, count: int, first: int = 1) -> None:
    """Entries 1-0, 2-0 ..., each with its number in `seconds`."""
    for number in range(first, first + count):
        redis.xadd(stream, {"page": f"page {number % 3}", "seconds": number, "other": "x"}, f"{number}-0")


@pytest.fixture
def visits(package: ModuleType, url: str, redis: Redis) -> Feed:
    """As a job uses it; with 10 entries."""
    add(redis, "visits", 10)
    return ForeignFeed(package.RedisStreams(url, ["visits"], COLUMNS), "redis_streams")


def test_it_keeps_what_every_feed_promises(package: ModuleType, url: str, redis: Redis) -> None:
    add(redis, "visits", 240)
    rows = {
        "stream": ["visits"] * 240,
        "id": [f"{number}-0" for number in range(1, 241)],
        "time": pa.array(range(1, 241), pa.timestamp("ms", "UTC")),
        "page": [f"page {number % 3}" for number in range(1, 241)],
        "seconds": range(1, 241),
    }
    check_feed(package.RedisStreams(url, ["visits"], COLUMNS), pa.table(rows))


def test_each_stream_is_a_channel_that_may_come_later_and_grow(package: ModuleType, url: str, redis: Redis) -> None:
    feed = ForeignFeed(package.RedisStreams(url, ["visits", "clicks"], COLUMNS), "redis_streams")
    page = feed.poll(100)
    assert not page.splits
    add(redis, "visits", 5)
    redis.xadd("clicks", {"seconds": -1})
    page = feed.poll(2, page.position)
    assert [(split.channel, split.rows) for split in page.splits] == [("visits", 2), ("clicks", 1)]  # type: ignore[attr-defined]
    [click] = table_of(page.splits[1:]).to_pylist()
    assert (click["stream"], click["page"], click["seconds"]) == ("clicks", None, -1)
    assert click["time"].timestamp() * 1000 == pytest.approx(int(click["id"].partition("-")[0]), abs=1)
    page = feed.poll(100, page.position)
    assert table_of(page.splits)["seconds"].to_pylist() == [3, 4, 5]
    redis.xadd("ids", {"id": "7", "raw": b"\xff"}, "1-0")
    [row] = table_of(ForeignFeed(package.RedisStreams(url, ["ids"], {"id": "int64"}), "x").poll(10).splits).to_pylist()
    assert [*row] == ["stream", "id", "time"] and row["id"] == 7, "a field takes the place of a column of its name"


@pytest.mark.parametrize("value", [b"soon", b"\xff"])
def test_a_value_that_is_of_another_type_is_named(visits: Feed, redis: Redis, value: bytes) -> None:
    redis.xadd("visits", {"seconds": value}, "11-0")
    said = f"the stream 'visits' of Redis: the entry 11-0 has {value!r} in the field 'seconds', which is no int64"
    with pytest.raises(TableError, match=re.escape(said)):
        table_of([*all_splits(visits, 4)], visits.schema)


def test_what_was_removed_before_the_job_began_or_once_it_was_read_is_no_fault(visits: Feed, redis: Redis) -> None:
    redis.xdel("visits", "5-0")
    redis.xtrim("visits", minid="3-0", approximate=False)
    page = visits.poll(4)
    assert table_of(page.splits)["seconds"].to_pylist() == [3, 4, 6, 7]
    redis.xtrim("visits", minid="8-0", approximate=False)
    page = visits.poll(4, page.position)
    assert table_of(page.splits)["seconds"].to_pylist() == [8, 9, 10]
    redis.xtrim("visits", maxlen=0, approximate=False)
    page = visits.poll(4, page.position)
    add(redis, "visits", 2, first=11)
    assert table_of(visits.poll(4, page.position).splits)["seconds"].to_pylist() == [11, 12]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("XTRIM visits MINID 6-0", "it has those from 6-0 to 10-0, was read up to 4-0, and 0-0 was deleted last; keep"),
        ("XTRIM visits MAXLEN 0", "it has none, was read up to 4-0"),
        ("XADD visits MAXLEN 2 11-0 page x", "it has those from 10-0 to 11-0, was read up to 4-0"),
        ("XDEL visits 7-0 8-0", "it has those from 1-0 to 10-0, was read up to 4-0, and 8-0 was deleted last"),
        ("DEL visits", "made anew, or .*: it was read up to 4-0, its entry 4, and ends with 0-0, 0"),
    ],
)
def test_entries_removed_before_they_come_are_an_error(visits: Feed, redis: Redis, command: str, said: str) -> None:
    position = visits.poll(4).position
    redis.execute_command(command)
    with pytest.raises(TableError, match=f"the stream 'visits' of Redis .*{said}"):
        visits.poll(4, position)


def test_an_entry_deleted_below_others_is_missed_in_the_end_a_new_stream_at_once(visits: Feed, redis: Redis) -> None:
    redis.xdel("visits", "9-0")
    page = visits.poll(4)
    redis.xdel("visits", "7-0")
    page = visits.poll(4, page.position)
    assert table_of(page.splits)["seconds"].to_pylist() == [5, 6, 8, 10]
    missed = "it has those from 1-0 to 10-0, was read up to 10-0, and 9-0 was deleted last"
    with pytest.raises(TableError, match=missed):
        visits.poll(4, page.position)
    position = visits.poll(4).position
    redis.delete("visits")
    add(redis, "visits", 8, first=20)
    with pytest.raises(TableError, match=r"was made anew.*read up to 4-0, its entry 6, and ends with 27-0, 8"):
        visits.poll(4, position)


@pytest.mark.parametrize(("removed", "there"), [("1-0", 0), ("3-0", 3)])
def test_entries_removed_from_a_split_are_an_error(visits: Feed, redis: Redis, removed: str, there: int) -> None:
    [split] = pickle.loads(pickle.dumps(visits.poll(4).splits))
    redis.xdel("visits", removed)
    with pytest.raises(TableError, match=f": 4 from 1-0 to 4-0, of which {there} are there; keep"):
        table_of([split.after(1)])


def test_job_files_name_it_once_it_is_installed(package: ModuleType, url: str, redis: Redis) -> None:
    add(redis, "visits", 30)
    args = {"url": url, "streams": ["visits"], "columns": COLUMNS}
    document: dict[str, Any] = {
        "input": {"format": "feed", "use": "redis_streams", "args": args},
        "key": "page",
        "reducer": {"use": "sum", "args": {"column": "seconds"}},
        "until": {"records": 30},
    }
    found = Job(file=parse(document)).run(backend=LocalBackend()).table().to_pydict()
    assert dict(zip(found["page"], found["seconds"], strict=True)) == {"page 0": 165, "page 1": 145, "page 2": 155}
    for wrong, said in (
        ({"streams": []}, "streams are 32 at most, each once: there is none"),
        ({"columns": {"page": "text"}}, "text"),
        ({"url": "redis://:hunter2@127.0.0.1:1"}, "ConnectionError"),
    ):
        given = {**document, "input": {**document["input"], "args": {**args, **wrong}}}
        with pytest.raises(ConfigError, match=f"input.args: redis_streams cannot be made of .*{said}") as error:
            Job(file=parse(given)).run(backend=LocalBackend())
        assert "hunter2" not in str(error.value)


def test_a_missing_program_skips_a_test_and_fails_it_where_programs_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("DPA_NEEDS_PROGRAMS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="there is no redis-server on PATH"):
        program("redis-server")
    monkeypatch.setenv("DPA_NEEDS_PROGRAMS", "1")
    with pytest.raises(pytest.fail.Exception, match="there is no redis-server on PATH"):
        program("redis-server")
