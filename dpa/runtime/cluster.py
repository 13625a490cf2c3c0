"""The Ray that a job runs on: one started inside the job, one that is running already, or the caller's own."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dpa.errors import ConfigError
from dpa.signals import interrupts_held

_MOST_PRESTARTED = 2
"""Most worker processes that an embedded Ray starts before any actor asks for one; with few cores, more only queue."""

_CONNECT_SECONDS = 5.0


@contextmanager
def ray_session(
    address: str | None,
    *,
    actors: int = 2,
    runtime_env: dict[str, Any] | None = None,
    object_store_mb: int = 1024,
) -> Iterator[None]:
    """Have Ray ready for so many actors, and leave things as they were found: Ray that was up before stays up.

    Without an address, Ray is started by this process, for this job alone; a token keeps others out.

    Raises:
        ConfigError: there is no cluster at `address`.
    """
    if (
        address is None and "ray" not in sys.modules
    ):  # said out loud, as Ray's default moves; Ray reads it when imported
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address is None:
        options |= {
            "address": "local",  # whatever RAY_ADDRESS says
            "num_cpus": min(actors, _MOST_PRESTARTED),  # Ray starts as many workers, while it starts itself
            "include_dashboard": False,
            "object_store_memory": object_store_mb * 2**20,
        }
    else:
        _require_listener(address)
        options |= {"address": address, "runtime_env": runtime_env or None}
    try:
        with interrupts_held():
            _start(options)
        yield
    finally:
        with interrupts_held():
            ray.shutdown()


def _start(options: dict[str, Any]) -> None:
    import ray

    try:
        ray.init(**options)
    except ConnectionError as error:
        raise ConfigError(f"ray.address: no Ray cluster at {options['address']!r}: {error}") from None


def _require_listener(address: str) -> None:
    """Look whether anyone listens at `host:port`; Ray itself would try for half a minute before it says so.

    Raises:
        ConfigError: nobody does.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise ConfigError(f"ray.address: no Ray cluster at {address!r}: {error}") from None
