"""Persons, auctions and bids of the Nexmark benchmark (Tucker, Tufte, Papadimos, Maier: NEXMark, 2002), generated: of
fifty events one is a person who comes, three are auctions that are opened, the others bids. Half of the bids are for a
hot auction, and most auctions are a hot seller's. For `experiments.nexmark`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpa import Generator, batch_filter, batch_mapper

Numbers = npt.NDArray[np.int64]

PERSONS, AUCTIONS, BIDS = 1, 3, 46
"""Of one round of events, which come in this order."""

ROUND = PERSONS + AUCTIONS + BIDS

_BEGAN = 1_700_000_000_000_000
"""When the first event happened, in microseconds since 1970."""

_ACTIVE, _HOT_EVERY = 1_000, 100
"""How many of the newest auctions get bids, and of persons open auctions; the newest hundredth is hot."""

_TIME = pa.timestamp("us", tz="UTC")
_FIRST, _CITIES = ("Ann", "Bob", "Cid", "Dee", "Eva", "Fay"), ("Bend", "Boise", "Kent", "Mesa", "Napa", "Cody")
_STATES = ("OR", "ID", "WA", "AZ", "CA", "WY")


class _Events(Generator):
    """What the three inputs have in common: the same clock.

    Args:
        per_second: events of all kinds together.
        disorder: seconds by which an event may have happened before the one that came before it.
    """

    def __init__(self, per_second: int = 10_000, disorder: float = 0.0) -> None:
        self.per_second = per_second
        self.disorder = disorder

    def _times(self, events: Numbers, random: np.random.Generator) -> pa.Array:
        early = random.integers(0, int(self.disorder * 1e6) + 1, len(events))
        return pa.array(_BEGAN + events * 1_000_000 // self.per_second - early).cast(_TIME)


class Persons(_Events):
    """Persons: `id`, `name`, `city`, `state`, `time`."""

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        ids = np.arange(start, start + rows)
        return pa.record_batch(
            {
                "id": ids,
                "name": _drawn(_FIRST, rows, random),
                "city": _drawn(_CITIES, rows, random),
                "state": _drawn(_STATES, rows, random),
                "time": self._times(ids * ROUND, random),
            }
        )


class Auctions(_Events):
    """Auctions: `id`, `seller`, `category`, `reserve` in cents, `opened`, `expires`."""

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        ids = np.arange(start, start + rows)
        events = ids // AUCTIONS * ROUND + PERSONS + ids % AUCTIONS
        opened = self._times(events, random)
        lasts = pa.array(random.integers(1, 2 * _ACTIVE * ROUND // AUCTIONS, rows) * 1_000_000 // self.per_second)
        return pa.record_batch(
            {
                "id": ids,
                "seller": _recent(events // ROUND, 0.75, random),
                "category": random.integers(10, 15, rows),
                "reserve": _prices(rows, random),
                "opened": opened,
                "expires": pc.add(opened, lasts.cast(pa.duration("us"))),
            }
        )


class Bids(_Events):
    """Bids: `auction`, `bidder`, `price` in cents, `time`."""

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        numbers = np.arange(start, start + rows)
        events = numbers // BIDS * ROUND + PERSONS + AUCTIONS + numbers % BIDS
        return pa.record_batch(
            {
                "auction": _recent(events // ROUND * AUCTIONS + AUCTIONS - 1, 0.5, random),
                "bidder": _recent(events // ROUND, 0.75, random),
                "price": _prices(rows, random),
                "time": self._times(events, random),
            }
        )


def _recent(newest: Numbers, hot: float, random: np.random.Generator) -> Numbers:
    """Ids of what there is at each event, of which `newest` is the last; a part `hot` of them are the hot one's."""
    any_ = np.maximum(newest - random.integers(0, _ACTIVE, len(newest)), 0)
    return np.where(random.random(len(newest)) < hot, newest // _HOT_EVERY * _HOT_EVERY, any_)


def _prices(rows: int, random: np.random.Generator) -> Numbers:
    return np.floor(100 * 10 ** (random.random(rows) * 6)).astype(np.int64)


def _drawn(texts: tuple[str, ...], rows: int, random: np.random.Generator) -> pa.Array:
    return pa.DictionaryArray.from_arrays(random.integers(0, len(texts), rows).astype(np.int32), list(texts)).cast(
        pa.string()
    )


@batch_mapper
def in_euros(bids: pa.RecordBatch) -> pa.RecordBatch:
    """Query 1: bids with their price in euros' cents."""
    euros = pc.divide(pc.multiply(bids.column("price"), 908), 1000)
    return bids.set_column(bids.schema.get_field_index("price"), "price", euros)


@batch_filter
def is_chosen(bids: pa.RecordBatch) -> pa.BooleanArray:
    """Query 2: the bids for some auctions."""
    auction = bids.column("auction")
    return pc.equal(pc.subtract(auction, pc.multiply(pc.divide(auction, 123), 123)), 0)


@batch_filter
def is_near(persons: pa.RecordBatch) -> pa.BooleanArray:
    """Query 3: the persons of three states."""
    return pc.is_in(persons.column("state"), pa.array(["OR", "ID", "CA"]))


@batch_filter
def is_of_category_10(auctions: pa.RecordBatch) -> pa.BooleanArray:
    """Query 3: the auctions of one category."""
    return pc.equal(auctions.column("category"), 10)


@batch_filter
def is_in_time(bids: pa.RecordBatch) -> pa.BooleanArray:
    """Queries 4 and 6: the bids that came while their auction was open."""
    time = bids.column("time")
    return pc.and_(pc.greater_equal(time, bids.column("opened")), pc.less_equal(time, bids.column("expires")))
