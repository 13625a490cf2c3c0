"""Environment variables that only some of the processes are to have that this process starts."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_TURN = threading.RLock()


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables in this block, while no other thread is in `own_environment`."""
    with _TURN:
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


@contextmanager
def own_environment() -> Iterator[None]:
    """Start processes in this block: none of them has what another thread sets for its own with `environment`."""
    with _TURN:
        yield
