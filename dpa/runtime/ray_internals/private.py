"""Questions to Ray, and settings of its processes, for which it has no public call."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SHORT = Path("/proc/self/comm")
"""What `top` shows, up to 15 characters; Linux only."""


def name_process(job: str, task: str, generation: int) -> None:
    """Show this actor's process as its job and task in `ps` and `top`, from the actor's next call on; from the second
    generation on with its number."""
    task = f"{task}#{generation}" if generation else task
    import ray._raylet
    from ray._private import worker

    set_title = getattr(ray._raylet, "setproctitle", None)
    if set_title is None or not hasattr(worker, "_changeproctitle"):
        return

    @contextmanager
    def kept(*_of_the_call: str) -> Iterator[None]:
        set_title(f"ray::{job} {task}")
        yield

    # Ray names a process by the actor's class, anew with each call; the class does not say which task it has become.
    worker._changeproctitle = kept
    with suppress(OSError):
        _SHORT.write_text(task)


def node_processes() -> list[tuple[str, subprocess.Popen[bytes]]]:
    """The processes that Ray has started in this process, with their names; none if it is connected to a cluster."""
    import ray

    node = ray._private.worker._global_node
    kinds = {} if node is None else node.all_processes
    return [(name, info.process) for name, infos in kinds.items() for info in infos]


def draining_nodes() -> dict[str, float]:
    """The numbers of the nodes that Ray drains, each with its deadline in seconds since the epoch; 0: it has none."""
    from ray._private.state import state

    found: dict[str, int] = getattr(state, "get_draining_nodes", dict)()
    return {node: deadline / 1000 for node, deadline in found.items()}


def least_resources() -> dict[str, float]:
    """Resources that an actor can ask for because every node has them."""
    from ray import _raylet

    # An actor that asks for nothing is placed by a node that Ray draws at random. That node may be silent, and the
    # actor would wait for it. One that asks for something is placed by the node of its creator.
    prefix = getattr(_raylet, "IMPLICIT_RESOURCE_PREFIX", None)
    return {} if prefix is None else {f"{prefix}dpa": 0.0001}
