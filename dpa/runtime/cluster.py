"""The Ray that a job runs on: one started inside the job, one that is running already, or the caller's own."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpa.errors import ConfigError
from dpa.signals import interrupts_held

_MOST_PRESTARTED = 2
"""Most worker processes that an embedded Ray starts before any actor asks for one; with few cores, more only queue."""

_CONNECT_SECONDS = 5.0

_USERS_TOKEN = Path("~/.ray/auth_token")


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
    if address is None and "ray" not in sys.modules:
        _keep_others_out()
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


def _keep_others_out() -> None:
    """Have Ray, which is not imported yet, ask for a token. Without one, Ray would write one to the user's home, as
    would another job that starts at the same time."""
    os.environ.setdefault("RAY_AUTH_MODE", "token")  # said out loud, as Ray's default moves
    if "RAY_AUTH_TOKEN_PATH" not in os.environ and not _USERS_TOKEN.expanduser().exists():
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


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
