"""What every feed promises (`dpa.Feed`), checked on one whose rows are known."""

import pickle
import random
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import TypeVar

import pyarrow as pa

from dpa.errors import DpaError
from dpa.sources.feed import PAGE_SPLITS, Feed, Page
from dpa.sources.foreign import ForeignFeed
from dpa.sources.splits import Split

T = TypeVar("T")

_SPLIT_ROWS = (3, 30, 10_000)  # sizes of splits to ask for; the first only of open feeds

_TRIALS = 15


class FeedError(DpaError, AssertionError):
    """A feed breaks a promise; the message says which, and shows the first row that differs."""


def check_feed(feed: Feed, rows: pa.Table) -> None:
    """Check what a job relies on. The feed must have exactly these rows and get no others meanwhile.

    The promises, for any size of splits:

    - Its pages have the rows in order, with the types of its schema, and no page has too many splits.
    - The feed, its positions and its splits can be pickled. A position or a split gives the same rows each time.
    - A split's batches have `batch_rows` rows at most, and the rest of a split is all that was not read.
    - A sample has rows of the feed in their order, the same ones for the same seed.

    A feed that is not of dpa is checked as a job uses it, which also compares its rows with its schema.

    Args:
        feed: as in a job; an open one counts as read at the first page without splits.
        rows: all that it has, with the columns that its splits have.

    Raises:
        FeedError: a promise is broken.
        TableError: it cannot be read, or its rows have other columns than its schema declares.
    """
    name = type(feed).__name__
    if type(feed).__module__.partition(".")[0] != "dpa":
        feed = ForeignFeed(feed, name)
    sizes = _SPLIT_ROWS[0 if feed.is_open else 1 :]
    for split_rows in sizes:
        _check_pages(name, feed, rows, split_rows)
    _check_schema(name, feed, rows)
    _check_positions(name, feed, rows, sizes[0])
    _check_splits(name, feed, rows)
    _check_sample(name, feed, rows)


def _check_pages(name: str, feed: Feed, rows: pa.Table, split_rows: int) -> None:
    pages = _pages(feed, split_rows)
    if feed.is_open and (most := max(len(page.splits) for page in pages)) > PAGE_SPLITS:
        raise FeedError(f"{name}: a page has {most} splits, where {PAGE_SPLITS} at most are due")
    splits = list(chain.from_iterable(page.splits for page in pages))
    if (said := sum(split.rows for split in splits)) != rows.num_rows:
        raise FeedError(f"{name}: its splits have {said:,} rows by their `rows`, where {rows.num_rows:,} are due")
    _require_rows(f"{name}: its splits of {split_rows:,} rows", _read(splits, rows), rows)


def _check_schema(name: str, feed: Feed, rows: pa.Table) -> None:
    if feed.schema is not None:
        for field in rows.schema:
            if (declared := feed.schema.field(field.name).type) != field.type:
                raise FeedError(f"{name}: its schema has {field.name!r} as {declared}, where {field.type} is due")


def _check_positions(name: str, feed: Feed, rows: pa.Table, split_rows: int) -> None:
    for page, following in pairwise(_pages(feed, split_rows)):
        again = _travelled(feed).poll(split_rows, _travelled(page.position))
        what = f"{name}: a second poll from the position {page.position!r}"
        _require_rows(what, _read(again.splits, rows), _read(following.splits, rows))
        if again.position != following.position:
            raise FeedError(f"{what} ends at {again.position!r}, and the first at {following.position!r}")


def _check_splits(name: str, feed: Feed, rows: pa.Table) -> None:
    splits = [split for page in _pages(feed, 100) for split in page.splits]
    travelled = [_travelled(split) for split in splits]
    for turn in ("first", "second"):
        _require_rows(f"{name}: splits that were pickled, read for the {turn} time,", _read(travelled, rows), rows)
    draw = random.Random(0)
    for split in splits[-1:] * _TRIALS:
        rest, due = split, _read([split], rows)
        for _ in range(draw.randrange(4)):
            some = draw.randint(0, min(40, rest.rows))
            rest, due = rest.after(some), due.slice(some)
        if rest.rows != due.num_rows:
            raise FeedError(f"{name}: the rest of a split has {rest.rows} rows, where {due.num_rows} are due")
        _require_rows(f"{name}: the rest of a split", _read([rest], rows, draw.randint(1, 30)), due)


def _check_sample(name: str, feed: Feed, rows: pa.Table) -> None:
    whole = rows.to_pylist()
    for most in (7, 10_000):
        drawn, again = (_plain(feed.sample(most, seed=1).select(rows.column_names)) for _ in range(2))
        _require_rows(f"{name}: a sample of {most:,} rows, drawn again,", again, drawn)
        rest = iter(whole)
        if not all(row in rest for row in drawn.to_pylist()):
            raise FeedError(f"{name}: a sample of {most:,} rows differs from the feed, or has another order")
        if most > len(whole) > drawn.num_rows:
            raise FeedError(f"{name}: a sample of {most:,} rows has {drawn.num_rows:,} of {len(whole):,}")
    if whole and not feed.sample(7, seed=1, enough=lambda: True).num_rows:
        raise FeedError(f"{name}: a sample that is soon enough has no row")


def _pages(feed: Feed, split_rows: int) -> list[Page]:
    """All pages; of an open feed, those up to the first one without splits."""
    pages = [feed.poll(split_rows)]
    while pages[-1].position is not None and (pages[-1].splits or not feed.is_open):
        pages.append(feed.poll(split_rows, pages[-1].position))
    return pages


def _travelled(thing: T) -> T:
    copy: T = pickle.loads(pickle.dumps(thing))
    return copy


def _read(splits: Sequence[Split], like: pa.Table, batch_rows: int = 50) -> pa.Table:
    batches = [batch for split in splits for batch in split.batches(batch_rows)]
    if any(batch.num_rows > batch_rows for batch in batches):
        raise FeedError(f"a batch has {max(batch.num_rows for batch in batches)} rows, and {batch_rows} were asked for")
    return _plain(pa.Table.from_batches(batches)) if batches else like.slice(0, 0)


def _plain(table: pa.Table) -> pa.Table:
    kinds = [each.value_type if pa.types.is_dictionary(each) else each for each in table.schema.types]
    return table.cast(pa.schema(list(zip(table.schema.names, kinds, strict=True))))


def _require_rows(what: str, found: pa.Table, due: pa.Table) -> None:
    if found.schema.names != due.schema.names or found.schema.types != due.schema.types:
        raise FeedError(f"{what} have the columns {found.schema.types}, where {due.schema.types} are due")
    if not found.equals(due):
        pairs = zip(found.to_pylist(), due.to_pylist(), strict=False)
        number, (one, other) = next((pair for pair in enumerate(pairs) if pair[1][0] != pair[1][1]), (0, ("", "")))
        differ = f"row {number:,} is {one}, where {other} is due" if one else "the rows that they share are equal"
        raise FeedError(f"{what} have {found.num_rows:,} rows of {due.num_rows:,}: {differ}")
