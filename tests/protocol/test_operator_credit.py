"""What an operator task tells its senders of credit: the window that its speed allows, and what it has forwarded."""

from __future__ import annotations

import pytest
from wires import OperatorWire, mapper, processing, pushed, sent

from dpa.protocol.task._credit import ActiveSenders
from dpa.protocol.wire.events import ProcessDone
from dpa.protocol.wire.messages.data import Ack, CreditTransfer


def windows(wire: OperatorWire, *quanta: float) -> list[int | None]:
    """The windows that come with the acknowledgements of quanta that take so many seconds."""
    found = []
    for seconds in quanta:
        [(_, ack)] = sent(wire.task.handle(ProcessDone(seconds), 1.0), Ack)
        found.append(ack.window)
    return found


def test_an_acknowledgement_tells_each_of_the_senders_its_share_of_what_the_delay_is_worth() -> None:
    wire = OperatorWire(most=10, queue_seconds=0.5)
    for index in (0, 1):
        wire.push("a" * 10, origin=mapper(index))
    wire.push("a", origin=mapper(0))
    assert windows(wire, 0.1) == [25]  # 50 records of 10 ms take 0.5 s, and there are two senders


def test_a_sender_that_has_been_silent_for_seconds_has_no_share() -> None:
    active = ActiveSenders()
    for index, now in ((0, 0.0), (1, 0.5)):
        active.sent(mapper(index), 0, now)
    assert active.number == 2
    for now in (1.0, 1.5, 2.0, 2.5):
        active.sent(mapper(1), 0, now)
    assert active.number == 1


def test_each_edge_of_a_sender_counts() -> None:
    active = ActiveSenders()
    assert active.number == 1
    for edge in (0, 1):
        active.sent(mapper(0), edge, 0.0)
    assert active.number == 2


def test_the_window_follows_the_service_time() -> None:
    wire = OperatorWire(most=10, queue_seconds=0.5)
    for _ in range(4):
        wire.push("a" * 10)
    fast, _, slower, slow = windows(wire, 0.1, 0.1, 1.0, 10.0)
    assert fast == pytest.approx(50, abs=1)
    assert slower is not None and slow is not None
    assert 50 > slower > slow >= 1


def test_trials_make_no_window_and_no_quantum_smaller_but_a_task_busy() -> None:
    wire = OperatorWire(most=100, queue_seconds=0.5)
    given = [*processing(wire.push("a" * 16)), *processing(wire.push("b" * 16)), *processing(wire.push("c" * 16))]
    for _ in range(3):
        found = wire.task.handle(ProcessDone(1.05, tried=1.0), 1.0)
        given += processing(found)
        [(_, ack)] = sent(found, Ack)
    assert given == [key * 16 for key in "abc"]
    assert ack.window == pytest.approx(160, abs=3), "a record takes 3 ms"
    assert wire.task.busy_seconds == pytest.approx(3.15)


def test_the_window_is_a_record_at_least_and_the_bound_in_records_at_most() -> None:
    wire = OperatorWire(most=10, queue_seconds=0.5)
    wire.push("a" * 10)
    assert windows(wire, 0.0) == [1_000]
    wire = OperatorWire(most=10, queue_seconds=0.5)
    wire.push("a" * 10)
    assert windows(wire, 500.0) == [1]


def test_without_a_delay_to_aim_at_no_window_is_told() -> None:
    wire = OperatorWire(most=10)
    wire.push("a" * 10)
    assert windows(wire, 0.1) == [None]


def transfers(instructions: list) -> list[tuple[int, int, int, int]]:
    """The credit that follows forwarded records: the sender's number, the edge, the records, who has them now."""
    return [(to.index, moved.edge, moved.records, moved.receiver) for to, moved in sent(instructions, CreditTransfer)]


def test_credit_follows_what_is_forwarded_in_one_message_for_each_sender_edge_and_receiver() -> None:
    wire = OperatorWire(most=1)
    wire.push("a")  # user code is at work on it
    wire.push("bba", origin=mapper(0))
    wire.push("bc", origin=mapper(0))
    wire.push("bb", origin=mapper(0), edge=1)
    wire.push("cbc", origin=mapper(1))
    instructions = wire.update(1)
    assert len(pushed(instructions)) == 6
    assert sorted(transfers(instructions)) == [(0, 0, 1, 2), (0, 0, 3, 1), (0, 1, 2, 1), (1, 0, 1, 1), (1, 0, 2, 2)]


@pytest.mark.parametrize("eager", [True, False], ids=["eager", "lazy"])
def test_credit_follows_records_that_come_by_an_older_table(eager: bool) -> None:
    wire = OperatorWire(eager=eager)
    wire.update(1)
    assert transfers(wire.push("abcb")) == [(0, 0, 2, 1), (0, 0, 1, 2)]


def test_records_that_stay_keep_their_credit_here() -> None:
    wire = OperatorWire()
    assert transfers([*wire.push("aaa"), *wire.update(1), *wire.done()]) == []


def test_the_credit_of_what_is_forwarded_on_goes_from_here_to_the_next() -> None:
    wire = OperatorWire(eager=False)
    wire.update(2)
    assert transfers(wire.push("bb", version=1, hops=1, origin=mapper(1))) == [(1, 0, 2, 1)]
