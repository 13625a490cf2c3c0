"""What is measured of a stage's load: by its senders, what they offer; by its tasks, how they cope with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from dpa.routing.hashing import Hashes
from dpa.routing.keys import Key

Records = npt.NDArray[np.float64]


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
        """Of no records."""
        return KeySample(np.empty(0, dtype=np.uint32), np.empty(0), 0.0)

    @staticmethod
    def union(samples: Iterable[KeySample]) -> KeySample:
        """All samples as one. Its rows are those that an even sample of the same accuracy would have."""
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
        """All records."""
        return float(self.records.sum())

    def of(self, hashes: Hashes) -> Records:
        """The records of each of these hashes, 0 of one that is not among the sample's; shape of `hashes`."""
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
        evidence: the number of records that it rests on, older ones counting less.
        busy: the part of the time since the last report in which user code worked, 0 to 1.
        waited: the part of that in which it waited for a processor, 0 to 1.
        cores_busy: the part of its node's processor time that was used of late, by whomever, 0 to 1.
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
        """The queueing delay: the time it takes to process the queue, in seconds."""
        return self.queue * (self.service_seconds or 0.0)
