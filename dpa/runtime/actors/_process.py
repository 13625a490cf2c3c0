"""A task's process on its machine: the processors that it waits for, and the memory that it may keep."""

import ctypes
import math
import os
import threading
from contextlib import suppress

import ray
from ray import cloudpickle

from dpa.execution.spill.room import Room
from dpa.protocol.plan import RunPlan

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # numbers of parameters of glibc's `mallopt`

_KEPT, _LARGEST = 64 * 1024**2, 32 * 1024**2
"""Bytes that stay of those freed at the end of the heap; bytes of the largest array that comes from the heap, the most
that glibc takes."""

_STATES_SHARE, _LEAST_MB = 0.5, 16
"""The part of a node's memory that states may take. The rest is for processes and for records on their way, so that
Ray's memory monitor, which kills at 95 % of the machine, has no reason to."""


class CoreWait:
    """The waiting time of the thread that made this. Always 0 on systems other than Linux."""

    def __init__(self) -> None:
        self._file: int | None = None
        with suppress(OSError):
            self._file = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)

    @property
    def seconds(self) -> float:
        """Seconds so far in which the thread could have run and had no processor."""
        return 0.0 if self._file is None else int(os.pread(self._file, 128, 0).split()[1]) * 1e-9


def keep_freed_memory() -> None:
    """Keep freed memory for this process's next allocations; does nothing where the C library is not glibc."""
    # By default glibc returns the memory of every large array, and the system clears each page anew for the next.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _KEPT)
        mallopt(_MMAP_THRESHOLD, _LARGEST)


def room_in(plan: RunPlan, seed: int) -> Room | None:
    """The room for states of a task of the plan on this node, whose keys are hashed with `seed`."""
    auto = _auto_mb(plan) if plan.limits.state_mb == "auto" else None
    return plan.limits.room(seed, auto, cloudpickle.dumps)


def _auto_mb(plan: RunPlan) -> int:
    """MiB of each task's states, if tasks are spread evenly; a share of what Ray may use of this node without its
    object store."""
    nodes, here = [node for node in ray.nodes() if node["Alive"]], ray.get_runtime_context().get_node_id()
    memory = next(node["Resources"].get("memory", 0.0) for node in nodes if node["NodeID"] == here)
    with_states = sum(stage.tasks for stage in plan.graph.queue_fed())
    return max(_LEAST_MB, int(_STATES_SHARE * memory / math.ceil(with_states / len(nodes))) // 2**20)
