"""Senders to a stage whose states migrate mark the channels to those that lose ranges."""

from __future__ import annotations

from wires import (
    REDUCER_TABLES,
    SourceWire,
    emitter_for,
    pushed,
    reducer,
    sent,
    update_between,
)

from dpa.protocol.wire.addresses import BALANCER
from dpa.protocol.wire.messages.data import Ack, Push
from dpa.protocol.wire.messages.migration import Marker


def test_a_sender_marks_its_channels_to_those_that_lose_ranges_after_what_it_pushed_by_older_tables() -> None:
    emitter = emitter_for(REDUCER_TABLES[0], credit=2, migrates=True)
    source = SourceWire(emitter)
    source.stepped("bcb")
    done = source(BALANCER, update_between(*REDUCER_TABLES[:2]))
    assert sent(done, Marker) == [(reducer(0), Marker(1))]
    assert pushed(done) == [], "credit is used up, and the marker does not wait for it"
    later = source(reducer(0), Ack(0, 2))
    assert pushed(later) == [(1, "b")] and sent(later, Marker) == []
    [(_, message)] = sent(later, Push)
    assert message.version == 1


def test_a_sender_with_two_edges_to_a_stage_marks_it_once() -> None:
    emitters = [emitter_for(REDUCER_TABLES[0], edge=edge, migrates=True) for edge in (0, 1)]
    done = SourceWire(*emitters)(BALANCER, update_between(*REDUCER_TABLES[:2]))
    assert sent(done, Marker) == [(reducer(0), Marker(1))]


def test_a_sender_to_a_stage_in_merge_mode_marks_nothing() -> None:
    done = SourceWire(emitter_for(REDUCER_TABLES[0]))(BALANCER, update_between(*REDUCER_TABLES[:2]))
    assert sent(done, Marker) == []
