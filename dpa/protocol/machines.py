"""The machines of tasks, made of the graph: the runtime and the simulator start from these."""

from dpa.balance.delegation import Delegation
from dpa.protocol.graph import Graph
from dpa.protocol.task.emitter import Emitter
from dpa.protocol.task.machine import TaskMachine
from dpa.protocol.task.operator import OperatorMachine
from dpa.protocol.task.source import SourceMachine
from dpa.protocol.wire.addresses import Address


def task_of(
    graph: Graph,
    address: Address,
    *,
    source: type[SourceMachine] = SourceMachine,
    operator: type[OperatorMachine] = OperatorMachine,
) -> TaskMachine:
    """The machine of a task of a stage. Tests give broken machines in place of `source` and `operator`."""
    stage, emitters = graph[address.stage], emitters_of(graph, address)
    task: TaskMachine
    if graph.is_source(stage.name):
        task = source(address, emitters)
    else:
        signals, full = stage.grouping.signals, graph.queue_bound(stage.name) // stage.tasks
        delegation = None if signals is None else Delegation(signals, full, stage.flow.queue_seconds)
        task = operator(address, emitters, stage, tuple(graph.senders(stage.name)), delegation)
    task.report_seconds = graph.report_seconds
    return task


def emitters_of(graph: Graph, address: Address) -> list[Emitter]:
    emitters = []
    for number, edge in graph.out_of(address.stage):
        target = graph[edge.target]
        senders = graph.senders(target.name)
        sender = senders.index(address) if address in senders else len(senders) + address.index
        emitters.append(Emitter(number, address, target, graph.credit(target.name), sender, len(senders)))
    return emitters
