"""Signals ride on acknowledgements: operator tasks judge themselves, their senders learn it and route by it."""

from __future__ import annotations

import numpy as np
import pytest
from builders import table_giving
from wires import OperatorWire, SourceWire, emitter_for, mapper, push, reducer, sent

from dpa.balance.delegation import Delegation
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import ProcessDone
from dpa.protocol.wire.messages.data import Ack, Push
from dpa.routing.groupings.base import CapacityRequest, Grouping, Signal
from dpa.routing.groupings.options import BY_KIND, KINDS, SignalOptions
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners

TABLE = table_giving({"a": 0, "b": 1, "c": 2})
WATCH = SignalOptions(slot_seconds=1.0, theta_busy=0.9, theta_idle=0.5, utilisation="busy")


class GoesByHearsay(Grouping):
    """Sends everything to the task that it heard of last."""

    def __init__(self) -> None:
        super().__init__(3)
        self.heard: list[tuple[int, Signal]] = []

    def choose(self, hashes: Hashes) -> Owners:
        return np.full(len(hashes), self.heard[-1][0] if self.heard else 0, dtype=np.int32)

    def observe(self, reducer: int, signal: Signal) -> None:
        self.heard.append((reducer, signal))

    @property
    def moved(self) -> int:
        return len(self.heard)


def test_a_grouping_observes_a_signal_before_the_records_that_are_made_next() -> None:
    grouping = GoesByHearsay()
    source = SourceWire(emitter_for(TABLE, 4, grouping=grouping))
    assert [to for to, _ in sent(source.stepped("aaa"), Push)] == [reducer(0)]
    signal = Signal(7, 0.99, CapacityRequest.DECREASE)
    assert sent(source(reducer(2), Ack(0, 0, signal=signal)), Push) == []
    assert [(to, message.block.rows) for to, message in sent(source.stepped("bbb"), Push)] == [(reducer(2), 1)]
    freed = source(reducer(0), Ack(0, 3, signal=Signal(8, 0.99, CapacityRequest.DECREASE)))
    assert [to for to, _ in sent(freed, Push)] == [reducer(2)]  # what waits was routed when it was made
    assert [to for to, _ in sent(source.stepped("c"), Push)] == [reducer(0)]
    assert [to for to, _ in grouping.heard] == [2, 0]
    assert source.task.stats.regrouped == 2


def test_a_signal_concerns_the_grouping_of_its_edge_alone() -> None:
    left, right = GoesByHearsay(), GoesByHearsay()
    edges = [emitter_for(TABLE, edge=7, stage="left", grouping=left), emitter_for(TABLE, edge=9, grouping=right)]
    source = SourceWire(*edges)
    source.stepped("a", "a")
    source(Address("left", 1), Ack(7, 1, signal=Signal(7, 0.99, CapacityRequest.DECREASE)))
    assert ([reducer for reducer, _ in left.heard], right.heard) == ([1], [])


def test_a_task_that_nobody_listens_to_sends_no_signal() -> None:
    wire = OperatorWire()
    wire(mapper(0), push("ab"))
    assert [message.signal for _, message in sent(wire.task.handle(ProcessDone(5.0), 5.0), Ack)] == [None]


def test_each_acknowledgement_brings_the_signal_of_the_last_slot() -> None:
    wire = OperatorWire(most=1, delegation=Delegation(WATCH))
    wire(mapper(0), push("aaaa"), 10.0)
    found = []
    for at, seconds in ((10.96, 0.96), (11.06, 0.1), (11.5, 0.2), (12.1, 0.3)):
        [(_, ack)] = sent(wire.task.handle(ProcessDone(seconds), at), Ack)
        found.append(ack.signal)
    assert found[0] is None
    assert found[1] == found[2]
    assert found[1] is not None
    assert found[1].request is CapacityRequest.DECREASE
    assert found[1].slot == 10
    assert found[1].utilisation == pytest.approx(1.06 / 1.06)
    assert found[1].service_seconds == pytest.approx(1.06 / 2)
    assert found[3] is not None
    assert found[3].slot == 11
    assert found[3].request is CapacityRequest.INCREASE
    assert found[3].utilisation == pytest.approx(0.5 / 1.04)


@pytest.mark.parametrize("kind", KINDS)
def test_all_groupings_but_two_send_records_of_one_key_to_several_tasks(kind: str) -> None:
    assert BY_KIND[kind]().splits_keys == (kind not in ("ring", "key"))
