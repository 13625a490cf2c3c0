"""Graphs in the simulator: no interleaving of random chains, diamonds and joins breaks an invariant, and machines that
are broken on purpose are caught."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from wires import check_waits

from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.coordinator.stage_progress import StageProgress
from dpa.protocol.task.machine import TaskMachine
from dpa.protocol.task.operator import OperatorMachine
from dpa.protocol.task.source import SourceMachine
from dpa.protocol.wire.messages.data import Ack
from dpa.protocol.wire.metrics import TaskStats
from experiments.simulated_jobs.random_graphs import random_graph, run_random_graph
from experiments.simulation.violation import InvariantViolationError

SEEDS = range(40)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_random_graph_breaks_an_invariant(seed: int) -> None:
    check_waits(run_random_graph(seed))


def test_random_graphs_have_all_shapes() -> None:
    happened: Counter[str] = Counter()
    for seed in range(100):
        graph = random_graph(seed).job.graph
        happened["chain"] += len(graph.stages) > 2
        happened["fan-out"] += any(len(graph.out_of(stage.name)) > 1 for stage in graph.stages)
        happened["fan-in"] += any(len(graph.upstream(stage.name)) > 1 for stage in graph.stages)
        happened["two edges between two stages"] += len(set(graph.edges)) < len(graph.edges)
        happened["two sources"] += sum(graph.is_source(stage.name) for stage in graph.stages) > 1
        happened["rounds"] += any(stage.publishing for stage in graph.stages)
    assert min(happened.values()) >= 5, happened


class FedByTheFirst(StageProgress):
    """Takes itself for fed when one of the stages that feed it is done."""

    @property
    def is_fed(self) -> bool:
        return any(feeder.is_done for feeder in self._feeders)


class DrainsWithTheFirst(CoordinatorMachine):
    """Sees stages as `FedByTheFirst` does."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        for stage in self.stages.values():
            stage.__class__ = FedByTheFirst


class _Hasty(TaskMachine):
    @property
    def has_emitted_all(self) -> bool:
        return self._production.is_closed

    @property
    def stats(self) -> TaskStats:
        return replace(super().stats, emitted=tuple(emitter.emitted for emitter in self.emitters))


class HastySource(_Hasty, SourceMachine):
    """Asks for the next split, or is done, while blocks wait for credit, which it has not counted."""


class _Boundless(TaskMachine):
    @property
    def is_open(self) -> bool:
        return True


class BoundlessSource(_Boundless, SourceMachine):
    """Makes records however many wait for credit."""


class MixesEdges(OperatorMachine):
    """Returns the credit of every record on the first edge of the graph that enters its stage."""

    def send(self, receiver: Any, message: Any) -> None:
        if isinstance(message, Ack):
            self._first_edge = min(getattr(self, "_first_edge", message.edge), message.edge)
            message = replace(message, edge=self._first_edge)
        super().send(receiver, message)


BROKEN = [
    {"coordinator": DrainsWithTheFirst},
    {"source": HastySource},
    {"source": BoundlessSource},
    {"operator": MixesEdges},
]

FIRST = {DrainsWithTheFirst: 7, HastySource: 14}
"""Seeds to begin with, where the least ones take long or do not catch it."""

ENOUGH_STEPS = 60_000
"""Those of a graph that does not end; the longest of these seeds takes 21,700."""


@pytest.mark.parametrize("machines", BROKEN, ids=lambda machines: next(iter(machines.values())).__name__)
def test_a_broken_machine_is_caught(machines: dict[str, Any]) -> None:
    [machine] = machines.values()
    for seed in (FIRST.get(machine, 0), *SEEDS):
        try:
            run_random_graph(seed, ENOUGH_STEPS, **machines)
        except InvariantViolationError:
            return
    pytest.fail(f"no seed of {SEEDS} catches it")
