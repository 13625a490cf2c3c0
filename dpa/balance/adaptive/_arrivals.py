"""What all senders offer a stage: how many records a second, with which keys, and since when it has been so.

Keys are estimated from as much of the past as is like the present. A change of the keys starts the estimate anew, so it
is quick where keys drift and precise where they do not. Where one change follows another, as in sorted input, the last
keys say nothing of the next: then those are expected that are frequent all along and came lately too, and of the others
nothing but that they lie evenly on the circle."""

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from dpa.measure.load import KeySample, Offered, Records
from dpa.routing.hashing import Hashes
from dpa.routing.keys import Key

_MEMORY = 0.95
"""How much the evidence of the present keys counts one look later: half after 3.4 s of looks a quarter second apart."""

_LONG = 40  # after this many looks without a change the keys are taken to stay
_LONG_MEMORY = 0.995  # the same of the evidence of the whole stream
_PACE_SECONDS = 0.5  # seconds after which what a sender has offered counts half in its rate

_LEAST_SECONDS = 0.25
"""A sender's rate is a mean over this time at least: its first blocks come at once, to fill the queues."""

_WHOLE_ARCS = 256
"""Of the whole stream, keys that have less than this part of the records count together with their neighbours."""

_ARCS_PER_TOKEN = 16  # of the present keys, those that have less than this part of a token's even share

_LEAST_ARCS = 1_024
"""Or than this part of all where tokens are few: together with its neighbours none must look like one frequent key."""

_FREQUENT, _TIMES = 0.02, 8
"""Keys with at least this part of the records, and this number of looks at them, are compared one by one."""

_ARCS = 16  # equal arcs of the circle by which the others are compared

_HOTTEST, _LEAST_HOT = 10, 0.01
"""How many keys are shown, and their least share: senders name a rarer one by chance alone."""

_EVENLY = 4_096  # hashes that stand for keys which lie evenly on the circle
_MOST_FRESH = 1_024  # reports between two looks that are kept one by one
_SIGNIFICANT = 5.0  # standard deviations by which chi-square must exceed what chance gives, where keys have changed
_MATERIAL = 0.1  # and the part of the records that must have other keys


class Arrivals:
    """The evidence so far, renewed at each look.

    Attributes:
        names: the frequent keys by hash, and those that are kept.
        sample: the keys to expect, in their proportions; the total has no meaning.
        latest: what came between the last two looks.
        changes: how often the keys have changed.
        hottest: the most frequent of the present keys, each with its hash, its share, and the bounds of that.
        last_words: records of all last reports: those of senders that have ended.
    """

    def __init__(self, tokens: int) -> None:
        """`tokens`: of the stage's table, about."""
        self._arcs = max(_ARCS_PER_TOKEN * tokens, _LEAST_ARCS)
        self.names: dict[int, Key] = {}
        self._names: dict[int, Key] = {}
        self._kept: frozenset[int] = frozenset()
        self.sample = self.latest = KeySample.empty()
        self.changes = 0
        self.hottest: list[tuple[int, Key, float, float, float]] = []
        self.last_words = 0.0
        self._fresh: list[KeySample] = []
        self._paces: dict[Hashable, tuple[float, float]] = {}
        self._recent = self._whole = KeySample.empty()
        self._before: KeySample | None = None
        self._lasting = self._unchanged = 0

    def add(self, sender: Hashable, offered: Offered) -> None:
        records, seconds = self._paces.get(sender, (0.0, 0.0))
        fading = 2.0 ** -(offered.seconds / _PACE_SECONDS)
        self._paces[sender] = (records * fading + offered.sample.total, seconds * fading + offered.seconds)
        if offered.ended:
            del self._paces[sender]
            self.last_words += offered.sample.total
        self._fresh.append(offered.sample)
        self._names |= offered.names
        if len(self._fresh) > _MOST_FRESH:
            self._fresh = [_condensed(KeySample.union(self._fresh), self._arcs)]
            self._names = self._named(self._fresh[0], 0.0)

    def forget(self, sender: Hashable) -> None:
        self._paces.pop(sender, None)

    def expect(self, keys: KeySample, names: Mapping[int, Key]) -> None:
        """Take a sample of the stream, drawn before it began, as the first evidence of its keys."""
        self._fresh.append(keys)
        self._names |= names
        self.look()

    def keep(self, hashes: Iterable[int]) -> None:
        """Keep the names of these keys, if they are known, also when they are no longer frequent."""
        self._kept = frozenset(hashes)

    @property
    def rate(self) -> float:
        return sum(records / max(seconds, _LEAST_SECONDS) for records, seconds in self._paces.values())

    def look(self) -> None:
        fresh, self._fresh = KeySample.union(self._fresh), []
        if not fresh.rows:
            return
        fresh = fresh.scaled(fresh.rows)  # each record that was looked at counts alike, whenever it came
        if self._before is not None:  # the last change has lasted if what came now is like the keys after it
            self._lasting += 2 * _difference(fresh, self._recent) < _difference(fresh, self._before)
            self._before = None
        if self._recent.rows and has_changed(self._recent, fresh):
            self.changes += 1
            self._unchanged = 0
            self._before, self._recent = self._recent, fresh
        else:
            self._unchanged += 1
            self._recent = _condensed(KeySample.union([self._recent.faded(_MEMORY), fresh]), self._arcs)
        self._whole = _condensed(KeySample.union([self._whole.faded(_LONG_MEMORY), fresh]), _WHOLE_ARCS)
        self.latest = fresh
        self.sample = self._recent if self.is_steady else _persistent(self._whole, fresh)
        self.hottest = self._found_hottest()
        self._name()

    @property
    def is_steady(self) -> bool:
        """Whether the last keys say something of the next: at least half of the changes so far lasted, or there has
        been none for long."""
        judged = self.changes - (self._before is not None)
        return 2 * self._lasting >= judged - 1 or self._unchanged >= _LONG

    def _found_hottest(self) -> list[tuple[int, Key, float, float, float]]:
        recent = self._recent
        named = self._named(recent, recent.total * max(_LEAST_HOT, _TIMES / recent.rows))
        shares = recent.of(np.fromiter(named, dtype=np.uint32, count=len(named))) / recent.total
        most = sorted(zip(shares.tolist(), named.items(), strict=True), key=lambda found: -found[0])[:_HOTTEST]
        return [(hashed, key, share, *recent.bounds(share)) for share, (hashed, key) in most if share]

    def _name(self) -> None:
        sample = self.sample
        self.names = self._named(sample, _TIMES * sample.total / (sample.rows or 1.0))
        self._names = self._named(sample, 0.0)

    def _named(self, sample: KeySample, least: float) -> dict[int, Key]:
        """Of keys that have `least` records of a sample and more than none, and of those that are kept."""
        hashes = np.fromiter(self._names, dtype=np.uint32, count=len(self._names))
        enough = (sample.of(hashes) >= max(least, np.nextafter(0.0, 1.0))).tolist()
        named = zip(self._names.items(), enough, strict=True)
        return {hashed: key for (hashed, key), often in named if often or hashed in self._kept}


def _condensed(sample: KeySample, arcs: int) -> KeySample:
    """At most about twice as many keys as `arcs`: those with less than an even share of an arc are put together with
    their neighbours on the circle."""
    rare = sample.records * arcs < sample.total
    if np.count_nonzero(rare) <= arcs:
        return sample
    arc = sample.hashes[rare].astype(np.int64) * arcs >> 32
    records = np.bincount(arc, sample.records[rare], arcs).astype(np.float64)
    middles = ((2 * np.arange(arcs, dtype=np.int64) + 1 << 31) // arcs).astype(np.uint32)
    often = KeySample(sample.hashes[~rare], sample.records[~rare], sample.rows)
    return replace(KeySample.union([often, KeySample(middles, records, sample.rows)]), rows=sample.rows)


def _persistent(whole: KeySample, fresh: KeySample) -> KeySample:
    """What can be expected where keys come and go: those that are frequent in the whole stream and came lately too,
    and of the others nothing but that they lie evenly on the circle."""
    frequent = np.intersect1d(_frequent(whole), fresh.hashes)
    shares = np.minimum(_shares(whole, frequent), _shares(fresh, frequent))[: len(frequent)]
    others = np.arange(_EVENLY, dtype=np.uint32) * np.uint32(2**32 // _EVENLY)
    even = KeySample(others, np.full(_EVENLY, (1 - float(shares.sum())) / _EVENLY), whole.rows)
    return replace(KeySample.union([KeySample(frequent, shares, whole.rows), even]), rows=whole.rows)


def has_changed(before: KeySample, after: KeySample) -> bool:
    """Whether two samples are of different keys, by more than chance (chi-square) and by enough to matter."""
    expected, found = _binned(before, after)
    if 0.5 * float(np.abs(found - expected).sum()) < _MATERIAL:
        return False
    one, other = before.rows, after.rows
    used = (expected + found) > 0
    expected, found = expected[used], found[used]
    pooled = (one * expected + other * found) / (one + other) + 1 / min(one, other)  # rare keys make long tails
    chi_square = one * other / (one + other) * float(((found - expected) ** 2 / pooled).sum())
    freedom = max(len(found) - 1, 1)
    return (chi_square - freedom) / math.sqrt(2 * freedom) > _SIGNIFICANT


def _difference(one: KeySample, other: KeySample) -> float:
    """The part of the records that has other keys, 0 to 1."""
    first, second = _binned(one, other)
    return 0.5 * float(np.abs(first - second).sum())


def _binned(one: KeySample, other: KeySample) -> tuple[Records, Records]:
    """The shares of both in the same bins: the frequent keys of either, and arcs of the circle for the others."""
    frequent = np.union1d(_frequent(one), _frequent(other))
    return _shares(one, frequent), _shares(other, frequent)


def _frequent(sample: KeySample) -> Hashes:
    """The keys that are not frequent by chance: of many rare ones, some always come twice."""
    least = max(_FREQUENT * sample.total, _TIMES * sample.total / (sample.rows or 1.0))
    return sample.hashes[sample.records >= least]


def _shares(sample: KeySample, frequent: Hashes) -> Records:
    """The part of the records in each bin, single keys first."""
    bins = len(frequent) + (sample.hashes.astype(np.int64) * _ARCS >> 32)
    if len(frequent):
        at = np.minimum(np.searchsorted(frequent, sample.hashes), len(frequent) - 1)
        bins = np.where(frequent[at] == sample.hashes, at, bins)
    counts = np.bincount(bins, sample.records, len(frequent) + _ARCS)
    shares: Records = counts / (counts.sum() or 1.0)
    return shares
