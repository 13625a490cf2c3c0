"""Requests to a running job. Its coordinator is a named actor, and everybody who can connect to its cluster, with the
token if it has one, can ask it."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain, count
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util import list_named_actors

from dpa.errors import ControlError
from dpa.protocol.plan import Request
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import MoveTasks, Rescale
from dpa.protocol.wire.instructions import Answer
from dpa.protocol.wire.metrics import Snapshot
from dpa.protocol.wire.nodes import TaskProcess
from dpa.runtime.actors.answers import RESTARTED
from dpa.runtime.cluster import alive_nodes, is_private
from dpa.runtime.ray_internals.private import cluster_notes
from dpa.telemetry.local_jobs import LocalJob
from dpa.telemetry.observers import Followed, Observer
from dpa.telemetry.tracker import Status

_NAMESPACE = "dpa"
"""Ray's namespace of named coordinators."""

_SPARE = "spare-"
"""How Ray's names of coordinators begin that have been started before their run."""

DRIVER = -1
"""Stands for a generation in the name of a detached driver's actor, which answers until there is a coordinator."""

RUN_NAME = "DPA_RUN_NAME"
"""The environment variable that gives a driver the name of its run."""

_RESTART_SECONDS = 3.0
"""How long a job whose coordinator has died may take to start another one."""

_LOOK_SECONDS, _FOLLOW_SECONDS = 0.05, 0.5
"""How often to look for an answer, and at a job that is followed."""

_STATUS_SECONDS = 5.0
"""How long a job may take to give its status."""


class NamedJob:
    """The asking side, in a process that is connected to the cluster.

    Attributes:
        name: the job's name, with the number of its process.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @staticmethod
    def all() -> list[NamedJob]:
        return [NamedJob(name) for name in sorted(_generations())]

    def status(self) -> Status | None:
        """None if it has not begun to stream, or has ended."""
        said = self._said()
        return None if said is None else Status.of(*said, alive_nodes())

    def follow(self, observer: Observer) -> tuple[int, str] | None:
        """Show the job to an observer until it ends. Returns the exit status of its driver and what that has printed;
        None if the driver is not detached."""
        try:
            end = ray.get_actor(**named(self.name, DRIVER)).ended.remote()
        except ValueError:
            end = None
        followed = Followed(observer)
        while self.name in _generations():
            if (said := self._said()) is not None:  # else a coordinator dies or begins
                followed.see(said[1])
            if end is None:
                time.sleep(_FOLLOW_SECONDS)
            elif ray.wait([end], timeout=_FOLLOW_SECONDS)[0]:
                break
        try:
            return None if end is None else ray.get(end)
        except RayError:
            return None

    def answer(self, request: Request | None) -> Status | Answer | None:
        return self.status() if request is None else self.ask(request)

    def ask(self, request: Request) -> Answer:
        """Ask for something, and wait for the answer. ControlError if the job has ended."""
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
        coordinator.forget.remote((request.request,))
        found: Answer = answers[0]
        return found

    def _said(self) -> tuple[str, Snapshot, Mapping[Address, TaskProcess]] | None:
        """What the coordinator's `status` is; None also where it does not answer."""
        said: tuple[str, Snapshot, Mapping[Address, TaskProcess]] | None = None
        with suppress(ControlError, RayError):
            said = ray.get(self._coordinator(self._generation()).status.remote(), timeout=_STATUS_SECONDS)
        return said

    def _coordinator(self, generation: int) -> Any:
        try:
            actor = _coordinators()[self.name, generation]
            return ray.get_actor(actor, namespace=_NAMESPACE)
        except (KeyError, ValueError):
            raise ControlError(f"{self.name} has ended") from None

    def _generation(self) -> int:
        if (found := _generations().get(self.name)) is None:
            raise ControlError(f"{self.name} has ended")
        return found

    def _is_restarted(self, generation: int) -> bool:
        until = time.monotonic() + _RESTART_SECONDS
        while _generations().get(self.name, -1) <= generation:
            if time.monotonic() >= until:
                return False
            time.sleep(_LOOK_SECONDS)
        return True


@contextmanager
def own_name(job: str) -> Iterator[str]:
    """A name for a run of a job that no other run on the cluster has, or of this user on this machine where the job has
    a Ray of its own; or the one in the environment, once."""
    if (given := os.environ.pop(RUN_NAME, None)) is not None:
        yield given
        return
    local = LocalJob.all() if is_private() else []
    first = f"{job}-{os.getpid()}"
    with _naming:
        # Another thread's job may have its name, and no coordinator yet.
        taken = {*_names, *_generations(), *(run.name for run in local)}
        name = next(name for name in chain([first], (f"{first}.{number}" for number in count(2))) if name not in taken)
        _names.add(name)
    try:
        yield name
    finally:
        _names.discard(name)


_naming = threading.Lock()
_names: set[str] = set()
"""Of the jobs of this process."""


def named(name: str, generation: int) -> dict[str, str]:
    """Ray's options by which a run's coordinator, or its `DRIVER`, is found."""
    return {"name": f"{name}#{generation}", "namespace": _NAMESPACE}


def named_spare() -> dict[str, str]:
    """As `named`, of a coordinator that has no run yet. Ray renames no actor, so a note says what its run is."""
    return {"name": f"{_SPARE}{uuid.uuid4().hex}", "namespace": _NAMESPACE}


def note_run(spare: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Let a run's coordinator be found as `wanted`, if it was a spare one; whether it was."""
    is_spare = spare.get("name", "").startswith(_SPARE)
    if is_spare:
        cluster_notes()._internal_kv_put(wanted["name"], spare["name"], namespace=_NAMESPACE)
    return is_spare


def forget_run(name: str) -> None:
    """Forget the notes of a run that has ended."""
    cluster_notes()._internal_kv_del(f"{name}#", del_by_prefix=True, namespace=_NAMESPACE)


def _coordinators() -> dict[tuple[str, int], str]:
    """Ray's names of the coordinators on the cluster, by run and generation."""
    there = {actor["name"] for actor in list_named_actors(all_namespaces=True) if actor["namespace"] == _NAMESPACE}
    found = {name: name for name in there if not name.startswith(_SPARE)}
    if len(found) < len(there):
        notes = cluster_notes()
        for key in notes._internal_kv_list("", namespace=_NAMESPACE):
            spare = (notes._internal_kv_get(key, namespace=_NAMESPACE) or b"").decode()
            if spare in there:  # a note outlives a driver that is killed, and its coordinator does not
                found[key.decode()] = spare
    split = ((name.rpartition("#"), actor) for name, actor in found.items())
    return {(run, int(generation)): actor for (run, _, generation), actor in split}


def _generations() -> dict[str, int]:
    """The newest generation of each run on the cluster, by its name."""
    found: dict[str, int] = {}
    for name, generation in _coordinators():
        found[name] = max(found.get(name, 0), generation)
    return found


def with_node_ids(request: Request) -> Request | Answer:
    """A request with the `id`s of nodes in place of their names; or the refusal, if there is no such node."""
    if not isinstance(request, Rescale | MoveTasks) or not request.nodes:
        return request
    ids = {node.name: node.id for node in alive_nodes()}
    unknown = [node for node in request.nodes if node not in ids]
    if unknown:
        text = f"there is no node {unknown[0]!r}; the nodes are {', '.join(sorted(ids))}"
        return Answer(request.request, text, refused=True)
    return replace(request, nodes=tuple(ids[node] for node in request.nodes))
