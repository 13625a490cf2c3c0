"""What is measured of a stage's load: by its senders, what they offer; by its tasks, how they cope with it, and what
they send."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from dpa.routing.hashing import Hashes
from dpa.routing.keys import Key

R = TypeVar("R", bound=Hashable)

Records = npt.NDArray[np.float64]

_SURE = 10.0
"""A bound of a share fails with a probability of exp(-10) at most: of a hundred keys, none does 99 times of 100."""


@dataclass(frozen=True, eq=False)
class KeySample:
    """The hashes of keys, and about how many records have each.

    Attributes:
        hashes: each once, ascending, shape (keys,).
        records: shape (keys,); an estimate where records were sampled.
        rows: how many records were looked at: what the estimates rest on.
    """

    hashes: Hashes
    records: Records
    rows: float

    @staticmethod
    def empty() -> KeySample:
        return KeySample(np.empty(0, dtype=np.uint32), np.empty(0), 0.0)

    @staticmethod
    def union(samples: Iterable[KeySample]) -> KeySample:
        """`rows` of the union are those of an even sample with the same accuracy."""
        parts = [sample for sample in samples if len(sample.hashes)]
        if len(parts) <= 1:
            return parts[0] if parts else KeySample.empty()
        hashes, at = np.unique(np.concatenate([part.hashes for part in parts]), return_inverse=True)
        records = np.bincount(at, np.concatenate([part.records for part in parts]), len(hashes)).astype(np.float64)
        totals = [part.total for part in parts]
        errors = sum(total**2 / part.rows for total, part in zip(totals, parts, strict=True) if part.rows)
        return KeySample(hashes, records, sum(totals) ** 2 / errors if errors else 0.0)

    @property
    def total(self) -> float:
        return float(self.records.sum())

    def of(self, hashes: Hashes) -> Records:
        """The records of each hash, 0 for a hash that is not in the sample; shape of `hashes`."""
        if not len(self.hashes):
            return np.zeros(len(hashes))
        at = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return np.where(self.hashes[at] == hashes, self.records[at], 0.0)

    def scaled(self, records: float) -> KeySample:
        """The same keys in the same proportions, with `records` records in all."""
        total = self.total
        return replace(self, records=self.records * (records / total)) if total else self

    def faded(self, share: float) -> KeySample:
        """With this share of its weight as evidence."""
        return KeySample(self.hashes, self.records * share, self.rows * share)

    def bounds(self, share: float) -> tuple[float, float]:
        """Between which a key's share (0 to 1) of all records lies, as the sample, which is not empty, has `share`: by
        the inequalities of Bernstein and Chernoff, as the normal approximation fails where a key came a few times."""
        if share > 0.5:
            low, high = self.bounds(1 - share)
            return 1 - high, 1 - low
        unit = _SURE / self.rows
        below = math.sqrt(4 / 9 * unit**2 + 2 * unit * share) - 2 / 3 * unit
        above = math.sqrt(unit**2 + 2 * unit * share) + unit
        return max(0.0, share - below), min(1.0, share + above)


@dataclass(frozen=True)
class MeasuredKey:
    """One of the most frequent keys of the records that a stage is offered of late.

    Attributes:
        key: for people, cut to a readable length.
        share: of these records, 0 to 1; estimated from samples.
        low, high: bounds of the share.
        task: the number of the task that owns the key.
        split: whether other tasks process some of its records too.
    """

    key: str
    share: float
    low: float
    high: float
    task: int
    split: bool = False


@dataclass(frozen=True, eq=False)
class Offered:
    """What one sender has offered a stage since its last report: records made, whether or not credit lets them go.

    Attributes:
        seconds: since then.
        sample: their keys; in all as many records as were offered.
        names: the keys that are frequent among them, by hash.
        ended: whether the sender will offer no more.
    """

    seconds: float
    sample: KeySample
    names: Mapping[int, Key] = field(default_factory=dict)
    ended: bool = False


@dataclass(frozen=True, eq=False)
class Load:
    """A reducer's load.

    Attributes:
        queue: records accepted and not yet processed.
        version: number of the routing table held when that was measured.
        service_seconds: measured time to process one record; None before the first.
        usual_seconds: the same of a record whose key is not among `costs`; None where that is not distinguished.
        error: the standard error of that time, in seconds; infinite before there are two measurements.
        evidence: the number of records that it rests on, where older ones count less.
        busy: the part of the time since the last report in which user code worked, 0 to 1.
        waited: the part of that in which it waited for a processor, 0 to 1.
        cores_busy: the part of its node's processor time that any process used of late, 0 to 1.
        forwarded_out, forwarded_in: records forwarded to other reducers so far, and accepted from them. The difference
            of the sums over all reducers is on its way between two of them.
        queued: the keys of the queue; None unless the strategy needs them.
        costs: for keys that are dearer or cheaper than others, how many times as long as usual a record takes.
    """

    queue: int
    version: int
    service_seconds: float | None = None
    usual_seconds: float | None = None
    error: float = 0.0
    evidence: float = 0.0
    busy: float = 0.0
    waited: float = 0.0
    cores_busy: float = 0.0
    forwarded_out: int = 0
    forwarded_in: int = 0
    queued: KeySample | None = None
    costs: Mapping[int, float] = field(default_factory=dict)

    def aged(self, seconds: float, arrived: KeySample) -> Load:
        """The load expected `seconds` later: records have arrived, and the reducer has worked."""
        if seconds <= 0:
            return self
        done = seconds / self.service_seconds if self.service_seconds else 0.0
        queue = max(0.0, self.queue + arrived.total - done)
        queued = None if self.queued is None else KeySample.union([self.queued, arrived]).scaled(queue)
        return replace(self, queue=round(queue), queued=queued)

    @property
    def delay(self) -> float:
        """Seconds that it takes to process the queue."""
        return self.queue * (self.service_seconds or 0.0)


@dataclass(frozen=True)
class Traffic:
    """Messages, the records in them, and their bytes."""

    messages: int = 0
    records: int = 0
    bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.messages + other.messages, self.records + other.records, self.bytes + other.bytes)


class TrafficMeter(Generic[R]):
    """What was sent so far, by receiver: three additions a message."""

    def __init__(self) -> None:
        self._found: dict[R, list[int]] = {}

    def sent(self, receiver: R, records: int, size: int) -> None:
        sums = self._found.setdefault(receiver, [0, 0, 0])
        sums[0] += 1
        sums[1] += records
        sums[2] += size

    @property
    def receivers(self) -> list[R]:
        """In the order of the first message."""
        return list(self._found)

    def merge(self, receivers: Iterable[R], into: R) -> None:
        for receiver in receivers:
            sums = zip(self._found.get(into, (0, 0, 0)), self._found.pop(receiver), strict=True)
            self._found[into] = [one + other for one, other in sums]

    def found(self) -> Mapping[R, Traffic]:
        return {receiver: Traffic(*sums) for receiver, sums in self._found.items()}
