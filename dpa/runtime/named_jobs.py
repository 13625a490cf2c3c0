"""Requests to a job that runs on a cluster: its coordinator is a named actor there, which whoever reaches the cluster
can ask. Where the cluster has a token, that takes the token."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from dpa.errors import ControlError
from dpa.protocol.plan import Request
from dpa.protocol.wire.events import MoveTasks, Rescale
from dpa.protocol.wire.instructions import Answer
from dpa.runtime._kept_answers import RESTARTED
from dpa.runtime.cluster import alive_nodes
from dpa.telemetry.mailbox import run_names
from dpa.telemetry.status import Status

_NAMESPACE = "dpa"
"""Ray's namespace of the coordinators that have names."""

_RESTART_SECONDS = 3.0
"""How long a job whose coordinator has died may take to start another one."""

_LOOK_SECONDS = 0.05
"""How often who waits for an answer asks for it."""

_STATUS_SECONDS = 5.0
"""How long a job may take to say how it is."""


class NamedJob:
    """The asking side, in a process that is connected to the cluster.

    Attributes:
        name: the job's name, with the number of its process.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @staticmethod
    def all() -> list[NamedJob]:
        """The jobs that run on the cluster, by name."""
        return [NamedJob(name) for name in sorted(_generations())]

    def status(self) -> Status | None:
        """How it is; None if it has not begun to stream, or has ended."""
        import ray
        from ray.exceptions import RayError

        try:
            said = ray.get(self._coordinator(self._generation()).status.remote(), timeout=_STATUS_SECONDS)
        except (ControlError, RayError):
            return None
        if said is None:
            return None
        job, snapshot, processes = said
        return Status.of(job, snapshot, processes, alive_nodes())

    def ask(self, request: Request) -> Answer:
        """The answer to a request, when there is one.

        Raises:
            ControlError: the job has ended.
        """
        import ray
        from ray.exceptions import RayError

        asked, generation = with_node_ids(request), self._generation()
        if isinstance(asked, Answer):
            return asked
        coordinator = self._coordinator(generation)
        try:
            coordinator.ask.remote(asked)
            while not (answers := ray.get(coordinator.answers.remote((request.request,)))):
                time.sleep(_LOOK_SECONDS)
        except RayError:
            if self._is_restarted(generation):
                return Answer(request.request, RESTARTED, refused=True)
            raise ControlError(f"{self.name} ended before it had answered") from None
        found: Answer = answers[0]
        return found

    def _coordinator(self, generation: int) -> Any:
        import ray

        try:
            return ray.get_actor(**named(self.name, generation))
        except ValueError:
            raise ControlError(f"{self.name} has ended") from None

    def _generation(self) -> int:
        """The newest that there is."""
        if (found := _generations().get(self.name)) is None:
            raise ControlError(f"{self.name} has ended")
        return found

    def _is_restarted(self, generation: int) -> bool:
        """Whether one comes soon that is newer."""
        until = time.monotonic() + _RESTART_SECONDS
        while _generations().get(self.name, -1) <= generation:
            if time.monotonic() >= until:
                return False
            time.sleep(_LOOK_SECONDS)
        return True


def free_name(job: str) -> str:
    """A name for a run of a job that no other on the cluster has."""
    taken = _generations()
    return next(name for name in run_names(job) if name not in taken)


def named(name: str, generation: int) -> dict[str, str]:
    """Ray's options for the coordinator of a run of this name, by which it is found."""
    return {"name": f"{name}#{generation}", "namespace": _NAMESPACE}


def _generations() -> dict[str, int]:
    """The newest generation of each run on the cluster, by the name of the run."""
    from ray.util import list_named_actors

    found: dict[str, int] = {}
    for actor in list_named_actors(all_namespaces=True):
        if actor["namespace"] == _NAMESPACE:
            name, _, generation = actor["name"].rpartition("#")
            found[name] = max(found.get(name, 0), int(generation))
    return found


def with_node_ids(request: Request) -> Request | Answer:
    """A request with the `id` of each node in place of its name; or the refusal, if there is no such node."""
    if not isinstance(request, Rescale | MoveTasks) or not request.nodes:
        return request
    ids = {node.name: node.id for node in alive_nodes()}
    unknown = [node for node in request.nodes if node not in ids]
    if unknown:
        text = f"there is no node {unknown[0]!r}; the nodes are {', '.join(sorted(ids))}"
        return Answer(request.request, text, refused=True)
    return replace(request, nodes=tuple(ids[node] for node in request.nodes))
