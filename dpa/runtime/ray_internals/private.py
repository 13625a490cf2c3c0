"""Ray's own modules, where Ray has no public call: the start of a Ray for one job, which has no processes that the job
has no use for and prints nothing between the lines that show progress; questions; and names of processes.

Left out of such a Ray are the dashboard's server, for which `ray.init` would wait, the autoscaler, the log monitor, and
the agents of the node, for which its raylet would wait. Workers are forked, and their ports are not the system's
choice. `ray.init` has no options for this, so what it calls is replaced while it runs."""

import inspect
import logging
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from dpa.runtime.ray_internals import _idle_agent
from dpa.runtime.ray_internals._forked_worker import SCRIPT, WORKERS

_log = logging.getLogger(__name__)

_AGENTS = "--dashboard_agent_command=", "--runtime_env_agent_command="  # options of a raylet that are commands
_ADVICE = "Some common causes include: "  # with this begins Ray's advice to a user whose worker has died
_SHORT = Path("/proc/self/comm")  # what `top` shows, up to 15 characters; Linux only


@contextmanager
def few_processes(*, logs: bool) -> Iterator[None]:
    """Have `ray.init` start no more processes than needed in this block. One block at a time.

    Args:
        logs: whether Ray forwards the logs of actors to this process.
    """
    from ray._private import parameter, services, utils

    params, start = parameter.RayParams, getattr(services, "start_ray_process", None)
    wanted = {"no_monitor": True, "include_log_monitor": logs, **WORKERS}
    known = inspect.signature(params).parameters
    changed = {name: value for name, value in wanted.items() if name in known}
    with ExitStack() as replaced:
        replaced.enter_context(_replaced(parameter, "RayParams", partial(params, **changed)))
        if start is not None and SCRIPT is not None and _agents_are_known():
            replaced.enter_context(_replaced(services, "start_ray_process", partial(_with_idle_agents, start)))
        replaced.enter_context(_replaced(services, "start_api_server", lambda *_, **_options: (None, None)))
        # Ray looks for what the dashboard needs by importing all of it.
        missing = ImportError("no dashboard is wanted")
        replaced.enter_context(_replaced(utils, "get_dashboard_dependency_error", lambda: missing))
        yield


@contextmanager
def ray_messages_logged() -> Iterator[None]:
    """Have a Ray that is connected to in this block log what it reports of its workers, which it would print in
    colours. A job reports for itself what concerns it."""
    from ray._private import worker

    printed: Any = getattr(worker, "print_to_stdstream", None)

    def logged(data: Mapping[str, Any], *details: Any, **more: Any) -> None:
        if data.get("pid") != "raylet":
            printed(data, *details, **more)
            return
        for line in data["lines"]:
            _log.warning("Ray: %s", " ".join(line.partition(_ADVICE)[0].split()))

    with _replaced(worker, "print_to_stdstream", logged):
        yield


@contextmanager
def _replaced(module: Any, name: str, value: object) -> Iterator[None]:
    """Have a module use this value in the block, if it has one of the name."""
    before = getattr(module, name, None)
    if before is not None:
        setattr(module, name, value)
    try:
        yield
    finally:
        if before is not None:
            setattr(module, name, before)


def _agents_are_known() -> bool:
    """Whether a node learns the ports of its agents as it did when what stands in for them was written."""
    from ray import _raylet

    names = {getattr(_raylet, name, None) for name in dir(_raylet) if name.endswith("_PORT_NAME")}
    return names >= {*_idle_agent.PORTS, _idle_agent.ENVIRONMENTS_PORT}


def _with_idle_agents(start: Callable[..., Any], command: list[str], *args: Any, **options: Any) -> Any:
    """Start a process of Ray; a raylet with processes that stand in for its agents."""
    return start([_idle(word) for word in command], *args, **options)


def _idle(word: str) -> str:
    """A word of a raylet's command, in which the command of an agent begins with that of what stands in for it."""
    for option in _AGENTS:
        if word.startswith(option):
            with suppress(ValueError):  # a path with half a quotation
                python, *agent = shlex.split(word.removeprefix(option))
                return option + shlex.join([python, "-S", _idle_agent.__file__, *agent])
    return word


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


def session_directory() -> str | None:
    """Where Ray has the logs and sockets of this node; None if this process does not know."""
    import ray

    node = ray._private.worker._global_node
    return None if node is None else str(node.get_session_dir_path())


def draining_nodes() -> dict[str, float]:
    """The numbers of the nodes that Ray drains, each with its deadline in seconds since the epoch; 0: it has none."""
    from ray._private.state import state

    found: dict[str, int] = getattr(state, "get_draining_nodes", dict)()
    return {node: deadline / 1000 for node, deadline in found.items()}


def dead_drivers() -> set[str]:
    """Ray's numbers of the drivers on the cluster that have ended; none where only Ray's client is connected, which
    cannot ask that."""
    from ray._private.state import state
    from ray.exceptions import RaySystemError

    with suppress(RaySystemError):
        return {driver["JobID"] for driver in state.job_table() if driver["IsDead"]}
    return set()


def free_resources() -> dict[str, dict[str, float]]:
    """What nobody has of each node, by the node's number."""
    from ray._private.state import available_resources_per_node

    found: dict[str, dict[str, float]] = available_resources_per_node()
    return found


def least_resources() -> dict[str, float]:
    """Resources that an actor can ask for because every node has them."""
    from ray import _raylet

    # An actor that asks for nothing is placed by a node that Ray draws at random. That node may be silent, and the
    # actor would wait for it. One that asks for something is placed by the node of its creator.
    prefix = getattr(_raylet, "IMPLICIT_RESOURCE_PREFIX", None)
    return {} if prefix is None else {f"{prefix}dpa": 0.0001}


def cluster_notes() -> Any:
    """Ray's module of short texts by key, for all who are connected to the cluster."""
    from ray.experimental import internal_kv

    return internal_kv
