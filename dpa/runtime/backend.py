"""Ray as the place where tasks run: one actor a task, on a Ray started for the job or on one that is running."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dpa.protocol.metrics import Snapshot
from dpa.protocol.plan import RunOutcome, RunPlan
from dpa.runtime.cluster import ray_session
from dpa.runtime.launch import launch
from dpa.runtime.packed_plan import require_picklable

_OWN_ACTORS = 2
"""Actors of every job besides the tasks of its stages: the coordinator and the load balancer."""


@dataclass(frozen=True)
class RayBackend:
    """Runs plans on Ray.

    Attributes:
        address: of a running cluster; None starts a Ray for the job, unless the process has one.
        runtime_env: Ray's runtime environment for the actors, used with an address only.
        object_store_mb: size of the object store of a Ray that is started, in MiB.
    """

    address: str | None = None
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    object_store_mb: int = 1024

    def check_executor(self, executor: object) -> None:
        """Check that an executor can be sent to actors.

        Raises:
            ConfigError: it cannot be pickled.
        """
        require_picklable(executor)

    def run(self, plan: RunPlan, observe: Callable[[Snapshot], None], warn: Callable[[str], None]) -> RunOutcome:
        """Run a plan, and leave Ray as it was found.

        Raises:
            ConfigError: there is no cluster at the address.
            JobFailedError: user code failed, an actor died, or Ray did not start.
        """
        actors = len(plan.graph.addresses) + _OWN_ACTORS
        with ray_session(
            self.address, actors=actors, runtime_env=dict(self.runtime_env), object_store_mb=self.object_store_mb
        ):
            return launch(plan, observe, warn)
