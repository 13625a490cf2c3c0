"""The simulator as the place where tasks run: the machines of `dpa.protocol` in virtual time. User code runs for real,
in this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import ClassVar

from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.graph import Publishing
from dpa.protocol.plan import RunHooks, RunOutcome, RunPlan, Times
from dpa.protocol.task.delivery import TaskOutput
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.nodes import JobDemand, Placer
from dpa.sources.feed import all_splits
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import NETWORK, Network, SimulatedJob


@dataclass(frozen=True)
class SimulatedBackend:
    """Runs plans in virtual time, whose seconds are those of the report's stream and merge.

    Neither slowness nor partial results are simulated. An input that is open ends where nothing more has come.

    Attributes:
        seed: of the scheduler, which varies delays and order.
        step_seconds: virtual time in which a task of a stage makes one record.
        service_seconds: virtual time in which a task, by stage and number, processes one record.
        network: how messages travel.
    """

    name: ClassVar[str] = "simulated"
    samples: ClassVar[bool] = False
    is_ready: ClassVar[bool] = True

    seed: int = 0
    step_seconds: Callable[[str], float] = lambda stage: 0.0001
    service_seconds: Callable[[str, int], float] = lambda stage, index: 0.001
    network: Network = NETWORK

    def prepared(
        self, tasks: int, placer: Placer | None = None, demand: JobDemand | None = None
    ) -> AbstractContextManager[SimulatedBackend]:
        """Nothing has to be started: a block with this backend itself."""
        return nullcontext(self)

    def run(self, plan: RunPlan, hooks: RunHooks) -> RunOutcome:
        """Run a plan; the statistics are those at the end, and requests to change tasks are not looked at.

        Raises:
            InvariantViolationError: user code failed, or a machine broke an invariant; carries the events until then.
        """
        if any(to.first is not None for to in plan.deliveries.values()):
            hooks.warn("partial results are not published in a simulation")
        plan = _with_what_has_come(plan)
        started = time.time()
        times = (self.step_seconds, self.service_seconds)
        stages = tuple(
            replace(stage, expected_seconds=None, publishing=tuple(Publishing() for _ in stage.publishing))
            for stage in plan.graph.stages
        )  # expected is real time
        graph = replace(plan.graph, stages=stages)
        job = SimulatedJob(graph, plan.tasks, *times, self.network, ticks=None, deliveries=plan.deliveries)
        job = replace(job, room=plan.limits.room(0))
        cluster = SimulatedCluster(job, self.seed)
        try:
            run = cluster.run()
        finally:
            hooks.observe(cluster.coordinator.snapshot())
        outputs = {
            stage.name: tuple(
                _delivered(cluster, address) for address in cluster.coordinator.stages[stage.name].addresses
            )
            for stage in plan.graph.queue_fed()
        }
        moments = _moments(cluster.coordinator, started)
        return RunOutcome(
            outputs, run.snapshot, moments, letters=cluster.coordinator.errors.noted.letters, given=plan.given
        )


def _with_what_has_come(plan: RunPlan) -> RunPlan:
    """The plan with the open inputs as they are now: they end where nothing more has come."""
    come = {name: tuple(all_splits(feed, plan.limits.split_rows)) for name, feed in plan.feeds.items()}
    stages = (
        replace(stage, input=replace(stage.input, splits=come[stage.name], position=None))
        if stage.name in come
        else stage
        for stage in plan.graph.stages
    )
    return replace(plan, graph=replace(plan.graph, stages=tuple(stages)), feeds={})


def _delivered(cluster: SimulatedCluster, address: Address) -> TaskOutput:
    output = cluster.user_code[address].output
    assert output is not None
    return output


def _moments(coordinator: CoordinatorMachine, started: float) -> Times:
    """The machine's virtual moments, as if virtual time had begun at `started`."""
    first = coordinator.first_record_at
    return Times(
        started=started,
        stream_started=started + (coordinator.started_at or 0.0),
        first_record=None if first is None else started + first,
        stream_ended=started + (coordinator.stream_ended_at or coordinator.now),
        merged=started + (coordinator.done_at or coordinator.now),
    )
