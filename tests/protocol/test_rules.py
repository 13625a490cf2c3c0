"""Rules as data: what a machine does comes from them, and so does the page that says it."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import ClassVar

import pytest
from wires import kinds_of

from dpa.errors import ProtocolError
from dpa.protocol.machine import Machine
from dpa.protocol.rules import Rule, RuledMachine, State, on, on_each, when
from dpa.protocol.wire.addresses import COORDINATOR, Address
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import Event, TasksGone
from dpa.protocol.wire.messages import Message
from experiments.report.transitions import MACHINES, page, transition_table


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

EVERY = [machine for machines in MACHINES.values() for machine in machines]

COMES = """
CoordinatorMachine created: CancelChange CloseFeeds MoveTasks Rescale Start Tick
CoordinatorMachine starting: CancelChange CloseFeeds DecisionReport MoveTasks Progress Rescale StartFailed TaskDied
    TaskStarted Tick
CoordinatorMachine running: CancelChange CheckpointFailed CheckpointWritten CloseFeeds Committed DecisionReport
    Finished LastTable Left MembersChanged MoveTasks Paused PollDone Progress Published Rescale SnapshotTaken
    SnapshotWritten SplitRequest SplitReturned StartFailed TaskDied TaskStarted Tick Unsubscribed
CoordinatorMachine done: CancelChange CheckpointFailed CheckpointWritten CloseFeeds DecisionReport MoveTasks
    PollDone Progress Rescale TaskDied Tick
CoordinatorMachine failed: CancelChange CheckpointFailed CheckpointWritten CloseFeeds Committed DecisionReport
    Finished LastTable Left MembersChanged MoveTasks Paused PollDone Progress Published Rescale SnapshotTaken
    SnapshotWritten SplitRequest SplitReturned StartFailed TaskDied TaskStarted Tick Unsubscribed
LoadBalancerMachine running: ChangeMembers Freeze LoadReport OfferedReport Redistribute Settled Thaw Tick
    Unsubscribe
SourceMachine starting: Ack Begin CreditTransfer CurrentTable Flush Leave Pause TableUpdate Tick
SourceMachine requesting: Ack CreditTransfer Flush Leave Pause SplitGrant TableUpdate Tick
SourceMachine reading: Ack CreditTransfer Flush Leave Pause TableUpdate Tick
SourceMachine done: Ack CreditTransfer Flush Leave Pause TableUpdate Tick
SourceMachine left: Ack CreditTransfer Flush Leave TableUpdate Tick
OperatorMachine streaming: Ack BeginExchange CreditTransfer CurrentTable Drain Flush GoOn ProcessDone Push
    SnapshotDone SnapshotMarked TableUpdate TakeSnapshot Tick
OperatorMachine exchanging: Ack CreditTransfer CurrentTable Flush SnapshotDone TableUpdate Tick
OperatorMachine finishing: Ack CreditTransfer FinishDone Flush SnapshotDone TableUpdate Tick
OperatorMachine finished: Ack CreditTransfer Deliver Flush SnapshotDone TableUpdate Tick
OperatorMachine delivering: Ack CreditTransfer Flush GoOn Pause SnapshotDone TableUpdate Tick WriteDone
OperatorMachine done: Ack CreditTransfer Flush GoOn Pause SnapshotDone TableUpdate Tick
OperatorMachine leaving: Ack CreditTransfer Drain Flush Flushed GoOn SnapshotDone TableUpdate Tick
OperatorMachine left: Ack CreditTransfer Drain Flush GoOn SnapshotDone TableUpdate Tick
StageProgress streaming: DecisionReport PollDone Progress SplitRequest SplitReturned
StageProgress done: DecisionReport PollDone Progress
StageProgress draining: DecisionReport Progress
StageProgress freezing: DecisionReport LastTable Progress
StageProgress exchanging: DecisionReport Finished Progress
StageProgress delivering: DecisionReport Progress
Membership idle: CancelChange MoveTasks Rescale Tick
Membership starting: CancelChange MoveTasks Rescale StartFailed TaskStarted Tick
Membership cancelling: CancelChange MoveTasks Rescale StartFailed TaskStarted Tick
Membership changing: CancelChange Left MembersChanged MoveTasks Rescale Tick
Membership ending: CancelChange MoveTasks Rescale Tick Unsubscribed
Cuts draining: Committed LastTable Paused Published
Cuts publishing: Committed Published
Cuts taking_snapshots: Committed SnapshotTaken SnapshotWritten
Cuts saving: Committed SnapshotWritten
Cuts waiting: Committed
Cuts writing: CheckpointFailed CheckpointWritten Committed
StageBalance balancing: ChangeMembers Freeze LoadReport OfferedReport Redistribute
StageBalance settling: ChangeMembers Freeze LoadReport OfferedReport Redistribute Settled
StageBalance freezing: LoadReport OfferedReport Redistribute Settled
StageBalance frozen: LoadReport OfferedReport Redistribute Thaw
Production closed: OpenResult OpenSplit
Production stepping: StepDone
StateExchange idle: BeginExchange StateTransfer
StateExchange due: StateTransfer
StateExchange extracting: ExtractDone StateTransfer
StateExchange collecting: StateTransfer
StateExchange publishing: PublishDone
Giving idle: GiveRanges Marker
Giving due: Marker
Giving extracting: Marker RangesExtracted
Giving passing: Marker
Taking idle: PassedMarkers RangeTransfer TakeRanges
Taking taking: PassedMarkers RangeTransfer
Taking installing: PassedMarkers RangeTransfer StatesInstalled
"""
"""What each machine and each part takes in each of its states; anything else is refused."""

TOLD_BY_ITS_OWNER = {"OpenSplit", "OpenResult", "GiveRanges", "TakeRanges"}
"""What parts are told by the machine that has them."""


def test_in_each_state_a_machine_has_rules_for_what_may_come_then_and_for_nothing_else() -> None:
    written = dict(line.split(": ") for line in COMES.replace("\n    ", " ").strip().splitlines())
    found: dict[str, set[str]] = defaultdict(set)
    for machine in EVERY:
        for rule in machine.RULES:
            for state in rule.states if rule.kind else ():
                found[f"{machine.__name__} {state.name.lower()}"].add(rule.kind.__name__)
    assert found == {state: {*kinds.split()} for state, kinds in written.items()}


def test_every_message_and_every_event_is_received_by_some_machine() -> None:
    kinds = {kind.__name__ for kind in {*kinds_of(Message), *kinds_of(Event)} - {Envelope, TasksGone}}
    assert kinds == {kind.__name__ for machine in EVERY for kind in machine.KINDS} - TOLD_BY_ITS_OWNER


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


def test_the_tables_have_every_machine_of_the_protocol() -> None:
    protocol = Path(__file__).parents[2] / "dpa" / "protocol"
    written = [path.read_text(encoding="utf-8").count("    RULES: ") for path in protocol.rglob("*.py")]
    assert sum(written) == len(re.findall(r"^### `\w+`$", page(), re.MULTILINE)) + 1  # `RuledMachine` has none
