"""Ray as the place where tasks run: an actor for each task, on a Ray started for the job or on one that is running."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from dpa._util.sharing import Background
from dpa.errors import JobFailedError
from dpa.protocol.plan import RunHooks, RunOutcome, RunPlan
from dpa.protocol.wire.nodes import BackendNode, JobDemand, Placer
from dpa.runtime.cluster import alive_nodes, ray_session, set_token

if TYPE_CHECKING:
    from dpa.runtime.launch import Generations

_OWN_ACTORS = 2  # the coordinator and the load balancer, which each job has besides the tasks of its stages

_CROWD = 16  # tasks for each processor from which on they are hardly what was wanted


@dataclass(frozen=True)
class RayBackend:
    """Runs plans on Ray.

    Attributes:
        address: of a running cluster; None starts a Ray for the job, unless the process has one.
        runtime_env: Ray's runtime environment for the actors, used with an address only.
        object_store_mb: size of the object store of a Ray that is started, in MiB.
        reached: a block in which the job can be asked.
    """

    name: ClassVar[str] = "ray"
    samples: ClassVar[bool] = True

    address: str | None = None
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    object_store_mb: int = 1024
    reached: Callable[[Generations], AbstractContextManager[object]] = nullcontext

    def nodes(self) -> list[BackendNode]:
        """The nodes of the cluster. ConfigError if there is none at the address."""
        with ray_session(self.address, runtime_env=dict(self.runtime_env)):
            return alive_nodes()

    def prepared(
        self, tasks: int, placer: Placer | None = None, demand: JobDemand | None = None
    ) -> AbstractContextManager[RayRunner]:
        """A block in which Ray and the actors of `tasks` tasks start in the background, and one plan can be run. Ray
        ends in the background too, once the plan has been run, if it was started for the job."""
        if self.address is None:
            set_token(self.object_store_mb)  # which Ray reads when it is imported
        # Beside what comes before the block. An interpreter that ends meanwhile waits: a daemon could make it crash.
        threading.Thread(target=import_module, args=("dpa.runtime.launch",), name="dpa-import").start()
        return self._prepared(tasks, placer, demand)

    @contextmanager
    def _prepared(self, tasks: int, placer: Placer | None, demand: JobDemand | None) -> Iterator[RayRunner]:
        is_over = threading.Event()
        with Background(self._started(tasks, placer, demand, is_over)) as started:
            try:
                yield RayRunner(started)
            finally:
                is_over.set()

    @contextmanager
    def _started(
        self, tasks: int, placer: Placer | None, demand: JobDemand | None, is_over: threading.Event
    ) -> Iterator[Generations]:
        ready = ray_session(
            self.address,
            actors=tasks + _OWN_ACTORS,
            runtime_env=dict(self.runtime_env),
            object_store_mb=self.object_store_mb,
        )
        with ready as connection:
            if is_over.is_set():
                raise JobFailedError("the job ended before its tasks were started")
            from dpa.runtime.launch import Generations

            spares, changes = connection.spares(), connection.changes()
            with Generations(tasks, placer, spares, changes, demand) as generations, self.reached(generations):
                yield generations


class RayRunner:
    """Runs a plan on actors that may still be starting."""

    def __init__(self, started: Background[Generations]) -> None:
        self._started = started

    @property
    def is_ready(self) -> bool:
        return self._started.is_entered

    def run(self, plan: RunPlan, hooks: RunHooks) -> RunOutcome:
        """Run a plan. ConfigError if there is no cluster at the address; JobFailedError if user code failed, processes
        died more often than the plan bears, or Ray did not start."""
        try:
            generations = self._started.value()
            tasks = sum(stage.tasks for stage in plan.graph.stages)
            processors = sum(node.processors for node in alive_nodes())
            if 0 < _CROWD * processors < tasks:
                remedy = "give steps fewer, `parallelism: 1`, where one keeps up"
                hooks.warn(f"{tasks} tasks, each a process of its own, share {processors:g} processors: {remedy}")
            return generations.run(plan, hooks)
        finally:
            self._started.leave()
