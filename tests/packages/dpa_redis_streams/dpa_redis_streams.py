"""Streams of Redis (XADD) as an open feed of dpa: splits are ranges of entry ids, which source tasks read themselves.

No group of consumers is joined, and nothing is acknowledged or trimmed: how far was read is in the job's checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
from redis import Redis

from dpa import Feed, Page
from dpa.errors import TableError

PAGE_SPLITS = 32
"""Most splits that an open feed may give at once."""

SPLIT_ENTRIES = 10_000
"""Most entries of a split: Redis does nothing else while it counts them."""

OWN_COLUMNS = {"stream": pa.string(), "id": pa.string(), "time": pa.timestamp("ms", "UTC")}
"""What an entry has besides its fields; the time is the first part of its id."""

START = "0-0"
"""Comes before the id of every entry."""

LOOK = """
if redis.call('EXISTS', KEYS[1]) == 0 then return {0, 0, '0-0', '0-0', '0-0', 0, '', ''} end
local answer, info = redis.call('XINFO', 'STREAM', KEYS[1]), {}
for place = 1, #answer, 2 do info[answer[place]] = answer[place + 1] end
local oldest = info['first-entry'] and info['first-entry'][1] or '0-0'
local found = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])
local first, last = found[1] or {''}, found[#found] or {''}
return {info['entries-added'], info['length'], oldest, info['last-generated-id'], info['max-deleted-entry-id'],
        #found, first[1], last[1]}
"""
"""What is `Found` behind an id, at one moment. Redis counts the entries, and sends none."""


class Found(NamedTuple):
    """Of a stream, how many entries were ever added and how many are there, and the ids of the oldest that is there, of
    the newest that was ever there, and of the newest that XDEL has removed; how many a split may have, and the ids of
    the first and the last of those."""

    added: int
    there: int
    oldest: str
    newest: str
    deleted: str
    rows: int
    first: str
    last: str


class Reached(NamedTuple):
    """Of a stream, the last entry that was given, how many had been added up to that one, whether they are there or
    not, and the newest that XDEL had removed when the job began."""

    last: str
    added: int
    deleted: str


@lru_cache(maxsize=8)
def client(url: str) -> Any:
    """The connections of this process to a server: feeds and splits are pickled, and use those of where they are."""
    return Redis.from_url(url, socket_timeout=10, socket_connect_timeout=10)


def order(entry: str) -> tuple[int, int]:
    """An id as what it is ordered by: milliseconds since 1970, and a number in that one."""
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number)


def removed(stream: str, what: str) -> TableError:
    """The error of entries that are gone."""
    keep = "keep entries (MAXLEN, XTRIM, XDEL) until a checkpoint of the job has been made behind them"
    return TableError(f"the stream {stream!r} of Redis has lost entries before they were read: {what}; {keep}")


@dataclass(frozen=True)
class Entries:
    """The entries of a stream from one id to another, but the `skipped` first ones; `fields` are those to read."""

    url: str
    channel: str
    first: str
    last: str
    fields: pa.Schema
    rows: int
    skipped: int = 0

    def after(self, rows: int) -> Entries:
        """What is left once the first `rows` entries have been read."""
        return replace(self, rows=self.rows - rows, skipped=self.skipped + rows)

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the entries."""
        begin, read, whole = self.first, 0, self.skipped + self.rows
        while read < whole and (found := client(self.url).xrange(self.channel, begin, self.last, batch_rows)):
            ids = [entry.decode() for entry, _ in found]
            if not read and ids[0] != self.first:
                break
            new = max(0, self.skipped - read)
            if new < len(found):
                yield self._batch(ids[new:], [fields for _, fields in found[new:]])
            begin, read = f"({ids[-1]}", read + len(found)
        if read < whole:
            raise removed(self.channel, f"{whole:,} from {self.first} to {self.last}, of which {read:,} are there")

    def _batch(self, ids: Sequence[str], entries: Sequence[Mapping[bytes, bytes]]) -> pa.RecordBatch:
        times = pa.array([order(entry)[0] for entry in ids], pa.int64())
        columns = {"stream": [self.channel] * len(ids), "id": ids, "time": times.cast(OWN_COLUMNS["time"])}
        for field in self.fields:
            columns[field.name] = self._parsed(field, ids, [entry.get(field.name.encode()) for entry in entries])
        return pa.record_batch(list(columns.values()), schema_of(self.fields))

    def _parsed(self, field: pa.Field, ids: Sequence[str], values: Sequence[bytes | None]) -> pa.Array:
        try:
            return pa.array(values, pa.binary()).cast(pa.string()).cast(field.type)
        except pa.ArrowInvalid as error:
            if len(ids) > 1:  # which of them is it?
                return pa.concat_arrays([self._parsed(field, *one) for one in zip(zip(ids), zip(values), strict=True)])
            what = f"has {values[0]!r} in the field {field.name!r}, which is no {field.type}"
            raise TableError(f"the stream {self.channel!r} of Redis: the entry {ids[0]} {what}") from error


def schema_of(fields: pa.Schema) -> pa.Schema:
    """The columns of entries with these fields, which take the place of others of their names."""
    return pa.schema({**OWN_COLUMNS, **dict(zip(fields.names, fields.types, strict=True))})


class RedisStreams(Feed):
    """The entries of some streams, which need not be there yet. A position has what is `Reached` of each, as tuples."""

    is_open = True

    def __init__(self, url: str, streams: Sequence[str], columns: Mapping[str, str]) -> None:
        """`columns` are the fields to read, with Arrow types."""
        if not 0 < len(set(streams)) == len(streams) <= PAGE_SPLITS:
            raise ValueError(f"streams are {PAGE_SPLITS} at most, each once: {', '.join(streams) or 'there is none'}")
        self.url, self.streams = url, tuple(streams)
        self.fields = pa.schema({name: pa.type_for_alias(alias) for name, alias in columns.items()})
        client(url).ping()

    @property
    def schema(self) -> pa.Schema:
        return schema_of(self.fields)

    def poll(self, split_rows: int, position: Any = None) -> Page:
        """A split of each stream that has more."""
        splits, reached = [], {}
        for stream in self.streams:
            at = position[stream] if stream in (position or ()) else None
            at, found = self._look(stream, at and Reached(*at), min(split_rows, SPLIT_ENTRIES))
            if found.rows:
                splits.append(Entries(self.url, stream, found.first, found.last, self.fields, found.rows))
                at = at._replace(last=found.last, added=at.added + found.rows)
            reached[stream] = tuple(at)
        return Page(splits, reached)

    def _look(self, stream: str, at: Reached | None, rows: int) -> tuple[Reached, Found]:
        """How far a stream was given, and what is behind: all entries that have been added since."""
        answer = client(self.url).eval_ro(LOOK, 1, stream, at.last if at else START, rows)
        found = Found._make(item.decode() if isinstance(item, bytes) else item for item in answer)
        at = at or Reached(START, found.added - found.there, found.deleted)
        all_behind = order(found.oldest) > order(at.last)
        lost = found.added - at.added - (found.there if all_behind else found.rows)
        if found.rows == rows and not all_behind:  # there may be more
            lost = min(lost, 0)
        if lost < 0 or order(found.newest) < order(at.last):
            what = f"it was read up to {at.last}, its entry {at.added:,}, and ends with {found.newest}, {found.added:,}"
            raise TableError(f"the stream {stream!r} of Redis was made anew, or has lost its newest entries: {what}")
        if lost or (found.deleted != at.deleted and order(found.deleted) > order(at.last)):
            there = f"it has those from {found.oldest} to {found.newest}" if found.there else "it has none"
            raise removed(stream, f"{there}, was read up to {at.last}, and {found.deleted} was deleted last")
        return at, found
