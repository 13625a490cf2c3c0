"""The Ray that a job runs on: one started inside the job, one that is running already, or the caller's own."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dpa.errors import ConfigError

_PRESTARTED = 2
"""Worker processes that an embedded Ray starts at once; the others start when actors ask. More of them start slower."""


@contextmanager
def ray_session(
    address: str | None, *, runtime_env: dict[str, Any] | None = None, object_store_mb: int = 1024
) -> Iterator[None]:
    """Have Ray ready, and leave things as they were found: Ray that was up before stays up.

    Without an address, Ray is started in this process, for this job alone, on the loopback interface.

    Raises:
        ConfigError: there is no cluster at `address`.
    """
    if address is None:  # said out loud, as Ray's default is moving; how a cluster is guarded is for its owner to say
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
            "num_cpus": _PRESTARTED,
            "include_dashboard": False,
            "object_store_memory": object_store_mb * 2**20,
            "_node_ip_address": "127.0.0.1",
        }
    else:
        options |= {"address": address, "runtime_env": runtime_env or None}
    try:
        ray.init(**options)
    except ConnectionError as error:
        raise ConfigError(f"ray.address: no Ray cluster at {address!r}: {error}") from None
    try:
        yield
    finally:
        ray.shutdown()
