"""Sources, and reducers with unbounded queues, in virtual time: the same groupings and the same worker delegation as on
Ray, at tens of millions of records.

This is the model of the CG paper (section IV), whose workers are our reducers: no network, each reducer serves its
queue in order, a record takes 1 / capacity of its reducer. Unlike `experiments.simulation.cluster` it runs no protocol
and no user code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dpa.balance.delegation import Delegation
from dpa.routing.compiled import compiled
from dpa.routing.groupings.base import Grouping
from dpa.routing.groupings.options import SignalOptions
from dpa.routing.hashing import Hashes
from experiments.replication import Replication

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

LATENCY_STEP = 1.02
"""Latencies are counted in classes; each is longer than the one before by this factor."""

MIN_LATENCY = 1e-6
_LATENCY_CLASSES = 1_400


@dataclass(frozen=True, eq=False)
class Arrivals:
    """The records that arrive in one time slot.

    Attributes:
        keys: the number of each record's key, shape (records,).
        times: when each arrives, in seconds, ascending; shape (records,).
        end: when the slot ends, in seconds.
    """

    keys: npt.NDArray[np.int32]
    times: Floats
    end: float


@dataclass(frozen=True)
class QueueSetup:
    """A simulation.

    Attributes:
        hashes: the hash of each key, by number.
        grouping: makes the grouping of the source with this number.
        sources: the number of sources; records go to them in turn.
        capacities: records a second that each reducer can process, shape (reducers,), from a record number on: the
            first entry's is 0.
        delegation: how reducers judge themselves; None: they send no signals.
        parts: the next slot is cut into this number of parts; a source receives the signals of a slot at the beginning
            of a random one.
        seed: of the randomness.
    """

    hashes: Hashes
    grouping: Callable[[int], Grouping]
    sources: int
    capacities: tuple[tuple[int, Floats], ...]
    delegation: SignalOptions | None = None
    parts: int = 4
    seed: int = 0


@dataclass
class QueueHistory:
    """The course of a simulation: for each slot one number, or a row of one number for each reducer.

    Attributes:
        ends: when each slot ended, in seconds.
        arrived: records sent to each reducer.
        served: records that each reducer has processed.
        queues: its queue at the end of the slot, in records.
        latencies: mean latency of the records it processed, in seconds; NaN if there were none.
        capacities: records a second that it could process.
        memory: distinct keys of all reducers so far, added up, by distinct keys.
        moved: virtual workers that the sources have moved so far, added up.
        classes: the number of all latencies so far in each class; see `latency_quantile`.
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
        """The number of records that have arrived."""
        return int(np.sum(self.arrived))

    @property
    def utilisations(self) -> Floats:
        """The work that arrived by the work that could be done, shape (slots, reducers)."""
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
        """The latency that `share` of the records do not exceed, in seconds, to about one class."""
        counts = np.cumsum(self.classes)
        found = int(np.searchsorted(counts, share * counts[-1]))
        return min(self.longest, float(MIN_LATENCY * LATENCY_STEP ** (found + 0.5)))


def simulate(setup: QueueSetup, slots: Iterable[Arrivals]) -> QueueHistory:
    """Run the stream; records that are queued at its end stay there."""
    reducers = len(setup.capacities[0][1])
    sources = [setup.grouping(source) for source in range(setup.sources)]
    delegations = [Delegation(setup.delegation) for _ in range(reducers)] if setup.delegation else []
    queues = _Queues(reducers)
    replication = Replication(len(setup.hashes), reducers)
    random = np.random.default_rng(setup.seed)
    history, began, sent = QueueHistory(), 0.0, 0
    changes = list(setup.capacities)
    capacities = changes[0][1]
    for arrivals in slots:
        records = len(arrivals.keys)
        owners = _grouped(setup, sources, delegations, arrivals, sent, random)
        sent += records
        replication.note(arrivals.keys, owners)
        service = 1 / capacities
        queues.add(arrivals.times, owners)
        served, waited, history.longest = queues.serve(service, arrivals.end, history.classes, history.longest)
        arrived = np.bincount(owners, minlength=reducers)
        for reducer, delegation in enumerate(delegations):
            delegation.advance(began, int(queues.lengths[reducer]))
            delegation.arrived(int(arrived[reducer]))
            delegation.worked(int(served[reducer]), float(served[reducer] * service[reducer]))
            delegation.advance(arrivals.end, int(queues.lengths[reducer]))
        history.ends.append(arrivals.end)
        history.arrived.append(arrived)
        history.served.append(served)
        history.queues.append(queues.lengths.copy())
        history.latencies.append(np.divide(waited, served, out=np.full(reducers, np.nan), where=served > 0))
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
    delegations: list[Delegation],
    arrivals: Arrivals,
    sent: int,
    random: np.random.Generator,
) -> npt.NDArray[np.int32]:
    """The reducer of each record. Each source receives the signals of the last slot at a time and in an order of its
    own."""
    records = len(arrivals.keys)
    owners = np.empty(records, dtype=np.int32)
    parts = setup.parts if delegations and records >= setup.parts * len(sources) else 1
    bounds = np.linspace(0, records, parts + 1).astype(np.int64)
    receives_in = random.integers(0, parts, len(sources))
    for part in range(parts):
        start, stop = int(bounds[part]), int(bounds[part + 1])
        for number, source in enumerate(sources):
            if receives_in[number] == part:
                for reducer in random.permutation(len(delegations)).tolist():
                    signal = delegations[reducer].signal
                    if signal is not None:
                        source.observe(reducer, signal)
            first = start + (number - sent - start) % len(sources)
            owners[first : stop : len(sources)] = source.choose(
                setup.hashes[arrivals.keys[first : stop : len(sources)]]
            )
    return owners


class _Queues:
    """Each reducer's queue: a list of arrival times, linked in one array that grows with the stream."""

    def __init__(self, reducers: int) -> None:
        self.lengths = np.zeros(reducers, dtype=np.int64)
        self._ends = np.full((reducers, 2), -1, dtype=np.int64)
        self._free_at = np.zeros(reducers)
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
        """Process records until then. Returns the number of records that each reducer processed, the sum of their
        latencies, and the longest of all."""
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
        number, reducer = stored + row, owners[row]
        all_times[number] = times[row]
        following[number] = -1
        if ends[reducer, 0] < 0:
            ends[reducer, 0] = number
        else:
            following[ends[reducer, 1]] = number
        ends[reducer, 1] = number
        lengths[reducer] += 1


@compiled
def _serve(service, until, times, following, ends, free_at, lengths, served, waited, classes, longest):  # type: ignore[no-untyped-def]
    scale = 1 / np.log(LATENCY_STEP)
    for reducer in range(len(service)):
        number = ends[reducer, 0]
        while number >= 0:
            done = max(times[number], free_at[reducer]) + service[reducer]
            if done > until:
                break
            free_at[reducer] = done
            latency = done - times[number]
            longest = max(longest, latency)
            number_of_class = int(np.log(max(latency, MIN_LATENCY) / MIN_LATENCY) * scale)
            classes[min(number_of_class, len(classes) - 1)] += 1
            waited[reducer] += latency
            served[reducer] += 1
            lengths[reducer] -= 1
            number = following[number]
        ends[reducer, 0] = number
    return longest
