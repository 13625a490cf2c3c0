"""A driver that outlives the command that started it: a detached actor of the cluster keeps its process, on the same
machine. Until the job has a coordinator, the actor answers in its place."""

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dpa.protocol.plan import CancelJob, Request
from dpa.runtime.actors.answers import PendingRequests
from dpa.runtime.named_jobs import DRIVER, RUN_NAME, named, own_name

_LINGER_SECONDS = 3.0
"""How long the actor stays after its driver has ended, for those who ask just then."""

_KEPT_LINES = 10_000
"""The last lines that a driver has printed; a job may never end."""

_CALLS = 64
"""Callers that may wait for the driver's end at a time."""


class DriverActor(PendingRequests):
    """The process of a driver. Its output also goes to this actor's log in Ray's directory of logs."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], directory: str) -> None:
        super().__init__()
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

    def ended(self) -> tuple[int, str]:
        """Wait for the driver's end; returns its exit status and its last lines."""
        self._ended.wait()
        return self._process.returncode, "".join(self._printed)

    def status(self) -> None:
        """The job has no coordinator yet."""

    def ask(self, request: Request) -> None:
        """End the driver, which then publishes nothing; other requests are refused."""
        self.expect(request.request)
        self.while_starting(request)
        if isinstance(request, CancelJob):
            self._process.send_signal(signal.SIGINT)

    def _keep(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._printed.append(line)
            print(line, end="", flush=True)
        self._process.wait()
        self._ended.set()
        time.sleep(_LINGER_SECONDS)
        ray.kill(ray.get_runtime_context().current_actor)


def start_driver(command: Sequence[str], job: str) -> str:
    """Run a command that runs a job, on this machine, with this process's environment and working directory. Returns
    the name by which the job is found. RayError if the actor cannot be started."""
    here = ray.get_runtime_context().get_node_id()
    options = {
        "lifetime": "detached",
        "num_cpus": 0,
        "max_concurrency": _CALLS,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(here, soft=False),
    }
    with own_name(job) as name:
        environment = {**os.environ, RUN_NAME: name}
        actor = ray.remote(**options, **named(name, DRIVER))(DriverActor)
        ray.get(actor.remote(command, environment, str(Path.cwd())).status.remote())
    return name
