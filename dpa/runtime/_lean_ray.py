"""A Ray for one job, without the processes that such a job has no use for: the server of the dashboard, for which
`ray.init` would wait, the autoscaler, the monitor that forwards logs, and the agents of its node, for which its raylet
would wait. What the dashboard needs is not imported either, workers are forked, and their ports are not the system's
choice.

Ray can start without them, but `ray.init` has no options for it. So what it calls is replaced while it runs; a Ray that
is built differently starts them all.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

from dpa.runtime import _idle_agent
from dpa.runtime.forked_worker import SCRIPT, WORKERS

_AGENTS = "--dashboard_agent_command=", "--runtime_env_agent_command="
"""How the words of a raylet's command begin that are commands themselves."""


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
        replaced.enter_context(_replaced(services, "start_api_server", _no_server))
        replaced.enter_context(_replaced(utils, "get_dashboard_dependency_error", _not_looked_for))
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


def _no_server(*_args: object, **_options: object) -> tuple[None, None]:
    """The URL and the process of a server that did not start, which Ray does without."""
    return None, None


def _not_looked_for() -> ImportError:
    """Why the dashboard's agent does without what the dashboard needs: to find it would mean to import it all."""
    return ImportError("no dashboard is wanted")


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
