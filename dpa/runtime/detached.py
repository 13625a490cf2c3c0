"""A driver that outlives the command that started it: a detached actor of the cluster keeps its process, on the same
machine."""

import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import ray
from ray.exceptions import RayError
from ray.util import list_named_actors
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

NAMESPACE = "dpa"
"""Ray's namespace of these actors, and of notes about jobs."""

RUN_NAME = "DPA_RUN_NAME"
"""The environment variable that gives a driver the name of its run."""

_LINGER_SECONDS = 3.0  # how long the actor stays after its driver has ended, for those who ask just then
_KEPT_LINES = 10_000  # the last lines that a driver has printed; a job may never end
_CALLS = 64  # callers that may wait for the driver's end at a time


class DriverActor:
    """The process of a driver. Its output also goes to this actor's log in Ray's directory of logs."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], directory: str) -> None:
        self._printed: deque[str] = deque(maxlen=_KEPT_LINES)
        self._ended = threading.Event()
        self._process = subprocess.Popen(
            command,
            env=dict(environment),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # no signal of Ray's or of a terminal is for it
        )
        threading.Thread(target=self._keep, name="driver", daemon=True).start()

    def begun(self) -> None:
        """Answers once there is the process."""

    def ended(self) -> tuple[int, str]:
        """Wait for the driver's end; returns its exit status and its last lines."""
        self._ended.wait()
        return self._process.returncode, "".join(self._printed)

    def _keep(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._printed.append(line)
            print(line, end="", flush=True)
        self._process.wait()
        self._ended.set()
        time.sleep(_LINGER_SECONDS)
        ray.kill(ray.get_runtime_context().current_actor)


def start_driver(command: Sequence[str], name: str) -> None:
    """Run a command that runs a job, on this machine, with this process's environment and working directory. The job is
    found by the name. RayError if the actor cannot be started."""
    here = ray.get_runtime_context().get_node_id()
    options = {
        "name": name,
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "num_cpus": 0,
        "max_concurrency": _CALLS,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(here, soft=False),
    }
    actor = ray.remote(**options)(DriverActor)
    ray.get(actor.remote(command, {**os.environ, RUN_NAME: name}, str(Path.cwd())).begun.remote())


def drivers() -> list[str]:
    """The names of the detached drivers on the cluster."""
    named = list_named_actors(all_namespaces=True)
    return sorted(actor["name"] for actor in named if actor["namespace"] == NAMESPACE)


class DriverEnd:
    """The end of a detached driver, as others wait for it; of one that is not detached nothing is known."""

    def __init__(self, name: str) -> None:
        self._end = None
        with suppress(ValueError):  # there is no such actor
            self._end = ray.get_actor(name, namespace=NAMESPACE).ended.remote()

    def wait(self, seconds: float) -> bool:
        """Wait for up to `seconds`; whether it has ended."""
        if self._end is None:
            time.sleep(seconds)
            return False
        return bool(ray.wait([self._end], timeout=seconds)[0])

    def result(self) -> tuple[int, str] | None:
        """Its exit status, and what it has printed; None if that is not known, as its machine has died."""
        with suppress(RayError):
            found: tuple[int, str] | None = None if self._end is None else ray.get(self._end)
            return found
        return None
