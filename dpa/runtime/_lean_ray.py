"""A Ray for one job, without the processes that such a job has no use for: the server of the dashboard, for which
`ray.init` would wait, the autoscaler, and the monitor that forwards logs. They take two seconds of processor time. What
the dashboard needs is not imported either.

Ray can start without them, but `ray.init` has no options for it. So what it calls is replaced while it runs; a Ray that
is built differently starts them all.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial


@contextmanager
def few_processes(*, logs: bool) -> Iterator[None]:
    """Have `ray.init` start no more processes than needed in this block. One block at a time.

    Args:
        logs: whether the logs of actors are to be forwarded to this process.
    """
    from ray._private import parameter, services, utils

    params, server = parameter.RayParams, getattr(services, "start_api_server", None)
    needs = getattr(utils, "get_dashboard_dependency_error", None)
    unwanted = {"no_monitor": True, "include_log_monitor": logs}
    if unwanted.keys() <= inspect.signature(params).parameters.keys():
        parameter.RayParams = partial(params, **unwanted)
    if server is not None:
        services.start_api_server = _no_server
    if needs is not None:
        utils.get_dashboard_dependency_error = _not_looked_for
    try:
        yield
    finally:
        parameter.RayParams = params
        if server is not None:
            services.start_api_server = server
        if needs is not None:
            utils.get_dashboard_dependency_error = needs


def _no_server(*_args: object, **_options: object) -> tuple[None, None]:
    """The URL and the process of a server that did not start, which Ray does without."""
    return None, None


def _not_looked_for() -> ImportError:
    """Why the dashboard's agent does without what the dashboard needs: to find it would mean to import it all."""
    return ImportError("no dashboard is wanted")
