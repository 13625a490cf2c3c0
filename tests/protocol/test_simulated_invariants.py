"""What the simulator's invariants hold of single messages and blocks."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from builders import block_of
from wires import mapper

from dpa.balance.decision import Decision, Outcome
from dpa.errors import ProtocolError
from dpa.protocol.graph import REDUCER, Graph
from dpa.protocol.machines import task_of
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.messages.data import Push
from dpa.protocol.wire.messages.splits import Begin, SplitGrant
from dpa.protocol.wire.messages.tables import DecisionReport
from dpa.routing.members import MemberChange
from dpa.sources.splits import memory_splits
from experiments.simulated_jobs.map_reduce import map_reduce
from experiments.simulation.checks.input_order import InputOrder
from experiments.simulation.checks.invariants import Invariants

INPUT = pa.table({"number": range(6)})


def graph_of(mappers: int) -> Graph:
    return map_reduce(tuple(memory_splits(INPUT, 3)), mappers, 2, consistency="migrate")


def pushed(*numbers: int, origin: int = 0) -> Push:
    block = block_of(["key"] * len(numbers), pa.record_batch({"number": pa.array(numbers, pa.int64())}))
    return Push(block, 0, mapper(origin), 0, 0.0, 0.0)


def test_a_late_copy_for_a_task_that_was_stopped_is_not_lost() -> None:
    graph = graph_of(2)
    tasks = {address: task_of(graph, address) for address in graph.addresses}
    invariants = Invariants(graph, tasks, None)
    begin = Envelope(COORDINATOR, mapper(), 0, Begin())
    tasks[mapper()].handle(begin, 0.0)
    invariants.received(begin, tasks[mapper()])
    invariants.stopped([mapper()])
    invariants.lost(mapper(), begin)
    with pytest.raises(ProtocolError, match="mapper 0 was stopped before it had taken"):
        invariants.lost(mapper(), Envelope(COORDINATOR, mapper(), 1, SplitGrant(None)))


def test_rows_of_a_split_are_in_order_whoever_reads_them() -> None:
    order = InputOrder(graph_of(2), graph_of(2), REDUCER)
    order.works(0, pushed(3, 4))
    order.works(0, pushed(0, 2, origin=1))  # of another split
    order.works(1, pushed(5, origin=1))
    with pytest.raises(ProtocolError, match="row 1 of key 'key' after row 2, against the order of their split"):
        order.works(1, pushed(1))


def test_rows_of_the_whole_input_are_in_order_while_one_task_reads_at_a_time() -> None:
    order, several, combined = (InputOrder(graph_of(1), graph_of(1), REDUCER) for _ in range(3))
    order.changes("mapper", MemberChange(replaces=((0, 1),)))
    order.works(0, pushed(3))
    with pytest.raises(ProtocolError, match="row 2 of key 'key' after row 3, against the order of the input"):
        order.works(0, pushed(2, origin=1))
    several.changes("mapper", MemberChange(joins=(1,)))
    several.works(0, pushed(3))
    several.works(0, pushed(2, origin=1))
    push = pushed(3)  # rows that a combiner has made one of have no order
    combined.works(0, replace(push, block=replace(push.block, combined=True)))
    combined.works(0, pushed(2))


def test_a_busy_task_without_a_queue_is_a_reason_to_redistribute_and_an_idle_one_is_none() -> None:
    graph = graph_of(1)
    invariants = Invariants(graph, {address: task_of(graph, address) for address in graph.addresses}, None)

    def decides(busy: str) -> None:
        reason = f"task 0 is busy {busy} of the time and has 0 s of work queued; split key 'key' over 2 tasks"
        decision = Decision(8.0, 0, Outcome.APPLIED, reason, (0, 0), 1, 1, split=0.2)
        invariants.sent(Envelope(BALANCER, COORDINATOR, 0, DecisionReport(REDUCER, (decision,))))

    decides("94%")
    with pytest.raises(ProtocolError, match="redistributed without a load reason"):
        decides("89%")
