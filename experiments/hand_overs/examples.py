"""The two hand-overs that are drawn: tiny jobs, who takes part in them, and the steps to tell them by."""

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
        StepRule(
            BALANCER,
            "A is overloaded. Table 1 gives some of its keys to B.",
            lambda it: it.sends(TableUpdate),
        ),
        StepRule(
            SENDER,
            "The sender marks the change on its way to A. What it sends from now on goes by table 1.",
            lambda it: it.sends(Marker),
        ),
        StepRule(
            A,
            "A sets the records of these keys aside, those that still come too.",
            lambda it: it.aside > 0,
        ),
        StepRule(
            B,
            "B holds back what the sender sends it of these keys: the states are still at A.",
            lambda it: it.aside > 0,
        ),
        StepRule(
            A,
            "User code has taken the states out. A sends them to B, after them the records, and passes the marker on: "
            "nothing older will follow.",
            lambda it: it.sends(RangeTransfer) and it.sends(PassedMarkers),
        ),
        StepRule(
            B,
            "What B has held back is queued behind what A has sent. User code installs the states first.",
            lambda it: it.instructs(InstallStates),
        ),
        StepRule(
            B,
            "B has settled table 1 too: table 2 may come.",
            lambda it: it.sends(Settled),
        ),
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
        StepRule(
            COORDINATOR,
            "A is to move. The new task N is started; nobody else knows of it.",
            lambda it: isinstance(it.event, MoveTasks),
        ),
        StepRule(COORDINATOR, "N is up. The load balancer is to change the table.", lambda it: it.sends(ChangeMembers)),
        StepRule(
            BALANCER,
            "Table 1 has N in the place of A. N, which knows no table, gets table 0 first.",
            lambda it: it.sends(TableUpdate),
        ),
        StepRule(
            SENDER,
            "The sender marks the change on its way to A, and sends to N from now on. B marks it too.",
            lambda it: it.sends(Marker),
        ),
        StepRule(
            A,
            "User code has taken the states out. A sends them to N, which works since records came, and merges them.",
            lambda it: it.sends(RangeTransfer),
        ),
        StepRule(
            A,
            "A has all markers, and nothing else: it has settled table 1. It asks all whether what it sent has come.",
            lambda it: it.sends(Flush),
        ),
        StepRule(A, "It has: A has left.", lambda it: it.sends(Left)),
        StepRule(COORDINATOR, "The load balancer forgets A.", lambda it: it.sends(Unsubscribe)),
        StepRule(COORDINATOR, "A is stopped.", lambda it: it.instructs(StopTasks)),
    ),
)
"""A task moves: N takes the place of A; states are merged."""

EXAMPLES = {example.name: example for example in (REDISTRIBUTION, MOVE)}
