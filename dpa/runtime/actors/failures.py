"""What a Ray error means: its cause in one line without tracebacks and colours; whether a process has died; and where a
task was."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import ray
from ray import ObjectRef
from ray.exceptions import (
    ActorUnschedulableError,
    LocalRayletDiedError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    WorkerCrashedError,
)

from dpa._util.disk import is_full
from dpa.errors import CheckpointStoreError, JobFailedError
from dpa.protocol.recovery import Death, TaskDiedError
from dpa.protocol.wire.addresses import COORDINATOR, Address

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_OURS = re.compile(r"dpa\.errors\.\w+: ")

_DEATHS = (
    ActorUnschedulableError,  # its node has died before it was up
    LocalRayletDiedError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    WorkerCrashedError,
)

_KINDS_OF_DEATH = (  # what Ray's text about a death contains, and what that means; the first match counts
    (re.compile(r"too many heartbeats|health check failed"), "its machine has gone silent"),
    (
        re.compile(r"node (?:was terminated|has died|is dead|specified via \S+ doesn't exist)|raylet died"),
        "its machine, or Ray's `raylet` there, died",
    ),
    (re.compile(r"with an exit code (-?\d+)"), r"its process exited with status \1"),
    (re.compile(r"by a signal"), "a signal ended its process"),
    (re.compile(r"actor is killed|ray\.kill"), "it was ended by `ray.kill`"),
    (re.compile(r"owner (?:has )?died"), "the process that started it died"),
    (
        re.compile(r"unexpectedly exits|worker process has died|died unexpectedly"),
        "its process was killed, crashed or exited; if memory was short, the kernel's log says so",
    ),
    (re.compile(r"is unavailable"), "it cannot be reached"),
)

_MEMORY = "Ray's memory monitor killed it, as its node is short of memory: {}; set limits.state_mb, or run fewer tasks"


def require_all(
    calls: Mapping[Address, ObjectRef], otherwise: str = "did not start", get: Callable[[ObjectRef], Any] = ray.get
) -> dict[Address, Any]:
    """The results of calls to actors, which `get` waits for. JobFailedError if one is not answered, and `otherwise`
    says what has become of that actor; a TaskDiedError if its process has died."""
    found = {}
    for address, reference in calls.items():
        try:
            found[address] = get(reference)
        except RayError as error:
            raise failure(address, error, otherwise) from None
    return found


def failure(task: Address, error: RayError, what: str) -> JobFailedError:
    """The error for a failed call to a task; `what` says in words what has become of the task."""
    death = Death(task, cause_of(error), what=what)
    # A store of checkpoints that cannot be used ends a generation, as a death does.
    may_pass = is_death(error) or isinstance(error, CheckpointStoreError)
    return TaskDiedError(death) if may_pass else JobFailedError(death.in_words())


def is_death(error: BaseException) -> bool:
    """Whether it says that a process is gone, or cannot be reached."""
    # What is raised while an actor is made is an error of its code.
    return isinstance(error, _DEATHS) and not getattr(error, "actor_init_failed", False)


def cause_of(error: RayError) -> str:
    """The message of the dpa error inside; else how the process died; else Ray's own message without tracebacks."""
    text = _COLOUR.sub("", str(error))
    lines = [line.strip() for line in text.splitlines()]
    for number, line in reversed(list(enumerate(lines))):
        if _OURS.match(line):
            return _OURS.sub("", "\n".join(lines[number:]))
    if isinstance(error, OutOfMemoryError):
        return _MEMORY.format(next((line for line in lines if "Memory on the node" in line), str(error)))
    if is_full(error):
        return "the disk is full: " + " ".join(line for line in lines if line)
    for said, meaning in _KINDS_OF_DEATH if is_death(error) else ():
        if found := said.search(text):
            return found.expand(meaning)
    kept = [line for line in lines if line and set(line) != {"^"} and not line.startswith(("File ", "Traceback"))]
    return " ".join([*kept[:1], *kept[-1:]] if len(kept) > 1 else kept).rstrip(".") or type(error).__name__


def node_name(task: Address, nodes: Mapping[Address, str]) -> str:
    """The name of a task's node, given the `id`s of the nodes of tasks; empty if the job has one node, or the task's is
    unknown. Called on the coordinator's node."""
    nodes = {COORDINATOR: ray.get_runtime_context().get_node_id(), **nodes}
    if len({*nodes.values()}) < 2:
        return ""
    names: dict[str | None, str] = {}
    with suppress(Exception):  # the failure is reported whatever has become of Ray
        names = {node["NodeID"]: node["NodeName"] for node in ray.nodes()}
    return names.get(nodes.get(task), "")
