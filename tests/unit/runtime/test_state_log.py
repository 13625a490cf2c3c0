"""What a task logs of its machine: changes alone, and only if somebody wants the log."""

import logging

import pyarrow as pa
import pytest

from dpa.execution.block import Block
from dpa.protocol.balancer.machine import load_balancer_of
from dpa.protocol.graph import map_reduce
from dpa.protocol.machines import task_of
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.messages.data import Push
from dpa.protocol.wire.messages.end import Freeze
from dpa.protocol.wire.messages.splits import Begin
from dpa.protocol.wire.messages.tables import TableUpdate
from dpa.routing.change import TableChange
from dpa.runtime.actors._shell import StateLog

GRAPH = map_reduce((), 1, 2)
SOURCE, OPERATOR = GRAPH.addresses[:2]


def test_changes_of_states_and_tables_are_logged_and_records_are_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dpa")
    machine = task_of(GRAPH, OPERATOR)
    log = StateLog(machine)
    table = GRAPH[OPERATOR.stage].first_table()
    change = TableUpdate(OPERATOR.stage, TableChange.of(table, {5: 1}, ()))
    block = Block.of(pa.array(["a"]), None, 0)
    messages = [(SOURCE, Push(block, 0, SOURCE, 0, 0.0, 0.0)), (BALANCER, change)]
    for sender, message in messages:
        machine.handle(Envelope(sender, OPERATOR, 0, message), 0.0)
        log.look()
    assert caplog.messages == ["routing table of reducer: 0 -> 1"]


def test_a_source_and_the_balancer_log_their_states(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dpa")
    for machine, message in (
        (task_of(GRAPH, SOURCE), Begin()),
        (load_balancer_of(GRAPH), Freeze(OPERATOR.stage)),
    ):
        log = StateLog(machine)
        machine.handle(Envelope(COORDINATOR, machine.address, 0, message), 0.0)
        log.look()
    assert caplog.messages == ["state: starting -> requesting", "stage reducer: balancing -> frozen"]


def test_nothing_is_looked_at_where_nobody_wants_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "dpa")
    machine = task_of(GRAPH, SOURCE)
    log = StateLog(machine)
    machine.handle(Envelope(COORDINATOR, SOURCE, 0, Begin()), 0.0)
    log.look()
    assert not caplog.messages
