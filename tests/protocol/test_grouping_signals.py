"""Signals ride on acknowledgements: reducers judge themselves, mappers hear of it and route by it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from builders import ReducerWire, Wire, block_of, push, sent, table_giving
from test_coordinator_machine import drained

from dpa.balance.delegation import DelegationOptions
from dpa.execution.mapping import Mapped
from dpa.protocol.machine import Instruction, MapDone, ProcessDone, Start
from dpa.protocol.mapper import MapperMachine
from dpa.protocol.messages import BALANCER, COORDINATOR, Ack, LastTable, Merge, Push, SplitGrant, mapper, reducer
from dpa.routing.groupings.base import Grouping
from dpa.routing.groupings.options import KINDS, GroupingOptions
from dpa.routing.groupings.signal import Signal, Wish
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners
from dpa.splits import MemorySplit

TABLE = table_giving({"a": 0, "b": 1, "c": 2})
WATCH = DelegationOptions(slot_seconds=1.0, theta_busy=0.9, theta_idle=0.5, utilisation="busy", queue_records=10)


class GoesByHearsay(Grouping):
    """Sends everything to the reducer that it heard of last."""

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


def test_a_mapper_tells_its_grouping_of_signals_before_it_pushes_on() -> None:
    grouping = GoesByHearsay()
    machine = MapperMachine(0, TABLE, 4, grouping)
    wire = Wire(machine)
    machine.handle(Start(), 0.0)
    wire(COORDINATOR, SplitGrant(MemorySplit(pa.table({"key": ["a"]}))))

    def mapped(keys: str) -> list[Instruction]:
        return machine.handle(MapDone(Mapped(block_of(list(keys)), len(keys), len(keys))), 0.0)

    assert [to for to, _ in sent(mapped("aabb"), Push)] == [reducer(0)]
    assert sent(mapped("aabb"), Push) == []
    assert sent(wire(reducer(0), Ack(2)), Push) == []
    signal = Signal(7, 0.99, Wish.DECREASE)
    assert [to for to, _ in sent(wire(reducer(2), Ack(2, signal)), Push)] == [reducer(2)]
    assert grouping.heard == [(2, signal)]
    assert machine.stats.regrouped == 1
    assert sum(machine.stats.static_load) == 8


def test_a_reducer_that_nobody_listens_to_sends_no_signal() -> None:
    wire = ReducerWire()
    wire(mapper(0), push("ab"))
    assert [message.signal for _, message in sent(wire.reducer.handle(ProcessDone(5.0), 5.0), Ack)] == [None]


def test_a_reducer_tells_of_the_last_slot_with_each_acknowledgement() -> None:
    wire = ReducerWire(most=1, delegation=WATCH)
    wire(mapper(0), push("aaaa"), 10.0)
    found = []
    for at, seconds in ((10.96, 0.96), (11.06, 0.1), (11.5, 0.2), (12.1, 0.3)):
        [(_, ack)] = sent(wire.reducer.handle(ProcessDone(seconds), at), Ack)
        found.append(ack.signal)
    assert found[0] is None
    assert found[1] == found[2]
    assert found[1] is not None
    assert found[1].wish is Wish.DECREASE
    assert found[1].slot == 10
    assert found[1].utilisation == pytest.approx(1.06 / 1.06)
    assert found[1].service_seconds == pytest.approx(1.06 / 2)
    assert found[3] is not None
    assert found[3].slot == 11
    assert found[3].wish is Wish.INCREASE
    assert found[3].utilisation == pytest.approx(0.5 / 1.04)


@pytest.mark.parametrize(("scattered", "exchange"), [(False, False), (True, True)])
def test_states_are_exchanged_without_a_new_table_if_keys_were_scattered(scattered: bool, exchange: bool) -> None:
    coordinator = drained(scattered=scattered)
    coordinator.reduced(0, 7)
    assert [merge.exchange for _, merge in sent(coordinator(BALANCER, LastTable(0)), Merge)] == [exchange] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_states_leave_home_where_records_do_or_where_rounds_take_them_from_a_grouping_with_other_homes(
    kind: str,
) -> None:
    options = GroupingOptions(kind)
    assert options.scatters == (kind not in ("ring", "key"))
    assert options.leaves_home(aggregates=False) == options.scatters
    assert options.leaves_home(aggregates=True) == (kind != "ring")
