"""A Ray for one job: it starts without processes that the job has no use for, and prints nothing between the lines
that show progress.

Left out are the dashboard's server, for which `ray.init` would wait, the autoscaler, the log monitor, and the agents of
the node, for which its raylet would wait. Workers are forked, and their ports are not the system's choice.

`ray.init` has no options for this. So what it calls is replaced while it runs.
"""

from __future__ import annotations

import inspect
import logging
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

from dpa.runtime.ray_internals import _idle_agent
from dpa.runtime.ray_internals.forked_worker import SCRIPT, WORKERS

_log = logging.getLogger(__name__)

_AGENTS = "--dashboard_agent_command=", "--runtime_env_agent_command="
"""How the words of a raylet's command begin that are commands themselves."""

_ADVICE = "Some common causes include: "
"""With this begins Ray's advice to a user whose worker has died."""


@contextmanager
def few_processes(*, logs: bool) -> Iterator[None]:
    """Have `ray.init` start no more processes than needed in this block. One block at a time.

    Args:
        logs: whether the logs of actors are to be forwarded to this process.
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
