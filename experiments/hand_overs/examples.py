"""The two hand-overs that are drawn: tiny jobs, who takes part in them, and the steps to tell them by. What each step
is stands in docs/design.md, below the pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from dpa.aggregates import Count
from dpa.balance.options import HalvingOptions, NoBalancingOptions
from dpa.execution.mapping import MapTask
from dpa.execution.receivers import receiver_of
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.events import MoveTasks
from dpa.protocol.wire.instructions import InstallStates, StopTasks
from dpa.protocol.wire.messages.members import ChangeMembers, Flush, Left, Unsubscribe
from dpa.protocol.wire.messages.migration import Marker, PassedMarkers, RangeTransfer, Settled
from dpa.protocol.wire.messages.tables import TableUpdate
from dpa.sources.splits import memory_splits
from experiments.hand_overs.story import StepRule, Story, tell
from experiments.simulated_jobs.map_reduce import map_reduce_job
from experiments.simulation.job import Network, SimulatedJob

SENDER, A, B, N = Address(MAPPER, 0), Address(REDUCER, 0), Address(REDUCER, 1), Address(REDUCER, 2)

_KEYS, _RECORDS, _BATCH = "deafoubl", 80, 4

_TOKENS = 4
"""Tokens of each reducer: few, so that half of them are some of the keys, but not most."""


@dataclass(frozen=True)
class Example:
    """A hand-over.

    Attributes:
        name: of its picture.
        job: in which it takes place.
        seed: of the run that is drawn.
        cast: who takes part, from left to right.
        rules: its steps.
    """

    name: str
    job: SimulatedJob
    seed: int
    cast: Mapping[Address, str]
    rules: tuple[StepRule, ...]

    def story(self) -> Story:
        """What happens in it."""
        return tell(self.job, self.seed, self.cast, self.rules)


def _job(**options: Any) -> SimulatedJob:
    """One sender, and two reducers that are slower: A, which has most keys, and B."""
    keys = pa.array([_KEYS[number % len(_KEYS)] for number in range(_RECORDS)])
    count = MapTask(None, "key", (), receiver_of(Count()), False, 0, _BATCH, 1.0)
    return map_reduce_job(
        memory_splits(pa.table({"key": keys}), _RECORDS),
        count,
        mappers=1,
        reducers=2,
        map_seconds=0.0006,
        service_seconds=lambda reducer: 0.0014,
        network=Network(0.001, 0.003),
        quantum_records=4,
        drain_seconds=0.0,  # what is queued is seen to be forwarded
        **options,
    )


REDISTRIBUTION = Example(
    "hand-over-redistribution",
    _job(
        consistency="migrate",
        balance=HalvingOptions(
            initial_tokens=_TOKENS,
            min_queue=5,
            check_seconds=0.0,
            report_every=12,
            max_rounds=1,
            report_when_idle=False,
        ),
    ),
    seed=32,
    cast={BALANCER: "load balancer", SENDER: "sender", A: "A (gives)", B: "B (takes)"},
    rules=(
        StepRule(BALANCER, lambda it: it.sends(TableUpdate)),
        StepRule(SENDER, lambda it: it.sends(Marker)),
        StepRule(A, lambda it: it.aside > 0),
        StepRule(B, lambda it: it.aside > 0),
        StepRule(A, lambda it: it.sends(RangeTransfer) and it.sends(PassedMarkers)),
        StepRule(B, lambda it: it.instructs(InstallStates)),
        StepRule(B, lambda it: it.sends(Settled)),
    ),
)
"""Some keys move from A to B; states migrate with them."""

MOVE = Example(
    "hand-over-move",
    replace(
        _job(balance=NoBalancingOptions(initial_tokens=_TOKENS)), requests=((0.012, MoveTasks(0, REDUCER, (A.index,))),)
    ),
    seed=9,
    cast={
        COORDINATOR: "coordinator",
        BALANCER: "load balancer",
        SENDER: "sender",
        A: "A (leaves)",
        B: "B (stays)",
        N: "N (new)",
    },
    rules=(
        StepRule(COORDINATOR, lambda it: isinstance(it.event, MoveTasks)),
        StepRule(COORDINATOR, lambda it: it.sends(ChangeMembers)),
        StepRule(BALANCER, lambda it: it.sends(TableUpdate)),
        StepRule(SENDER, lambda it: it.sends(Marker)),
        StepRule(A, lambda it: it.sends(RangeTransfer)),
        StepRule(A, lambda it: it.sends(Flush)),
        StepRule(A, lambda it: it.sends(Left)),
        StepRule(COORDINATOR, lambda it: it.sends(Unsubscribe)),
        StepRule(COORDINATOR, lambda it: it.instructs(StopTasks)),
    ),
)
"""A task moves: N takes the place of A; states are merged."""

EXAMPLES = {example.name: example for example in (REDISTRIBUTION, MOVE)}
