"""The driver's side of a run: start the coordinator, watch, fetch the outcome, and leave no actor behind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dpa.errors import JobFailedError
from dpa.protocol.metrics import Snapshot
from dpa.runtime.cluster import require_alive
from dpa.runtime.plan import RunOutcome, RunPlan, Shipment

if TYPE_CHECKING:
    from ray import ObjectRef

_POLL_SECONDS = 0.2

_LOOK_SECONDS = 1.0
"""How often to look whether Ray is alive while nobody answers."""


def run(plan: RunPlan, observe: Callable[[Snapshot], None], warn: Callable[[str], None]) -> RunOutcome:
    """Run a plan on the Ray of this process; `observe` gets statistics a few times a second, and those at the end,
    `warn` what the user should know meanwhile.

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
        _answer(coordinator.begin.remote(coordinator, shipment))
        while True:
            snapshot, warnings, error = _answer(coordinator.poll.remote(_POLL_SECONDS))
            for warning in warnings:
                warn(warning)
            observe(snapshot)
            if error is not None:
                raise JobFailedError(error)
            if snapshot.phase == "done":
                break
        snapshot, times, outputs, memory = _answer(coordinator.outcome.remote())
        return RunOutcome(tuple(_answers(outputs)), snapshot, times, tuple(_answers(memory)))
    except RayError as error:
        raise JobFailedError(f"the coordinator failed: {explained(error)}") from None
    finally:
        try:
            with suppress(Exception):
                ray.get(coordinator.close.remote(), timeout=5)
        finally:
            ray.kill(coordinator)


def _answer(call: ObjectRef) -> Any:
    """What a call returns; see `_answers`."""
    return _answers([call])[0]


def _answers(calls: list[ObjectRef]) -> list[Any]:
    """What calls return, waited for as long as Ray is alive.

    Raises:
        JobFailedError: Ray's processes have died.
        RayError: a call failed.
    """
    import ray

    while ray.wait(calls, num_returns=len(calls), timeout=_LOOK_SECONDS)[1]:
        require_alive()
    require_alive()
    answers: list[Any] = ray.get(calls)
    return answers
