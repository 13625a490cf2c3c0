"""Channels: whatever the network does to the order of messages, each comes once and in the order it was sent in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wires import mapper, reducer

from dpa.errors import ProtocolError
from dpa.measure.load import Load
from dpa.protocol.wire.addresses import Address, Present
from dpa.protocol.wire.channel import Inbox, Outbox
from dpa.protocol.wire.messages.tables import LoadReport

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
