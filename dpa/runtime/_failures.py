"""What a Ray error says: its cause in a line, without the layers of traceback and colour that Ray wraps it in, and
whether it is the death of a process; and where a task was."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress

import ray
from ray.exceptions import (
    LocalRayletDiedError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    WorkerCrashedError,
)

from dpa._util.disk import is_full
from dpa.errors import JobFailedError
from dpa.protocol.recovery import Death, TaskDiedError
from dpa.protocol.wire.addresses import COORDINATOR, Address

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_OURS = re.compile(r"dpa\.errors\.\w+: ")

_ADVICE = " Some common causes include: "
"""With this begins what Ray says to whomever an actor has died."""

_DEATHS = (LocalRayletDiedError, NodeDiedError, ObjectLostError, OutOfMemoryError, RayActorError, WorkerCrashedError)

_MEMORY = "Ray's memory monitor killed it, as its node is short of memory: {}; run fewer tasks there, or lower `limits`"


def failure(task: Address, error: RayError, what: str) -> JobFailedError:
    """The error where a call to a task has failed; `what` has become of the task, in words."""
    death = Death(task, cause_of(error), what=what)
    return TaskDiedError(death) if is_death(error) else JobFailedError(death.in_words())


def is_death(error: BaseException) -> bool:
    """Whether it says that a process is gone, or cannot be reached. What is raised while an actor is made is an error
    of its code."""
    return isinstance(error, _DEATHS) and not getattr(error, "actor_init_failed", False)


def cause_of(error: RayError) -> str:
    """The message of the dpa error inside, if there is one; else Ray's own message without tracebacks."""
    lines = [line.strip() for line in _COLOUR.sub("", str(error)).splitlines()]
    for number, line in reversed(list(enumerate(lines))):
        if _OURS.match(line):
            return _OURS.sub("", "\n".join(lines[number:]))
    if isinstance(error, OutOfMemoryError):
        return _MEMORY.format(next((line for line in lines if "Memory on the node" in line), str(error)))
    if is_full(error):
        return "the disk is full: " + " ".join(line for line in lines if line)
    kept = [line for line in lines if line and set(line) != {"^"} and not line.startswith(("File ", "Traceback"))]
    found = " ".join([*kept[:1], *kept[-1:]] if len(kept) > 1 else kept)
    return found.partition(_ADVICE)[0].rstrip(".") or type(error).__name__


def node_name(task: Address, nodes: Mapping[Address, str]) -> str:
    """The name of a task's node, where the job has several, given the numbers of the nodes of tasks; else, or where it
    is not known, nothing. The coordinator is on this node."""
    nodes = {COORDINATOR: ray.get_runtime_context().get_node_id(), **nodes}
    if len({*nodes.values()}) < 2:
        return ""
    names: dict[str | None, str] = {}
    with suppress(Exception):  # the failure is reported whatever has become of Ray
        names = {node["NodeID"]: node["NodeName"] for node in ray.nodes()}
    return names.get(nodes.get(task), "")
