"""Sources, and workers with unbounded queues, in virtual time: the same groupings and the same worker delegation as on
Ray, at tens of millions of records.

This is the model of the CG paper (section IV): no network, each worker serves its queue in order, a record takes 1 /
capacity of its worker. Unlike `dpa.simulation.cluster` it runs no protocol and no user code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dpa.balance.delegation import Delegation, DelegationOptions
from dpa.routing.compiled import compiled
from dpa.routing.groupings.base import Grouping
from dpa.routing.hashing import Hashes
from dpa.simulation.replication import Replication

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

LATENCY_STEP = 1.02
"""Latencies are counted in classes, each so many times as long as the one before."""

LEAST_LATENCY = 1e-6
_LATENCY_CLASSES = 1_400


@dataclass(frozen=True, eq=False)
class Arrivals:
    """What arrives in one time slot.

    Attributes:
        keys: the number of each record's key, shape (records,).
        times: when it arrives, in seconds, ascending; shape (records,).
        end: when the slot ends, in seconds.
    """

    keys: npt.NDArray[np.int32]
    times: Floats
    end: float


@dataclass(frozen=True)
class QueueSetup:
    """What to simulate.

    Attributes:
        hashes: the hash of each key, by number.
        grouping: makes the grouping of source number so and so.
        sources: how many there are; records go to them in turn.
        capacities: records a second that each worker can do, shape (workers,), from a record number on: the first
            entry's is 0.
        delegation: how workers judge themselves; None: they send no signals.
        pieces: a source hears the signals of a slot when the next one is a random number of such parts old.
        seed: of those.
    """

    hashes: Hashes
    grouping: Callable[[int], Grouping]
    sources: int
    capacities: tuple[tuple[int, Floats], ...]
    delegation: DelegationOptions | None = None
    pieces: int = 4
    seed: int = 0


@dataclass
class QueueHistory:
    """What happened: for each slot a row of one number for each worker, or one number.

    Attributes:
        ends: when each slot ended, in seconds.
        arrived: records sent to each worker.
        served: records that each worker has done.
        queues: its queue at the end of the slot, in records.
        latencies: mean latency of what it did, in seconds; NaN where it did nothing.
        capacities: records a second that it could do.
        memory: distinct keys of all workers so far, added up, by distinct keys.
        moved: how many virtual workers the sources have moved so far, added up.
        classes: of all latencies so far, how many fall in each class; see `latency_quantile`.
        longest: the longest latency so far, in seconds.
    """

    ends: list[float] = field(default_factory=list)
    arrived: list[Integers] = field(default_factory=list)
    served: list[Integers] = field(default_factory=list)
    queues: list[Integers] = field(default_factory=list)
    latencies: list[Floats] = field(default_factory=list)
    capacities: list[Floats] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)
    classes: Integers = field(default_factory=lambda: np.zeros(_LATENCY_CLASSES, dtype=np.int64))
    longest: float = 0.0

    @property
    def records(self) -> int:
        """How many records have arrived."""
        return int(np.sum(self.arrived))

    @property
    def utilisations(self) -> Floats:
        """The work that came by the work that could be done, shape (slots, workers)."""
        seconds = np.diff(np.array(self.ends), prepend=0.0)[:, None]
        found: Floats = np.array(self.arrived) / (np.array(self.capacities) * seconds)
        return found

    @property
    def imbalance(self) -> float:
        """Greatest less mean of (records / capacity) in units of all records; capacities have mean 1 (paper, IV)."""
        capacities = np.array(self.capacities)
        loads = (np.array(self.arrived) / (capacities / capacities.mean(axis=1, keepdims=True))).sum(axis=0)
        return float((loads.max() - loads.mean()) / self.records)

    def latency_quantile(self, share: float) -> float:
        """The latency that so large a share of the records stays within, in seconds, to about one class."""
        counts = np.cumsum(self.classes)
        found = int(np.searchsorted(counts, share * counts[-1]))
        return min(self.longest, float(LEAST_LATENCY * LATENCY_STEP ** (found + 0.5)))


def simulate(setup: QueueSetup, slots: Iterable[Arrivals]) -> QueueHistory:
    """Run the stream through; work that is queued at its end stays undone."""
    workers = len(setup.capacities[0][1])
    sources = [setup.grouping(source) for source in range(setup.sources)]
    watches = [Delegation(setup.delegation) for _ in range(workers)] if setup.delegation else []
    queues = _Queues(workers)
    replication = Replication(len(setup.hashes), workers)
    random = np.random.default_rng(setup.seed)
    history, began, sent = QueueHistory(), 0.0, 0
    changes = list(setup.capacities)
    capacities = changes[0][1]
    for arrivals in slots:
        records = len(arrivals.keys)
        owners = _grouped(setup, sources, watches, arrivals, sent, random)
        sent += records
        replication.note(arrivals.keys, owners)
        service = 1 / capacities
        queues.add(arrivals.times, owners)
        served, waited, history.longest = queues.serve(service, arrivals.end, history.classes, history.longest)
        arrived = np.bincount(owners, minlength=workers)
        for worker, watch in enumerate(watches):
            watch.at(began, int(queues.lengths[worker]))
            watch.arrived(int(arrived[worker]))
            watch.worked(int(served[worker]), float(served[worker] * service[worker]))
            watch.at(arrivals.end, int(queues.lengths[worker]))
        history.ends.append(arrivals.end)
        history.arrived.append(arrived)
        history.served.append(served)
        history.queues.append(queues.lengths.copy())
        history.latencies.append(np.divide(waited, served, out=np.full(workers, np.nan), where=served > 0))
        history.capacities.append(capacities)
        history.memory.append(replication.memory)
        history.moved.append(sum(source.moved for source in sources))
        began = arrivals.end
        while len(changes) > 1 and sent >= changes[1][0]:
            changes.pop(0)
            capacities = changes[0][1]
    return history


def _grouped(
    setup: QueueSetup,
    sources: list[Grouping],
    watches: list[Delegation],
    arrivals: Arrivals,
    sent: int,
    random: np.random.Generator,
) -> npt.NDArray[np.int32]:
    """The worker of each record. Each source hears what workers said of the last slot at a time and in an order of its
    own."""
    records = len(arrivals.keys)
    owners = np.empty(records, dtype=np.int32)
    pieces = setup.pieces if watches and records >= setup.pieces * len(sources) else 1
    bounds = np.linspace(0, records, pieces + 1).astype(np.int64)
    hears = random.integers(0, pieces, len(sources))
    for piece in range(pieces):
        start, stop = int(bounds[piece]), int(bounds[piece + 1])
        for number, source in enumerate(sources):
            if hears[number] == piece:
                for worker in random.permutation(len(watches)).tolist():
                    signal = watches[worker].signal
                    if signal is not None:
                        source.observe(worker, signal)
            first = start + (number - sent - start) % len(sources)
            owners[first : stop : len(sources)] = source.choose(
                setup.hashes[arrivals.keys[first : stop : len(sources)]]
            )
    return owners


class _Queues:
    """Each worker's queue: a list of arrival times, linked in one array that grows with the stream."""

    def __init__(self, workers: int) -> None:
        self.lengths = np.zeros(workers, dtype=np.int64)
        self._ends = np.full((workers, 2), -1, dtype=np.int64)
        self._free_at = np.zeros(workers)
        self._times = np.empty(1 << 16)
        self._next = np.empty(1 << 16, dtype=np.int64)
        self._stored = 0

    def add(self, times: Floats, owners: npt.NDArray[np.int32]) -> None:
        """Queue these records."""
        while self._stored + len(times) > len(self._times):
            self._times = np.concatenate([self._times, np.empty_like(self._times)])
            self._next = np.concatenate([self._next, np.empty_like(self._next)])
        _link(times, owners, self._stored, self._times, self._next, self._ends, self.lengths)
        self._stored += len(times)

    def serve(self, service: Floats, until: float, classes: Integers, longest: float) -> tuple[Integers, Floats, float]:
        """Work until then: how many records each worker did, the sum of their latencies, and the longest of all."""
        served = np.zeros(len(service), dtype=np.int64)
        waited = np.zeros(len(service))
        longest = _serve(
            service,
            until,
            self._times,
            self._next,
            self._ends,
            self._free_at,
            self.lengths,
            served,
            waited,
            classes,
            longest,
        )
        return served, waited, longest


@compiled
def _link(times, owners, stored, all_times, following, ends, lengths):  # type: ignore[no-untyped-def]
    """Append records to the lists; `ends` has the first and last of each, -1 if there is none."""
    for row in range(len(times)):
        number, worker = stored + row, owners[row]
        all_times[number] = times[row]
        following[number] = -1
        if ends[worker, 0] < 0:
            ends[worker, 0] = number
        else:
            following[ends[worker, 1]] = number
        ends[worker, 1] = number
        lengths[worker] += 1


@compiled
def _serve(service, until, times, following, ends, free_at, lengths, served, waited, classes, longest):  # type: ignore[no-untyped-def]
    scale = 1 / np.log(LATENCY_STEP)
    for worker in range(len(service)):
        number = ends[worker, 0]
        while number >= 0:
            done = max(times[number], free_at[worker]) + service[worker]
            if done > until:
                break
            free_at[worker] = done
            latency = done - times[number]
            longest = max(longest, latency)
            place = int(np.log(max(latency, LEAST_LATENCY) / LEAST_LATENCY) * scale)
            classes[min(place, len(classes) - 1)] += 1
            waited[worker] += latency
            served[worker] += 1
            lengths[worker] -= 1
            number = following[number]
        ends[worker, 0] = number
    return longest
