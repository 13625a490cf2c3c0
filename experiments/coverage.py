"""What simulated runs reach: the rules of every machine in each of their states, and the conversations that are under
way at the same time.

What no run reaches stands in `UNREACHED` or `APART` with the reason: it cannot come, or it is too rare and has a unit
test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any, TypeAlias

from dpa.protocol.balancer.machine import BalanceState
from dpa.protocol.coordinator.machine import CoordinatorMachine, CoordinatorState
from dpa.protocol.coordinator.stage_progress import StagePhase
from dpa.protocol.rules import RuledMachine
from dpa.protocol.wire.addresses import Address
from experiments.report.transitions import MACHINES
from experiments.simulation.cluster import SimulatedCluster

Triple: TypeAlias = "tuple[str, str, str]"
"""A cell of the tables of `report.transitions`: a machine, a kind of event, and a state. Or a pair: two conversations,
in alphabetical order, and whether they are of the same stage."""

SOURCE_CHANGES, STAGE_CHANGES = "tasks of a source change", "tasks change"
KEYS_MOVE, STATES_MOVE = "states move with keys", "states of tasks that leave move"
DRAIN, FREEZE, EXCHANGE, DELIVERY = "drain", "freeze", "last exchange", "delivery"
CUT = "cut"
CONVERSATIONS = (SOURCE_CHANGES, STAGE_CHANGES, KEYS_MOVE, STATES_MOVE, DRAIN, FREEZE, EXCHANGE, DELIVERY, CUT)
_PHASES = {
    StagePhase.DRAINING: DRAIN,
    StagePhase.FREEZING: FREEZE,
    StagePhase.EXCHANGING: EXCHANGE,
    StagePhase.DELIVERING: DELIVERY,
}
SAME, OTHER = "same stage", "another stage"


def pair(first: str, second: str, where: str) -> Triple:
    """The pair of two conversations."""
    return (*sorted((first, second)), where)  # type: ignore[return-value]


_LAST = "a task's last message to the coordinator says that it is done, and comes after all others of it"
_FROZEN = "what the load balancer decides is reported before it names the last table, and it decides nothing afterwards"
_FAILED = "a simulated run ends with the failure"
_FIRST = "a simulated run begins with `Start`"
_ONE_CHANGE = "one change of tasks is under way at a time in a job, and the task that leaves is stopped before the next"
_NOTHING_OUT = "all that the task has emitted is acknowledged before it flushes or leaves"
_NOTHING_YET = "a source task that has not begun has emitted nothing"

_SAVES = "no task leaves while states of a cut are written"

_NOT_CLOSED = "a run whose inputs are closed early has another result; tests/protocol/test_open_feeds.py closes them"

_TWO_RESULTS = "not drawn: one stage publishes while what another has published is still being committed"

_LATE = "not drawn: the end of a cut is told long before a task begins to leave, as states are written in between"

_RARE = (
    "not drawn: it must be slower than all acknowledgements for what the task had sent, just as the task ends or leaves"
)


UNREACHED: dict[Triple, str] = {
    **{
        ("CoordinatorMachine", kind, "created"): _FIRST
        for kind in ("Rescale", "MoveTasks", "CancelChange", "CloseFeeds", "Tick")
    },
    **{
        ("CoordinatorMachine", rule.kind.__name__, "failed"): _FAILED
        for rule in CoordinatorMachine.RULES
        if rule.kind is not None and CoordinatorState.FAILED in rule.states
    },
    ("CoordinatorMachine", "StartFailed", "starting"): "the first tasks of a simulated job always start",
    ("CoordinatorMachine", "Progress", "done"): _LAST,
    ("StageProgress", "Progress", "done"): _LAST,
    ("Cuts", "Committed", "publishing"): _TWO_RESULTS,
    ("OperatorMachine", "GoOn", "leaving"): _LATE,
    **{("CoordinatorMachine", "CloseFeeds", state): _NOT_CLOSED for state in ("starting", "running", "done")},
    ("CoordinatorMachine", "PollDone", "done"): _NOT_CLOSED,
    ("CoordinatorMachine", "DecisionReport", "done"): _FROZEN,
    **{("StageProgress", "DecisionReport", phase): _FROZEN for phase in ("exchanging", "delivering", "done")},
    ("SourceMachine", "Flush", "left"): _ONE_CHANGE,
    ("OperatorMachine", "Flush", "leaving"): _ONE_CHANGE,
    ("OperatorMachine", "Flush", "left"): _ONE_CHANGE,
    ("SourceMachine", "Leave", "left"): "a task is told once",
    ("SourceMachine", "Ack", "starting"): _NOTHING_YET,
    ("SourceMachine", "CreditTransfer", "starting"): _NOTHING_YET,
    ("SourceMachine", "Ack", "left"): _NOTHING_OUT,
    ("OperatorMachine", "Ack", "leaving"): _NOTHING_OUT,
    ("OperatorMachine", "Ack", "left"): _NOTHING_OUT,
    ("OperatorMachine", "SnapshotDone", "leaving"): _SAVES,
    ("OperatorMachine", "SnapshotDone", "left"): _SAVES,
    ("OperatorMachine", "CreditTransfer", "exchanging"): _RARE,
    ("OperatorMachine", "CreditTransfer", "leaving"): _RARE,
    ("OperatorMachine", "CreditTransfer", "left"): _RARE,
}
"""The cells that no run reaches, and why. Those that could come have a unit test."""

_ONE_PHASE = "a stage is in one phase at a time"
_OF_SOURCE = "a source has no tables, and ends with its last task"
_ONE_AT_A_TIME = "a job changes the tasks of one stage at a time"
_STAYS_OPEN = "a stage does not end while its tasks change"
_ONE_MODE = "states of a stage move in one way"
_SETTLED = "the last exchange begins after the last table is settled"
_NO_CUT = "a cut begins while no stage exchanges its last states, and no tasks come or go; none does before its end"

APART: dict[Triple, str] = {
    **{pair(SOURCE_CHANGES, other, SAME): _OF_SOURCE for other in CONVERSATIONS if other != SOURCE_CHANGES},
    **{pair(*phases, SAME): _ONE_PHASE for phases in combinations(_PHASES.values(), 2)},
    **{pair(STAGE_CHANGES, phase, SAME): _STAYS_OPEN for phase in (FREEZE, EXCHANGE, DELIVERY)},
    **{pair(STATES_MOVE, phase, SAME): _STAYS_OPEN for phase in (FREEZE, EXCHANGE, DELIVERY)},
    **{pair(KEYS_MOVE, phase, SAME): _SETTLED for phase in (EXCHANGE, DELIVERY)},
    **{
        pair(CUT, other, where): _NO_CUT
        for other in (STAGE_CHANGES, STATES_MOVE, FREEZE, EXCHANGE)
        for where in (SAME, OTHER)
    },
    pair(CUT, SOURCE_CHANGES, OTHER): _NO_CUT,
    pair(KEYS_MOVE, STATES_MOVE, SAME): _ONE_MODE,
    pair(STAGE_CHANGES, STAGE_CHANGES, OTHER): _ONE_AT_A_TIME,
    pair(SOURCE_CHANGES, SOURCE_CHANGES, OTHER): _ONE_AT_A_TIME,
    pair(SOURCE_CHANGES, STAGE_CHANGES, OTHER): _ONE_AT_A_TIME,
    pair(SOURCE_CHANGES, STATES_MOVE, OTHER): _ONE_AT_A_TIME,
    pair(STAGE_CHANGES, STATES_MOVE, OTHER): _ONE_AT_A_TIME,
    pair(STATES_MOVE, STATES_MOVE, OTHER): _ONE_AT_A_TIME,
}
"""The pairs that are never under way together, and why."""


def cells() -> list[Triple]:
    """All rules that events trigger, of all machines, in each of their states."""
    machines = [machine for of in MACHINES.values() for machine in of]
    return [
        (machine.__name__, rule.kind.__name__, str(state.value))
        for machine in machines
        for rule in machine.RULES
        if rule.kind is not None
        for state in rule.states
    ]


def pairs() -> list[Triple]:
    """All pairs of conversations, of one stage and of two."""
    both = [pair(first, second, OTHER) for first, second in combinations(CONVERSATIONS, 2)]
    return [
        *(pair(first, second, SAME) for first, second in combinations(CONVERSATIONS, 2)),
        *both,
        *(pair(one, one, OTHER) for one in CONVERSATIONS),
    ]


class Coverage:
    """Counts over several runs.

    Attributes:
        cells: events by rule and state.
        pairs: by pair of conversations, events of the coordinator and the load balancer after which both were under
            way.
    """

    def __init__(self) -> None:
        self.cells: Counter[Triple] = Counter()
        self.pairs: Counter[Triple] = Counter()

    def add(self, other: Coverage) -> None:
        """Also the counts of other runs."""
        self.cells.update(other.cells)
        self.pairs.update(other.pairs)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the events of all machines of this process meanwhile."""
        dispatch, found = RuledMachine.dispatch, self.cells

        def counted(machine: RuledMachine, name: object, sender: Address, event: Any) -> None:
            found[type(machine).__name__, type(event).__name__, str(machine.state.value)] += 1
            dispatch(machine, name, sender, event)

        RuledMachine.dispatch = counted  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            RuledMachine.dispatch = dispatch  # type: ignore[method-assign]

    def watch(self, cluster: SimulatedCluster) -> None:
        """Count the conversations of a run that are under way now."""
        under_way = list(_conversations(cluster))
        seen = {
            pair(one, other, SAME if stage == of else OTHER) for (one, stage), (other, of) in combinations(under_way, 2)
        }
        self.pairs.update(seen)

    def missing(self) -> list[Triple]:
        """What was not reached, and is not argued away."""
        return [
            *(cell for cell in cells() if not self.cells[cell] and cell not in UNREACHED),
            *(both for both in pairs() if not self.pairs[both] and both not in APART),
        ]

    def wrong(self) -> list[Triple]:
        """What is argued away, and was reached, or is no rule or pair at all."""
        every = {*cells(), *pairs()}
        reached = {*+self.cells, *+self.pairs}
        return [one for one in (*UNREACHED, *APART) if one in reached or one not in every]


def _conversations(cluster: SimulatedCluster) -> Iterator[tuple[str, str]]:
    """Each with its stage."""
    for name, stage in cluster.coordinator.stages.items():
        if stage.is_changing:
            yield SOURCE_CHANGES if stage.is_source else STAGE_CHANGES, name
        if cluster.coordinator.cuts.is_holding and not stage.is_source:
            yield CUT, name
        if stage.state in _PHASES:
            yield _PHASES[stage.state], name
    for name, balance in cluster.balancer.stages.items():
        if balance.state in (BalanceState.SETTLING, BalanceState.FREEZING):
            yield KEYS_MOVE if cluster.graph[name].migrates else STATES_MOVE, name
