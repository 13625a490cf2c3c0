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
_KEPT = 64 * 1024**2  # bytes that stay of those freed at the end of the heap
_LARGEST = 32 * 1024**2  # bytes of the largest array that comes from the heap, the most that glibc takes
_POLARS_MEMORY = "_RJEM_MALLOC_CONF"  # polars reads this environment variable as it is imported
_KEPT_FOR = "dirty_decay_ms:5000,muzzy_decay_ms:5000"
_LEAST_MB = 16
_STATES_SHARE = 0.5  # of a node's memory: records on their way need some, and Ray's monitor kills at 95 % of all


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
    """Keep freed memory for this process's next allocations: of glibc, where it is, and of polars, imported later."""
    # By default glibc returns the memory of every large array, and polars what it has not used for half a second, and
    # the system clears each page anew for the next. The last setting counts, and the driver's polars has left one.
    os.environ[_POLARS_MEMORY] = f"{os.environ.get(_POLARS_MEMORY, '')},{_KEPT_FOR}".lstrip(",")
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
