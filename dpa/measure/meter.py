"""A reducer's load meter: the records that arrive and those that are queued, by token and for hot keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from dpa.measure.hot_keys import HotKeys
from dpa.measure.load import KeyLoad, KeySample, Records, TokenLoad
from dpa.routing.hashing import Hashes, hash_key
from dpa.routing.keys import to_python
from dpa.routing.table import RoutingTable

_MIN_SECONDS = 0.1
"""The shortest time that a rate is taken over: a burst is no rate."""

_MAX_HALF_LIVES = 60.0
_SETTLED = 20.0
"""After this many half-lives it makes no difference when counting began."""


class LoadMeter:
    """Measures one reducer. Rates are of records that came straight from mappers: other reducers have already counted
    those that they forward."""

    def __init__(self, table: RoutingTable, *, half_life: float, hot_keys: int) -> None:
        """Records that came `half_life` seconds ago count half; at most `hot_keys` keys are named."""
        self._half_life = half_life
        self._named = hot_keys
        self._hot = HotKeys(half_life)
        self._began: float | None = None
        self._table = table
        self._weighted = np.zeros(len(table.positions))
        self._counted_from = 0.0
        self._ended = False

    def end(self) -> None:
        """Mappers will send no more records: all rates are 0 from now on."""
        self._ended = True

    def arrived(self, sample: KeySample, now: float) -> None:
        """Count records that came from a mapper."""
        if self._began is None:
            self._began = self._counted_from = now
        np.add.at(self._weighted, self._table.tokens_of(sample.hashes), sample.records * self._weight(now))
        self._hot.add(to_python(sample.keys), sample.records.tolist(), now - self._began)

    def rebase(self, table: RoutingTable, now: float) -> None:
        """Measure by another table; the rates by token begin anew, those of keys go on."""
        self._table = table
        self._weighted = np.zeros(len(table.positions))
        self._counted_from = now

    def measure(self, queue: Sequence[KeySample], now: float) -> TokenLoad:
        """The load as of `now`, with samples of all queued blocks."""
        hashes = np.concatenate([sample.hashes for sample in queue]) if queue else np.empty(0, dtype=np.uint32)
        records = np.concatenate([sample.records for sample in queue]) if queue else np.empty(0)
        queued = np.zeros(len(self._weighted))
        np.add.at(queued, self._table.tokens_of(hashes), records)
        rates = self._weighted / self._weight(now) / self._effective_seconds(now - self._counted_from)
        rates *= not self._ended
        used = np.flatnonzero((queued > 0) | (rates > 0))
        hot = self._hot_keys(hashes, records, now)
        return TokenLoad(self._table.positions[used], queued[used], rates[used], hot)

    def _hot_keys(self, hashes: Hashes, records: Records, now: float) -> tuple[KeyLoad, ...]:
        if self._began is None:
            return ()
        seconds = self._effective_seconds(now - self._began)
        found = self._hot.top(self._named, now - self._began)
        of_each = _queued_of([hash_key(item.key, self._table.seed) for item in found], hashes, records)
        scale = 0.0 if self._ended else 1 / seconds
        return tuple(
            KeyLoad(item.key, where, queued, item.records * scale, item.lower * scale, item.upper * scale)
            for item, (where, queued) in zip(found, of_each, strict=True)
        )

    def _weight(self, now: float) -> float:
        """The count of a record that comes now (forward decay, as in `HotKeys`)."""
        half_lives = (now - self._counted_from) / self._half_life
        if half_lives > _MAX_HALF_LIVES:
            self._weighted *= 2.0 ** -min(half_lives - _SETTLED, 1000.0)
            self._counted_from, half_lives = now - _SETTLED * self._half_life, _SETTLED
        return float(2.0**half_lives)

    def _effective_seconds(self, seconds: float) -> float:
        """The decayed length of a time: the decayed count of one record a second."""
        seconds = max(seconds, _MIN_SECONDS)
        return float(self._half_life / np.log(2) * (1 - 2.0 ** (-seconds / self._half_life)))


def _queued_of(wanted: list[int], hashes: Hashes, records: Records) -> Iterable[tuple[int, float]]:
    """Each wanted hash with the number of its records."""
    order = np.argsort(np.array(wanted, dtype=np.uint32), kind="stable")
    ascending = np.array(wanted, dtype=np.uint32)[order]
    at = np.searchsorted(ascending, hashes)
    inside = at < len(ascending)
    at, hashes, records = at[inside], hashes[inside], records[inside]
    hit = ascending[at] == hashes if len(ascending) else np.zeros(0, dtype=bool)
    found = np.zeros(len(wanted))
    np.add.at(found, order[at[hit]], records[hit])
    return zip(wanted, found.tolist(), strict=True)
