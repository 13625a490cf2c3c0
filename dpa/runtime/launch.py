"""The driver's side of a run: start the coordinator, watch, fetch the outcome, and leave no actor behind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from dpa.errors import JobFailedError
from dpa.protocol.metrics import Snapshot
from dpa.runtime.plan import RunOutcome, RunPlan, Shipment

_POLL_SECONDS = 0.2


def run(plan: RunPlan, observe: Callable[[Snapshot], None]) -> RunOutcome:
    """Run a plan on the Ray of this process; `observe` gets statistics a few times a second, and those at the end.

    Raises:
        JobFailedError: user code failed, or an actor died. Also on KeyboardInterrupt no actor is left behind.
    """
    import ray
    from ray.exceptions import RayError

    from dpa.runtime.actors import create_coordinator
    from dpa.runtime.failures import explained

    shipment = Shipment.pack(plan)
    coordinator = create_coordinator(plan)
    try:
        ray.get(coordinator.begin.remote(coordinator, shipment))
        while True:
            snapshot, error = ray.get(coordinator.poll.remote(_POLL_SECONDS))
            observe(snapshot)
            if error is not None:
                raise JobFailedError(error)
            if snapshot.phase == "done":
                break
        snapshot, times, outputs, memory = ray.get(coordinator.outcome.remote())
        return RunOutcome(tuple(ray.get(outputs)), snapshot, times, tuple(ray.get(memory)))
    except RayError as error:
        raise JobFailedError(f"the coordinator failed: {explained(error)}") from None
    finally:
        try:
            with suppress(Exception):
                ray.get(coordinator.close.remote(), timeout=5)
        finally:
            ray.kill(coordinator)
