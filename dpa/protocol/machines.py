"""The machines of tasks and of the load balancer, made of the graph: the runtime and the simulator start from these."""

from __future__ import annotations

from dpa.balance.delegation import DelegationOptions
from dpa.protocol.addresses import Address
from dpa.protocol.emitter import Emitter
from dpa.protocol.graph import Graph
from dpa.protocol.load_balancer import LoadBalancerMachine
from dpa.protocol.migration import MigrationOptions
from dpa.protocol.offered_meter import OfferedMeter
from dpa.protocol.operator import OperatorMachine
from dpa.protocol.quantum import QuantumSizer
from dpa.protocol.source import SourceMachine
from dpa.protocol.task import TaskMachine


def load_balancer_of(graph: Graph) -> LoadBalancerMachine:
    """The machine of the load balancer."""
    stages = list(graph.queue_fed())
    return LoadBalancerMachine(
        {stage.name: stage.balance.policy(stage.tasks, may_split=not stage.migrates) for stage in stages},
        {stage.name: [*graph.senders(stage.name), *stage.addresses] for stage in stages},
        {stage.name: stage.tasks for stage in stages if stage.migrates},
    )


def task_of(
    graph: Graph,
    address: Address,
    *,
    source: type[SourceMachine] = SourceMachine,
    operator: type[OperatorMachine] = OperatorMachine,
) -> TaskMachine:
    """The machine of a task of a stage. Tests give broken machines in place of `source` and `operator`."""
    stage = graph[address.stage]
    emitters = emitters_of(graph, address)
    if graph.is_source(stage.name):
        return source(address, emitters)
    return operator(
        address,
        stage.first_table(),
        emitters,
        eager=stage.balance.forwards_eagerly,
        goes_by_table=stage.grouping.is_ring,
        quantum=QuantumSizer(stage.quantum_records, stage.quantum_seconds),
        limits=graph.credit(stage.name),
        reports=stage.balance.reports,
        delegation=DelegationOptions.of(
            stage.grouping.signals, graph.queue_bound(stage.name) // stage.tasks, stage.queue_seconds
        ),
        migration=MigrationOptions(tuple(graph.senders(stage.name)), stage.piece_keys) if stage.migrates else None,
    )


def emitters_of(graph: Graph, address: Address) -> list[Emitter]:
    """A task's emitters, one for each edge that leaves its stage."""
    emitters = []
    for number, edge in graph.out_of(address.stage):
        target = graph[edge.target]
        table = target.first_table()
        senders = graph.senders(target.name)
        sender = senders.index(address)
        grouping = target.grouping.create(table, sender)
        reports = target.balance.reports
        meter = OfferedMeter(sender, len(senders)) if reports is not None and reports.measures_keys else None
        credit = graph.credit(target.name)
        emitters.append(Emitter(number, target.name, address, table, grouping, credit, meter, migrates=target.migrates))
    return emitters
