"""Channels, which deliver each message once and in the order it was sent in, whatever the network does; relays; and the
sums of what tasks that are gone have sent."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wires import mapper, reducer

from dpa.driver.summary import traffic_between
from dpa.errors import ProtocolError
from dpa.measure.load import Load, Traffic, TrafficMeter
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address, Present
from dpa.protocol.wire.channel import Inbox, Outbox
from dpa.protocol.wire.messages.tables import LoadReport
from dpa.protocol.wire.metrics import Forgotten, Snapshot, StageSnapshot, TaskStats
from dpa.protocol.wire.relays import RELAYED_TASKS, Relay, relay_of, relays_for
from dpa.protocol.wire.use import EARLIER, TaskUse, forget_receivers, with_sums

numbers = st.lists(st.integers(0, 9), max_size=12)


def numbered(sender: Address, queues: list[int]) -> list:
    """Envelopes from a sender to reducer 0; load reports stand for any message."""
    outbox = Outbox(sender)
    return [outbox.envelope(reducer(0), LoadReport(Load(queue, 0))) for queue in queues]


@given(numbers, st.data())
def test_whatever_the_arrival_messages_are_delivered_once_and_in_order(queues: list[int], data: st.DataObject) -> None:
    sent = numbered(mapper(0), queues)
    twice = [envelope for envelope in sent if data.draw(st.booleans())]
    inbox, delivered = Inbox(), []
    for envelope in data.draw(st.permutations(sent + twice)):
        delivered += inbox.accept(envelope)
    assert [message.load.queue for message in delivered] == queues
    assert (inbox.empty, inbox.expected(mapper(0))) == (True, len(queues))


def test_what_an_older_generation_has_left_on_the_way_is_dropped_and_a_newer_one_is_an_error() -> None:
    old, new, report = Outbox(mapper(0)), Outbox(mapper(0), generation=1), LoadReport(Load(3, 0))
    inbox = Inbox(generation=1)
    assert list(inbox.accept(old.envelope(reducer(0), report))) == []
    assert list(inbox.accept(new.envelope(reducer(0), report))) == [report]
    assert inbox.expected(mapper(0)) == 1
    with pytest.raises(ProtocolError, match="reducer 0 of generation 0 got a message from generation 1 of mapper 0"):
        list(Inbox().accept(new.envelope(reducer(0), report)))


def test_what_comes_from_a_task_that_is_gone_is_a_copy() -> None:
    inbox, outbox = Inbox(), Outbox(reducer(0))
    first, second = numbered(mapper(1), [3, 4])
    assert list(inbox.accept(first))
    for end in (inbox, outbox):
        end.forget(Present("mapper", (0, 2), 3))
        end.forget(Present("mapper", (0, 1, 2), 3))  # what was said before comes after it
    assert list(inbox.accept(first)) == list(inbox.accept(second)) == [] and inbox.empty
    [other], [later] = numbered(mapper(0), [5]), numbered(mapper(3), [6])
    assert list(inbox.accept(other)) and list(inbox.accept(later))


def test_a_sender_counts_anew_for_nobody_that_is_there() -> None:
    outbox = Outbox(mapper(0))
    for task in (reducer(0), reducer(1)):
        outbox.envelope(task, LoadReport(Load(0, 0)))
    outbox.forget(Present("reducer", (1,), 2))
    assert (outbox.sent(reducer(0)), outbox.sent(reducer(1))) == (0, 1)


def test_a_message_counts_as_delivered_when_it_is_handed_out_and_not_before() -> None:
    """Who waits for a sender's last message must not go on while that is still to be taken in."""
    first, second = numbered(mapper(0), [1, 2])
    inbox = Inbox()
    assert list(inbox.accept(second)) == []
    assert [inbox.expected(mapper(0)) for _ in inbox.accept(first)] == [1, 2]


# --- relays

STAGES = ("read", "pass", "sum")


def test_a_job_of_few_tasks_has_no_relays_and_one_of_many_has_as_many_tasks_at_each() -> None:
    assert relays_for(RELAYED_TASKS) == 0
    assert relay_of(Address("sum", 3), 0) is None
    relays = relays_for(3 * 256)
    found = Counter(relay_of(Address(stage, index), relays) for stage in STAGES for index in range(256))
    assert found == dict.fromkeys(range(relays), 3 * 256 // relays)
    assert relays_for(RELAYED_TASKS + 1) == 1
    assert relay_of(COORDINATOR, relays) is None and relay_of(BALANCER, relays) is None


@given(st.lists(st.floats(0, 10, allow_nan=False), min_size=1, max_size=200).map(sorted))
def test_what_comes_is_soon_on_its_way_in_few_bundles(times: list[float]) -> None:
    relay, passed = Relay[float](), list[float]()
    for at in times:
        if passed and passed[-1] < at:
            relay.take()
        due = relay.gather(at, at)
        passed += [] if due is None else [due]
        assert at <= passed[-1] <= at + 0.0401, "no message waits for longer than from one bundle to the next"
    assert all(after - before >= 0.0399 for before, after in pairwise(passed))
    assert passed[0] <= times[0] + 0.0051, "what comes after a while of silence goes soon"


def test_a_relay_says_once_of_a_bundle_when_it_is_due_and_passes_all_of_it_on() -> None:
    relay = Relay[str]()
    due = relay.gather("one", 10.0)
    assert due is not None and due > 10.0
    assert relay.gather("two", 10.001) is None
    assert relay.take() == ["one", "two"]
    following = relay.gather("three", due)
    assert following is not None and following > due
    assert relay.take() == ["three"]


def test_a_relay_spreads_what_is_for_tasks_that_there_are() -> None:
    relay, tasks = Relay[str](), [Address("sum", index) for index in range(3)]
    relay.meet(tasks[:2])
    relay.part(Present("sum", (1,), 2))
    assert relay.spread([(task, str(task)) for task in tasks]) == [(tasks[1], str(tasks[1]))]


# --- what is kept of the use of tasks that are gone

USE = {
    mapper(0): TaskUse("a", 5, 1.0, {reducer(0): Traffic(1, 10, 100), reducer(2): Traffic(2, 20, 200)}),
    mapper(1): TaskUse("b", 7, 2.0, {reducer(0): Traffic(4, 40, 400)}),
    mapper(2): TaskUse("a", 6, 4.0, {reducer(2): Traffic(8, 80, 800)}),
}


def test_what_forgotten_tasks_used_is_that_of_one() -> None:
    found = with_sums(with_sums(USE, {mapper(1), mapper(2)}), {mapper(2)})
    assert found == {
        mapper(2): USE[mapper(2)],
        Address(MAPPER, EARLIER): TaskUse("", 7, 3.0, {Address(REDUCER, EARLIER): Traffic(7, 70, 700)}),
    }
    assert with_sums(USE, USE) == USE


def test_the_traffic_of_forgotten_tasks_is_in_the_sums_alone() -> None:
    def stage(name: str, forgotten: int, *tasks: int) -> StageSnapshot:
        stats = tuple(TaskStats(name, index) for index in tasks)
        return StageSnapshot(name, "done", stats, forgotten=Forgotten(forgotten, TaskStats(name, 0)))

    use = {**with_sums(USE, {mapper(2)}), reducer(2): TaskUse()}
    snapshot = Snapshot("done", 1.0, 0, (stage(MAPPER, 2, 2), stage(REDUCER, 2, 2)))
    [traffic] = traffic_between(use, snapshot)
    assert (traffic.messages, traffic.records, traffic.bytes, traffic.pairs) == (15, 150, 1_500, ((800,),))


def test_the_traffic_has_a_row_for_each_task_that_there_is_or_was_whatever_its_number() -> None:
    use = {mapper(1_000): TaskUse("a", 1, 1.0, {reducer(0): Traffic(1, 10, 100)}), reducer(0): TaskUse()}
    stages = (
        StageSnapshot(MAPPER, "done", (TaskStats(MAPPER, 1_000),)),
        StageSnapshot(REDUCER, "done", (TaskStats(REDUCER, 0),)),
    )
    [traffic] = traffic_between(use, Snapshot("done", 1.0, 0, stages))
    assert traffic.pairs == ((100,),)


def test_receivers_that_are_gone_are_counted_one_by_one_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpa.protocol.wire.use._GONE_KEPT", 2)
    meter: TrafficMeter[Address] = TrafficMeter()
    for index in range(6):
        meter.sent(reducer(index), 1, 10)
    for _ in range(2):
        forget_receivers(meter, Present(REDUCER, (4,), 5))
    kept = {reducer(index): Traffic(1, 1, 10) for index in (2, 3, 4, 5)}
    assert meter.found() == {Address(REDUCER, EARLIER): Traffic(2, 2, 20), **kept}
