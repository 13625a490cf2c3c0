"""Machines that are broken on purpose, and that only rare interleavings unmask: messages slower than a chain of others,
senders that come while states move, and rows that two tasks read one after the other."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from builders import map_task

from dpa.balance.options import HalvingOptions
from dpa.protocol.balancer.machine import BalanceState, StageBalance
from dpa.protocol.coordinator._split_queue import SplitQueue
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.rules import State
from dpa.protocol.task.operator import OperatorMachine, OperatorState
from dpa.protocol.task.record_queue import MigratingQueue
from dpa.protocol.task.source import SourceMachine
from dpa.protocol.task.state_exchange import StateExchange
from dpa.protocol.wire.addresses import COORDINATOR, Address
from dpa.protocol.wire.events import Redistribute, Rescale
from dpa.protocol.wire.messages.members import Flush, Leave
from dpa.protocol.wire.messages.splits import SplitReturned
from dpa.routing.hashing import Hashes
from dpa.routing.table import RoutingTable
from dpa.sources.splits import memory_splits
from experiments.simulated_jobs.map_reduce import map_reduce_job
from experiments.simulated_jobs.random_jobs import Collect, run_random_job
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import Network
from experiments.simulation.violation import InvariantViolationError


class LeavesWithoutFlush(OperatorMachine):
    """Takes it that all that it has sent has come."""

    def _flush(self) -> State:
        self._unflushed = {*self._asked()}
        for other in sorted(self._unflushed):
            self.send(other, Flush())
        return OperatorState.LEAVING

    def _asked(self) -> Iterable[Address]:
        return ()


class FlushesMembersAlone(LeavesWithoutFlush):
    """Takes it that its acknowledgements have come."""

    def _asked(self) -> Iterable[Address]:
        return (Address(self.address.stage, index) for index in self.table.members)


class FlushesSendersAlone(LeavesWithoutFlush):
    """Takes it that what it has forwarded has come."""

    def _asked(self) -> Iterable[Address]:
        return self._migration.senders


class NewSendersNeedNotWait(MigratingQueue):
    """Queues what a new sender pushes, though the states have not come."""

    def _waits(self, before: RoutingTable, sender: Address, hashes: Hashes) -> npt.NDArray[np.bool_]:
        waits = super()._waits(before, sender, hashes)
        return waits if sender in self._marking else np.zeros_like(waits)


class _Everybody:
    def __contains__(self, sender: object) -> bool:
        return True


class WaitsForMarkersOnly(MigratingQueue):
    """Waits for markers of new senders too."""

    _marking = property(lambda queue: _Everybody(), lambda queue, marking: None)  # type: ignore[assignment]


class GrantsRestsAtOnce(SplitQueue):
    """Lets others read the rest of a split before what was read of it is processed."""

    def gives_back(self, task: int, read: int) -> None:
        super().gives_back(task, read)
        self.left(task)


class GivesBackAtOnce(SourceMachine):
    """Gives back the rest of its split while it takes a step."""

    def _leave(self, sender: Address, message: Leave) -> None:
        super()._leave(sender, message)
        if self._gives_back:
            self._gives_back = False
            self.send(COORDINATOR, SplitReturned(self.read - self._read_before))


class MergesBeforeTheLastTable(StateExchange):
    """Extracts by the table that it has."""

    def _extract(self) -> State | None:
        self._current = replace(self._exchange, version=0)
        return super()._extract()


class PublishesAfterTheFreeze(StageBalance):
    """Does what it is asked for after it has named the last table."""

    def _postpone(self, sender: Address, event: Redistribute) -> None:
        if self.state is BalanceState.FROZEN:
            self._redistribute(sender, event)
        else:
            super()._postpone(sender, event)


QUEUE = "dpa.protocol.task.operator.MigratingQueue"


def changed(seed: int, **machines: Any) -> None:
    run_random_job(seed, ENOUGH_STEPS, migrates=True, changes=True, **machines)


def run_asked(asks: Callable[[random.Random, int], Rescale | Redistribute], seed: int, **machines: Any) -> None:
    """A small job that is asked for something six times, and of whose messages some are slow."""
    draw = random.Random(seed)
    table = pa.table({"key": [f"key {draw.randrange(12)}" for _ in range(60)], "number": range(60)})
    job = map_reduce_job(
        memory_splits(table, 20),
        map_task(None, Collect(), batch_records=1),
        mappers=2,
        reducers=3,
        map_seconds=0.002,
        service_seconds=lambda reducer: 0.002,
        quantum_records=1,
        drain_seconds=0.0,
        balance=HalvingOptions(min_queue=1_000, initial_tokens=64),
        network=Network(0.0001, 0.002, slow=1 / 12),
    )
    asked = tuple((draw.uniform(0.01, 0.13), asks(draw, turn)) for turn in range(6))
    cluster = SimulatedCluster(replace(job, requests=asked), seed, **machines)
    shares = cluster.run(ENOUGH_STEPS).shares[REDUCER]
    found = Counter(number for share in shares for numbers in share.table["records"].to_pylist() for number in numbers)
    if found != Counter(range(60)):
        raise InvariantViolationError("wrong result", cluster.history())


def redistribution(draw: random.Random, turn: int) -> Redistribute:
    return Redistribute(REDUCER, draw.randrange(3))


def rescaling(stage: str, draw: random.Random, turn: int) -> Rescale:
    return Rescale(turn, stage, draw.randint(1, 4))


redistributed = partial(run_asked, redistribution)
rescaled, sources_rescaled = (partial(run_asked, partial(rescaling, stage)) for stage in (REDUCER, MAPPER))
ENOUGH_STEPS = 60_000
ON_ITS_WAY = "was stopped while something of it was on its way to"

BROKEN: dict[type, tuple[str, Callable[..., None], int, str]] = {
    LeavesWithoutFlush: ("operator", rescaled, 3, ON_ITS_WAY),
    FlushesMembersAlone: ("operator", rescaled, 9, f"{ON_ITS_WAY} .*mapper"),
    FlushesSendersAlone: ("operator", rescaled, 10, f"{ON_ITS_WAY} .*reducer"),
    NewSendersNeedNotWait: (QUEUE, changed, 15, "processed key .*, whose state is"),
    WaitsForMarkersOnly: (QUEUE, changed, 15, "records from mapper . still wait at task"),
    GrantsRestsAtOnce: (
        "dpa.protocol.coordinator.stage_progress.SplitQueue",
        changed,
        8,
        "against the order of their split",
    ),
    GivesBackAtOnce: ("source", sources_rescaled, 4, "wrong result"),
    MergesBeforeTheLastTable: (
        "dpa.protocol.task.operator.StateExchange",
        redistributed,
        0,
        "got a routing table of its own stage while|merged by different tables",
    ),
    PublishesAfterTheFreeze: (
        "dpa.protocol.balancer.machine.StageBalance",
        redistributed,
        5,
        "got a routing table of its own stage while",
    ),
}
"""The simulator's argument for a machine, or the name that it replaces; the run, and a seed that unmasks it; the
finding."""


@pytest.mark.parametrize("broken", BROKEN, ids=lambda machine: machine.__name__)
def test_a_broken_machine_is_caught_where_the_sound_one_passes(broken: type, monkeypatch: pytest.MonkeyPatch) -> None:
    where, run, seed, expected = BROKEN[broken]
    run(seed)
    machines = {}
    if "." in where:
        monkeypatch.setattr(where, broken)
    else:
        machines[where] = broken
    with pytest.raises(InvariantViolationError, match=expected):
        run(seed, **machines)
