"""Doors of jobs on a cluster. Ray keeps a note of each for all who can connect to the cluster, with its token if it has
one. A detached driver also has a named actor, which is there before its door."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import cache, partial
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dpa.door import client
from dpa.door.client import Fetched, Offer, fetch, names_for, this_machine
from dpa.errors import JobFailedError
from dpa.runtime.cluster import alive_nodes, require_alive
from dpa.runtime.detached import NAMESPACE, RUN_NAME, drivers
from dpa.runtime.ray_internals.private import cluster_notes, dead_drivers


def free_name(job: str) -> str:
    """A name for a run of a job that no other run on the cluster has."""
    return next(names_for(job, {*_notes(), *drivers()}))


@contextmanager
def noted(job: str, offer: Offer) -> Iterator[None]:
    """A block in which a job's door is found on the cluster; by the name in the environment, once, if there is one."""
    given, here, notes = os.environ.pop(RUN_NAME, None), ray.get_runtime_context(), cluster_notes()
    offer = replace(offer, node=here.get_node_id(), driver=here.get_job_id())
    for name in names_for(job) if given is None else [given]:
        text = json.dumps(asdict(replace(offer, name=name)))
        if not notes._internal_kv_put(name, text, overwrite=given is not None, namespace=NAMESPACE):
            break  # else another run has it
    try:
        yield
    finally:
        with suppress(RayError, JobFailedError):  # Ray has died, and whoever asks it waits for long
            require_alive()
            notes._internal_kv_del(name, namespace=NAMESPACE)


def found() -> dict[str, Offer | None]:
    """The doors of the jobs on the cluster, by name; None: a detached driver has not opened its door yet. Removes what
    drivers left that were killed."""
    doors: dict[str, Offer | None] = dict.fromkeys(drivers())
    nodes, dead = {node.id for node in alive_nodes()}, dead_drivers()
    for name, text in _notes().items():
        with suppress(ValueError, TypeError):  # of another version
            offer = Offer(**json.loads(text))
            if offer.node in nodes and offer.driver not in dead:
                doors[name] = offer
            else:
                cluster_notes()._internal_kv_del(name, namespace=NAMESPACE)
    return doors


def fetched_from(offer: Offer) -> Fetched:
    """Asks a door: on this machine itself, and else by a task on its node."""
    return fetch if offer.machine == this_machine() else partial(_fetched, offer.node)


def _fetched(node: str, *given: Any) -> tuple[int, bytes]:
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    try:
        answer: tuple[int, bytes] = ray.get(_remote_fetch().options(scheduling_strategy=there).remote(*given))
    except RayTaskError:  # which is what `fetch` has raised, too
        raise
    except RayError:
        raise ConnectionRefusedError("the node has gone") from None
    return answer


@cache
def _remote_fetch() -> Any:
    # Once: Ray exports each function that it is given, and keeps a copy as long as it is up.
    ray.cloudpickle.register_pickle_by_value(client)  # the node may have no dpa of its own
    return ray.remote(num_cpus=0, max_retries=0)(fetch)


def _notes() -> dict[str, str]:
    notes = cluster_notes()
    names = notes._internal_kv_list("", namespace=NAMESPACE)
    texts = {name.decode(): notes._internal_kv_get(name, namespace=NAMESPACE) for name in names}
    return {name: text.decode() for name, text in texts.items() if text is not None}
