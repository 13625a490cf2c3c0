"""The load balancer's state machine: numbered tables go out to all at once, refusals wait, a freeze is final."""

from __future__ import annotations

import pytest
from builders import Wire, same_table, sent

from dpa.balance.decision import Outcome
from dpa.balance.load import Load
from dpa.errors import ProtocolError
from dpa.protocol.assembly import BalanceOptions
from dpa.protocol.load_balancer import LoadBalancerMachine
from dpa.protocol.machine import Instruction, Redistribute, Start, Tick
from dpa.protocol.messages import (
    COORDINATOR,
    Ack,
    DecisionReport,
    Freeze,
    LastTable,
    LoadReport,
    TableUpdate,
    mapper,
    reducer,
)


class Balancer(Wire):
    """A load balancer of two mappers and three reducers."""

    def __init__(self, strategy: str = "halving", **options) -> None:
        fields = {"initial_tokens": 8, "least_queue": 1, "check_seconds": 0.0, **options}
        policy = BalanceOptions(strategy, **fields).policy(3)
        self.balancer = LoadBalancerMachine(policy, mappers=2)
        super().__init__(self.balancer)

    def report(self, index: int, queue: int, now: float = 0.0) -> list[Instruction]:
        """A reducer that holds the newest table reports its queue."""
        return self(reducer(index), LoadReport(Load(queue, self.balancer.table.epoch)), now)

    def event(self, event: Tick | Redistribute | Start) -> list[Instruction]:
        return self.balancer.handle(event, 0.0)

    def freeze(self) -> list[Instruction]:
        return self(COORDINATOR, Freeze())


def outcomes(instructions: list[Instruction]) -> list[Outcome]:
    """What is told to the coordinator, in order."""
    return [decision.outcome for _, report in sent(instructions, DecisionReport) for decision in report.decisions]


def tables(instructions: list[Instruction]) -> list[int]:
    return [update.change.epoch for _, update in sent(instructions, TableUpdate)]


def test_the_first_table_is_numbered_0_and_needs_no_message() -> None:
    assert Balancer().balancer.table.epoch == 0


def test_a_redistribution_goes_out_at_once_to_all_mappers_and_reducers_and_to_the_coordinator() -> None:
    balancer = Balancer()
    before = balancer.balancer.table
    instructions = balancer.report(1, 100)
    receivers = [to for to, _ in sent(instructions, TableUpdate)]
    assert receivers == [mapper(0), mapper(1), reducer(0), reducer(1), reducer(2)]
    [change] = {update.change for _, update in sent(instructions, TableUpdate)}
    assert same_table(change.apply(before), balancer.balancer.table)
    assert outcomes(instructions) == [Outcome.APPLIED]


def test_tables_are_numbered_one_by_one() -> None:
    balancer = Balancer()
    assert [set(tables(balancer.report(1, 100))) for _ in range(4)] == [{1}, {2}, {3}, set()]  # 8, 4, 2, 1 tokens


def test_a_refusal_waits_for_a_tick() -> None:
    balancer = Balancer()
    assert balancer.report(0, 0) == [] == balancer.report(2, 0)
    assert outcomes(balancer.event(Tick())) == [Outcome.BELOW_THRESHOLD] * 2
    assert balancer.event(Tick()) == []


def test_refusals_are_told_before_the_redistribution_that_follows_them() -> None:
    balancer = Balancer()
    balancer.report(0, 0)
    assert outcomes(balancer.report(1, 100)) == [Outcome.BELOW_THRESHOLD, Outcome.APPLIED]


def test_the_policy_is_told_the_time() -> None:
    balancer = Balancer(check_seconds=1.0)
    for now in (5.0, 5.5, 6.5, 7.0):
        balancer.report(0, 0, now)
    look, wait = Outcome.BELOW_THRESHOLD, Outcome.COOL_DOWN
    assert outcomes(balancer.event(Tick())) == [wait, wait, look, wait]


def test_the_policy_is_told_under_which_table_a_queue_was_measured() -> None:
    balancer = Balancer()
    balancer.report(1, 100)
    balancer(reducer(1), LoadReport(Load(100, epoch=0)))
    assert outcomes(balancer.event(Tick())) == [Outcome.COOL_DOWN]


def test_a_redistribution_may_be_asked_for() -> None:
    balancer = Balancer()
    assert set(tables(balancer.event(Redistribute(2)))) == {1}


def test_a_key_is_looked_up_in_the_newest_table() -> None:
    balancer = Balancer()
    moved = False
    while tables(balancer.event(Redistribute(0))):
        owners = [balancer.balancer.table.key_lookup(key) for key in range(100)]
        assert [balancer.balancer.key_lookup(key) for key in range(100)] == owners
        moved = True
    assert moved


def test_with_balancing_off_nothing_is_published() -> None:
    balancer = Balancer("none")
    assert balancer.report(0, 1000) == []
    assert tables(balancer.event(Redistribute(0))) == []


# --- the freeze


def test_a_freeze_is_answered_with_the_number_of_the_last_table_after_all_that_was_decided() -> None:
    balancer = Balancer()
    balancer.report(1, 100)
    balancer.report(1, 0)
    instructions = balancer.freeze()
    assert outcomes(instructions) == [Outcome.BELOW_THRESHOLD]
    [(to, last)] = sent(instructions, LastTable)
    assert (to, last.epoch) == (COORDINATOR, balancer.balancer.table.epoch) == (COORDINATOR, 1)
    assert instructions[-1].envelope.message is last


def test_after_a_freeze_no_table_is_published_whatever_comes() -> None:
    balancer = Balancer()
    balancer.freeze()
    assert balancer.report(1, 100) == [] == balancer.event(Redistribute(1)) == balancer.event(Tick())
    assert balancer.balancer.table.epoch == 0


def test_a_second_freeze_cannot_come() -> None:
    balancer = Balancer()
    balancer.freeze()
    with pytest.raises(ProtocolError, match="balancer"):
        balancer.freeze()


@pytest.mark.parametrize("message", [Ack(1), LastTable(0)], ids=["Ack", "LastTable"])
def test_a_message_for_others_is_refused_by_name(message) -> None:
    with pytest.raises(ProtocolError, match=f"balancer cannot take a {type(message).__name__} from coordinator"):
        Balancer()(COORDINATOR, message)


def test_an_event_of_others_is_refused() -> None:
    with pytest.raises(ProtocolError, match="balancer cannot take a Start"):
        Balancer().event(Start())
