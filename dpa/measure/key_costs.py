"""What a record costs by its key: the seconds of the last quanta, explained by the keys in them.

Stepwise least squares: a quantum of n records of which n_k have key k takes s (n + sum d_k n_k) seconds, where s is the
time of a usual record and 1 + d_k how many times as long a record of key k takes. At first all keys cost the same. The
key that explains most of what is left unexplained gets a cost of its own if chance cannot explain as much, and so on.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpa.measure.load import Records
from dpa.routing.hashing import Hashes

_QUANTA = 64  # how many quanta are looked at: the last ones
_FEWEST = 10  # with fewer, nothing is said
_KEPT = 0.01  # a key is counted in a quantum if it has this part of its records
_FREQUENT = 0.02  # a key may stand out that has this part of all records
_OFTEN = 6  # quanta that it must be in as well: one that took long for another reason is not explained by its keys
_MOST = 8  # most keys that stand out

_STANDS_OUT = 5.0
"""Standard errors by which a key's cost must differ from the usual: of some dozens of keys, none does by chance."""

_LEAST = 0.5  # and by this part of the usual
_SAME = 1e-6  # counts that are in proportion to those of other keys but for this part of their squares are the same

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Quantum:
    """A quantum of `total` records that took `seconds`; `records` of its frequent keys alone."""

    hashes: Hashes
    records: Records
    total: float
    seconds: float


class KeyCosts:
    """One reducer's estimates."""

    def __init__(self) -> None:
        self._quanta: deque[_Quantum] = deque(maxlen=_QUANTA)
        self._found: tuple[float | None, Mapping[int, float]] | None = (None, {})

    def observe(self, hashes: Hashes, records: Records, seconds: float) -> None:
        """A quantum with `records` records of each key took `seconds`; shapes (keys,), at least one record in all."""
        total = float(records.sum())
        kept = records >= _KEPT * total
        self._quanta.append(_Quantum(hashes[kept], records[kept], total, seconds))
        self._found = None

    def found(self) -> tuple[float | None, Mapping[int, float]]:
        """The seconds of a usual record, and how many times as long a record takes of each key that stands out; None
        and nothing if none does."""
        if self._found is None:
            self._found = self._explained() if len(self._quanta) >= _FEWEST else (None, {})
        return self._found

    def _explained(self) -> tuple[float | None, Mapping[int, float]]:
        keys, counts = _counts(self._quanta)
        totals = np.array([quantum.total for quantum in self._quanta])
        seconds = np.array([quantum.seconds for quantum in self._quanta])
        weights = 1 / np.sqrt(totals)  # the variance of a quantum's seconds is taken to grow with its records
        totals, counts, seconds = totals * weights, counts * weights[:, np.newaxis], seconds * weights
        chosen = _stepwise(totals, counts, seconds)
        design = np.column_stack([totals, counts[:, chosen]])
        usual, *extras = np.linalg.lstsq(design, seconds, rcond=None)[0].tolist()
        costs = {
            int(keys[key]): 1 + extra / usual
            for key, extra in zip(chosen, extras, strict=True)
            if usual > 0 and extra > -usual and abs(extra) > _LEAST * usual
        }
        return (usual, costs) if costs else (None, {})


def _counts(quanta: deque[_Quantum]) -> tuple[Hashes, Matrix]:
    """The keys that may stand out, and their records in each quantum; shapes (keys,), (quanta, keys)."""
    sizes = [len(quantum.hashes) for quantum in quanta]
    hashes: Hashes = np.concatenate([quantum.hashes for quantum in quanta])
    found, key = np.unique(hashes, return_inverse=True)
    records = np.concatenate([quantum.records for quantum in quanta])
    at = np.repeat(np.arange(len(sizes)), sizes) * len(found) + key
    counts: Matrix = np.bincount(at, records, len(sizes) * len(found)).astype(np.float64)
    counts = counts.reshape(len(sizes), len(found))
    frequent = counts.sum(axis=0) >= _FREQUENT * sum(quantum.total for quantum in quanta)
    candidates = frequent & ((counts > 0).sum(axis=0) >= _OFTEN)
    candidate_keys: Hashes = found[candidates]
    return candidate_keys, counts[:, candidates]


def _stepwise(totals: Records, counts: Matrix, seconds: Records) -> list[int]:
    """The keys that stand out, by position, each the one that explains most of what is left by those before."""
    chosen: list[int] = []
    squares = (counts**2).sum(axis=0)
    explained = totals
    while len(chosen) < _MOST:
        # what is left of all once the column that was explained last is taken out (Gram and Schmidt)
        unit = explained / np.linalg.norm(explained)
        counts = counts - np.outer(unit, unit @ counts)
        seconds = seconds - unit * (unit @ seconds)
        left = (counts**2).sum(axis=0)
        distinct = left > _SAME * squares
        extras = np.divide(seconds @ counts, left, out=np.zeros_like(left), where=distinct)
        gains = extras**2 * left
        if not len(gains):
            break
        # Of two keys that explain as much, one being dear is likelier than all the others being cheap.
        best = int(np.argmax(gains * np.where(extras > 0, 1 + _SAME, 1.0)))
        freedom = len(seconds) - len(chosen) - 2
        variance = max(float(seconds @ seconds - gains[best]), 0.0) / freedom
        if gains[best] <= max(_STANDS_OUT**2 * variance, _SAME * float(seconds @ seconds)):
            break
        chosen.append(best)
        explained = counts[:, best]
    return chosen
