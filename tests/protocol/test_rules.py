"""Rules as data: what a machine does comes from them, and so does the page that says it."""

from __future__ import annotations

from typing import ClassVar

import pytest
from wires import kinds_of

from dpa.errors import ProtocolError
from dpa.protocol.balancer.machine import LoadBalancerMachine, StageBalance
from dpa.protocol.coordinator.cuts import Cuts
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.coordinator.membership import Membership
from dpa.protocol.coordinator.stage_progress import StageProgress
from dpa.protocol.machine import Machine
from dpa.protocol.rules import Rule, RuledMachine, State, on, on_each, when
from dpa.protocol.task.hand_over import Giving, Taking
from dpa.protocol.task.machine import Production
from dpa.protocol.task.operator import OperatorMachine
from dpa.protocol.task.source import SourceMachine
from dpa.protocol.task.state_exchange import StateExchange
from dpa.protocol.wire.addresses import COORDINATOR, Address
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import Event, TasksGone
from dpa.protocol.wire.messages import Message
from experiments.report.transitions import transition_table


class Light(State):
    RED = "red"
    GREEN = "green"


class Button:
    """A kind of event."""


class Clock:
    """Another."""


class Crossing(RuledMachine):
    def __init__(self) -> None:
        super().__init__(Light.RED)
        self.pressed = 0

    def _press(self, sender: Address, event: Button) -> State | None:
        self.pressed += 1
        return Light.GREEN

    def _wait(self, sender: Address, event: object) -> State | None:
        return Light.RED

    def _look(self) -> State | None:
        return Light.GREEN if self.pressed >= 10 else None

    RULES: ClassVar[tuple[Rule, ...]] = (
        on(Button, Light.RED, _press, "turn green", Light.GREEN),
        *on_each((Clock, Button), [Light.GREEN], _wait, "turn red", Light.RED),
        when(Light.RED, _look, "turn green when many have come", (None, Light.GREEN)),
    )


class Stubborn(Crossing):
    def _press(self, sender: Address, event: Button) -> State | None:
        return None


class Contrary(Crossing):
    def _look(self) -> State | None:
        return Light.RED


def test_an_event_is_handled_by_the_rule_for_the_present_state() -> None:
    crossing = Crossing()
    for expected in (Light.GREEN, Light.RED, Light.GREEN):
        crossing.dispatch("crossing", COORDINATOR, Button())
        assert crossing.state is expected
    assert crossing.pressed == 2


def test_a_state_triggers_its_rule_until_it_stays() -> None:
    crossing = Crossing()
    crossing.advance()
    assert crossing.state is Light.RED
    crossing.pressed = 10
    crossing.advance()
    assert crossing.state is Light.GREEN


def test_what_no_rule_names_cannot_come() -> None:
    with pytest.raises(ProtocolError, match="the crossing cannot take a Clock from coordinator while red"):
        Crossing().dispatch("the crossing", COORDINATOR, Clock())


def test_no_state_follows_that_the_rule_does_not_name() -> None:
    with pytest.raises(AssertionError, match=r"Stubborn: no rule lets None follow Light\.RED"):
        Stubborn().dispatch("crossing", COORDINATOR, Button())
    with pytest.raises(AssertionError, match=r"Contrary: no rule lets Light\.RED follow"):
        Contrary().advance()


def test_the_table_has_a_row_for_each_kind_of_event_and_a_column_for_each_state() -> None:
    assert transition_table(Crossing) == (
        "| event | red | green |\n| --- | --- | --- |\n"
        "| `Button` | turn green -> green | turn red -> red |\n"
        "| `Clock` | - | turn red -> red |\n"
        "| *then* | turn green when many have come (-> green) | - |"
    )


def test_two_parts_that_take_one_kind_of_event_are_refused_when_the_machine_is_made() -> None:
    machine = Machine(COORDINATOR, Light.RED)
    machine.include(Crossing())
    with pytest.raises(ProtocolError, match=r"two parts that take a (Button|Clock): Crossing and Stubborn"):
        machine.include(Stubborn())


# --- the machines of the protocol

PARTS: dict[type[RuledMachine], list[type[RuledMachine]]] = {
    CoordinatorMachine: [StageProgress, Membership, Cuts],
    LoadBalancerMachine: [StageBalance],
    SourceMachine: [Production],
    OperatorMachine: [Production, StateExchange, Giving, Taking],
}
"""Each machine, and the parts with rules of their own."""

RECEIVED: dict[type[RuledMachine], set[str]] = {
    CoordinatorMachine: {
        *("Start", "TaskStarted", "StartFailed", "TaskDied", "Tick", "Rescale", "CancelChange", "MoveTasks"),
        *("MembersChanged", "Left", "Unsubscribed", "SplitReturned"),
        *("SplitRequest", "Progress", "DecisionReport", "Published", "LastTable", "Finished", "PollDone", "CloseFeeds"),
        *("Paused", "SnapshotTaken", "SnapshotWritten", "CheckpointWritten", "CheckpointFailed", "Committed"),
    },
    LoadBalancerMachine: {
        *("Tick", "Redistribute", "LoadReport", "OfferedReport", "Settled", "Freeze", "Thaw"),
        *("ChangeMembers", "Unsubscribe"),
    },
    SourceMachine: {
        *(
            "Tick",
            "StepDone",
            "Begin",
            "SplitGrant",
            "Ack",
            "CreditTransfer",
            "TableUpdate",
            "CurrentTable",
            "Leave",
            "Pause",
            "Flush",
        ),
    },
    OperatorMachine: {
        *("Tick", "StepDone", "ProcessDone", "ExtractDone", "PublishDone", "FinishDone", "WriteDone"),
        *(
            "RangesExtracted",
            "StatesInstalled",
            *("TakeSnapshot", "Pause", "GoOn"),
            *("SnapshotMarked", "SnapshotDone"),
            "Marker",
            "RangeTransfer",
            "PassedMarkers",
        ),
        *(
            "Push",
            "Ack",
            "CreditTransfer",
            "TableUpdate",
            *("CurrentTable", "Flush", "Flushed"),
            "BeginExchange",
            "StateTransfer",
            "Drain",
            "Deliver",
        ),
    },
}
"""The events that each machine receives."""

TOLD_BY_ITS_OWNER = {"OpenSplit", "OpenResult", "GiveRanges", "TakeRanges"}
"""What parts are told by the machine that has them."""


@pytest.mark.parametrize("machine", PARTS, ids=lambda machine: machine.__name__)
def test_a_machine_has_rules_for_what_it_receives_and_for_nothing_else(machine: type[RuledMachine]) -> None:
    kinds = {kind.__name__ for each in (machine, *PARTS[machine]) for kind in each.KINDS}
    assert kinds - TOLD_BY_ITS_OWNER == RECEIVED[machine]


def test_every_message_and_every_event_is_received_by_some_machine() -> None:
    kinds = {kind.__name__ for kind in {*kinds_of(Message), *kinds_of(Event)} - {Envelope, TasksGone}}
    assert kinds == set().union(*RECEIVED.values())


EVERY = [*PARTS, *dict.fromkeys(part for parts in PARTS.values() for part in parts)]


@pytest.mark.parametrize("machine", EVERY, ids=lambda machine: machine.__name__)
def test_no_two_rules_of_a_machine_are_for_the_same_event_in_the_same_state(machine: type[RuledMachine]) -> None:
    cases = [(rule.kind, state) for rule in machine.RULES for state in rule.states]
    assert len(cases) == len(set(cases))
    assert all(rule.does and "|" not in rule.does for rule in machine.RULES)


@pytest.mark.parametrize("machine", EVERY, ids=lambda machine: machine.__name__)
def test_the_table_of_a_machine_is_rectangular(machine: type[RuledMachine]) -> None:
    lines = transition_table(machine).splitlines()
    named = [name for line in lines[2:] for name in line.split(" | ")[0].strip("| ").split(", ")]
    kinds = {rule.kind for rule in machine.RULES}
    assert sorted(named) == sorted("*then*" if kind is None else f"`{kind.__name__}`" for kind in kinds)
    assert len({line.count("|") for line in lines}) == 1
