"""Groupings that go by what reducers report: consistent grouping (CG), and W-Choices for reducers of unequal speed.

Both cut the keys into equal parts and give each reducer parts in proportion to its capacity."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dpa.routing.groupings.base import CapacityRequest, Grouping, Signal
from dpa.routing.groupings.bounded import PooledChoicesGrouping
from dpa.routing.groupings.choices import WChoicesGrouping
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners

Weights = npt.NDArray[np.float64]

SLOTS = 64
"""Of W-Choices: slots for each reducer."""

SLACK = 4e-5
"""Of W-Choices: how far a reducer may be ahead of the least loaded before tail keys leave it, as a share of all records
sent."""

_CHANGED = 0.1  # a measured capacity replaces the assumed one when it differs by this share

_MIN_CAPACITY = 0.01
"""Of the mean, so that one record weighs no more than a hundred: the effect of a wrong measurement soon passes."""

_MIN_UTILISATION = 0.01  # a reducer that is hardly utilised is not given everything in one step

_BAND = 0.04
"""A reducer may differ from its target by this share of its virtual workers, and by what chance alone explains: four
times the standard deviation of measurements that are off by 1 %."""

_NEVER = -2


class ReportedSlots:
    """The newest time slot that each reducer has reported: many acknowledgements carry the same signal, and some
    decisions need one of every reducer."""

    def __init__(self, reducers: int) -> None:
        self._slots = np.full(reducers, _NEVER)
        self._complete = _NEVER

    def is_news(self, reducer: int, slot: int) -> bool:
        """Record a reducer's slot. Returns whether that is its newest."""
        if slot <= self._slots[reducer]:
            return False
        self._slots[reducer] = slot
        return True

    def is_complete(self) -> bool:
        """Whether all have reported a newer slot than when this last returned true."""
        least = int(self._slots.min())
        if least <= self._complete:
            return False
        self._complete = least
        return True


def apportion(weights: Weights, parts: int) -> npt.NDArray[np.int64]:
    """The number of the `parts` that each reducer gets: at least one, else by its weight, largest remainders first;
    shape of `weights`."""
    free = parts - len(weights)
    exact = weights / weights.sum() * parts
    above = np.maximum(exact - 1, 0)
    if above.sum() == 0:
        above = np.ones_like(above)
    due = above / above.sum() * free
    whole = np.floor(due).astype(np.int64)
    remainder = np.argsort(whole - due, kind="stable")[: free - int(whole.sum())]
    whole[remainder] += 1
    shares: npt.NDArray[np.int64] = whole + 1
    return shares


def reassign(owners: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Change `owners` in place so that each reducer has the number of parts wanted. Returns the parts that moved: no
    more than must, those with the highest numbers of each reducer that has too many."""
    surplus = np.bincount(owners, minlength=len(wanted)) - wanted
    given = [np.flatnonzero(owners == reducer)[-surplus[reducer] :] for reducer in np.flatnonzero(surplus > 0)]
    if not given:
        return np.empty(0, dtype=np.int64)
    moved = np.concatenate(given)
    owners[moved] = np.repeat(np.arange(len(wanted)), np.maximum(-surplus, 0))
    return moved


class WeightedWChoicesGrouping(WChoicesGrouping):
    """W-Choices by capacity (ours): the least (load + 1) / capacity, and tail keys placed by capacity.

    Three things differ from W-Choices. Capacities, of mean 1, are estimated from the service times that reducers
    report; all are 1 until then. A tail key has two equal slots, and reducers hold slots in proportion to their
    capacity: else most tail keys of a cluster with few fast machines would have two slow ones to choose from. And a
    reducer that is ahead gives up no more tail keys to their second slot than it must, always the same ones: most tail
    keys have one reducer, not two."""

    def __init__(self, reducers: int, capacities: Weights | None = None) -> None:
        """`capacities`: to start with, in any unit, shape (reducers,)."""
        self._moved = 0
        super().__init__(reducers, reducers * SLOTS)
        self._slack = SLACK
        self._seconds = np.zeros(reducers)
        self._reported = ReportedSlots(reducers)
        if capacities is not None:
            self._rely_on(capacities / capacities.mean())

    @property
    def moved(self) -> int:
        return self._moved

    def observe(self, reducer: int, signal: Signal) -> None:
        if not signal.service_seconds or not self._reported.is_news(reducer, signal.slot):
            return
        self._seconds[reducer] = signal.service_seconds
        if self._reported.is_complete():  # new service times among old ones would give shares that no reducer has
            speeds = self._seconds.min() / self._seconds
            found = np.maximum(speeds / speeds.mean(), _MIN_CAPACITY)
            if np.any(np.abs(found * self._work - 1) > _CHANGED):
                self._rely_on(found)

    def _rely_on(self, capacities: Weights) -> None:
        super()._rely_on(capacities)
        self._moved += len(reassign(self._slot_owners, apportion(capacities, len(self._slot_owners))))


class PairingQueues:
    """Pairing of busy and idle reducers at one source (CG paper, V-B): those that wait to give up a virtual worker, and
    those that wait to gain one, first come, first served. None waits in both, or twice."""

    def __init__(self) -> None:
        self._waiting: dict[CapacityRequest, dict[int, None]] = {
            CapacityRequest.DECREASE: {},
            CapacityRequest.INCREASE: {},
        }

    def pair(self, reducer: int, request: CapacityRequest, may_give: Callable[[int], bool]) -> tuple[int, int] | None:
        """Take in a reducer's request. Returns the giver and the taker of a virtual worker, or None if the reducer now
        waits, or requests nothing.

        A pair has been served and must ask again; a reducer that asks again before keeps its position in the queue. A
        reducer that may not give does not wait."""
        wants = request is CapacityRequest.INCREASE or (request is CapacityRequest.DECREASE and may_give(reducer))
        for queued, queue in self._waiting.items():  # one that has changed its mind leaves the other queue
            if not wants or queued is not request:
                queue.pop(reducer, None)
        if not wants:
            return None
        others = self._waiting[
            CapacityRequest.INCREASE if request is CapacityRequest.DECREASE else CapacityRequest.DECREASE
        ]
        for other in list(others):
            del others[other]
            giver, taker = (reducer, other) if request is CapacityRequest.DECREASE else (other, reducer)
            if may_give(giver):  # one that waits may have given all it can meanwhile, and waits no longer
                self._waiting[request].pop(reducer, None)
                return giver, taker
        self._waiting[request][reducer] = None
        return None


class ConsistentGrouping(Grouping):
    """CG (CG paper, section V; its workers are our reducers): keys to equal virtual workers by an `inner` grouping,
    virtual workers to reducers by their signals, at every source at its own time.

    Every reducer starts with the same number of virtual workers, and always keeps one. A virtual worker that moves
    takes nothing along: queued records stay where they are, and only later ones go to its new reducer.

    With `proportional` (ours) a reducer's target is its share of the records divided by its utilisation, and all
    virtual workers that are due move at once, where the paper moves one a signal."""

    def __init__(self, reducers: int, inner: Grouping, *, proportional: bool = False) -> None:
        """`inner` groups keys onto `inner.reducers` virtual workers, a multiple of `reducers`; pooled choices learn
        to which reducer each is assigned."""
        super().__init__(reducers)
        if inner.reducers % reducers:
            raise ValueError(f"{reducers} reducers cannot start with equal parts of {inner.reducers} virtual workers")
        self._inner = inner
        self._proportional = proportional
        self._owners = np.arange(inner.reducers) // (inner.reducers // reducers)
        self._of_reducer = [np.flatnonzero(self._owners == reducer).tolist() for reducer in range(reducers)]
        self._queues = PairingQueues()
        self._reported = ReportedSlots(reducers)
        self._utilisations = np.zeros(reducers)
        self._records = np.zeros(reducers)
        self._moved = 0
        self._regroup()

    @property
    def virtual_workers(self) -> tuple[int, ...]:
        return tuple(np.bincount(self._owners, minlength=self.reducers).tolist())

    @property
    def moved(self) -> int:
        return self._moved

    def choose(self, hashes: Hashes) -> Owners:
        return self._owners.take(self._inner.choose(hashes)).astype(np.int32)

    def observe(self, reducer: int, signal: Signal) -> None:
        if not self._reported.is_news(reducer, signal.slot):
            return
        self._utilisations[reducer], self._records[reducer] = signal.utilisation, signal.records
        if self._proportional:
            self._move_in_proportion()
            return
        paired = self._queues.pair(reducer, signal.request, lambda other: len(self._of_reducer[other]) > 1)
        if paired is not None:
            giver, taker = paired
            # The one that the giver gained last: those that have been there for long stay.
            virtual_worker = self._of_reducer[giver].pop()
            self._of_reducer[taker].append(virtual_worker)
            self._owners[virtual_worker] = taker
            self._moved += 1
            self._regroup()

    def _regroup(self) -> None:
        if isinstance(self._inner, PooledChoicesGrouping):
            self._inner.regroup(self._owners)

    def _move_in_proportion(self) -> None:
        """Once every reducer has reported a new slot, give each its target, if any is further from it than `_BAND` and
        chance explain.

        A reducer's capacity in a slot is the records that came, divided by its utilisation. All sources see the same
        numbers, so they come to the same targets, even if they differed before."""
        if not self._reported.is_complete():
            return
        busy = self._records > 0
        if not busy.any() or not self._utilisations.any():
            return
        used = np.maximum(self._utilisations / self._utilisations.max(), _MIN_UTILISATION)
        capacities = np.divide(self._records, used, out=np.zeros(self.reducers), where=busy)
        capacities[~busy] = capacities[busy].mean()  # nothing was measured of these
        wanted = apportion(capacities, len(self._owners))
        have = np.bincount(self._owners, minlength=self.reducers)
        chance = 1 / np.sqrt(np.maximum(self._records, 1))
        if np.any(np.abs(wanted - have) > 1 + have * (_BAND + chance)):
            self._moved += len(reassign(self._owners, wanted))
            self._regroup()
