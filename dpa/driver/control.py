"""A running job that is asked to change its tasks, or to end, from another process: by a socket of its
process where it has a Ray of its own, and by a named actor where it runs on a cluster."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from dpa.errors import ControlError
from dpa.protocol.plan import CancelJob, Request
from dpa.protocol.wire.events import CancelChange, CloseFeeds, MoveTasks, Rescale
from dpa.routing import MOST_TASKS
from dpa.runtime.cluster import ray_session
from dpa.telemetry.local_jobs import LocalJob
from dpa.telemetry.observers import Observer
from dpa.telemetry.tracker import Status

if TYPE_CHECKING:
    from dpa.runtime.named_jobs import NamedJob


def connected(address: str | None) -> AbstractContextManager[object]:
    """A block in which jobs on the cluster at an address, or with None those of this machine, are asked over one
    connection. ConfigError if there is no such cluster, or it does not let this process in."""
    return nullcontext() if address is None else ray_session(address)


class RunningJob:
    """The asking side.

    Attributes:
        name: by which it can be found: that of the job, with the number of its process.
    """

    def __init__(self, client: LocalJob | NamedJob, address: str | None = None) -> None:
        self.name = client.name
        self._client, self._address = client, address

    @staticmethod
    def all(address: str | None = None) -> list[RunningJob]:
        """The running jobs, by name: those on the cluster at an address; None: those of this user on this machine that
        have a Ray of their own. Errors as of `connected`."""
        if address is None:
            return [RunningJob(job) for job in LocalJob.all()]
        with connected(address):
            from dpa.runtime.named_jobs import NamedJob  # which imports Ray

            return [RunningJob(job, address) for job in NamedJob.all()]

    @staticmethod
    def find(name: str, address: str | None = None) -> RunningJob:
        """The running job of a name: its own, or that of the job where only one such job runs. ControlError if there is
        none, or there are several; other errors as of `connected`."""
        jobs = RunningJob.all(address)
        found = [job for job in jobs if name in (job.name, job.name.rpartition("-")[0])]
        if len(found) == 1:
            return found[0]
        there = ", ".join(job.name for job in found or jobs) or "none"
        where = "here" if address is None else f"on {address}"
        what = f"several jobs named {name!r} run" if found else f"no job named {name!r} runs {where}"
        raise ControlError(f"{what}; running jobs: {there}")

    def status(self) -> Status | None:
        with connected(self._address):
            return self._client.status()

    def follow(self, observer: Observer) -> tuple[int, str] | None:
        """Show the job to an observer until it ends; what is raised meanwhile, as by Ctrl-C, leaves it running. Returns
        the exit status of a detached job, and what its driver has printed; None for any other job. ControlError if the
        job runs on no cluster."""
        with connected(self._address):
            return self._client.follow(observer)

    def scale(
        self,
        stage: str,
        tasks: int,
        nodes: Sequence[str] = (),
        warn: Callable[[str], None] = warnings.warn,
    ) -> str:
        """Have a stage have `tasks` tasks, 256 at most; new ones on these nodes in turn, if they are given. `warn`
        receives that the cluster has fewer processors. This and the other requests return what has been done, in a
        sentence, when it is; ControlError if the job refuses, or has ended."""
        with connected(self._address):
            status = self.status()
            if status is not None and 0 < status.processors < tasks <= MOST_TASKS:
                warn(f"{tasks} tasks of {stage} share the {status.processors:g} processors of the cluster")
            return self._ask(Rescale(_number(), stage, tasks, tuple(nodes)))

    def move(self, stage: str, tasks: Sequence[int], nodes: Sequence[str] = ()) -> str:
        """Have new tasks take the places of these, on these nodes in turn."""
        return self._ask(MoveTasks(_number(), stage, tuple(tasks), tuple(nodes)))

    def cancel(self, stage: str | None = None) -> str:
        """Make no change of a stage's tasks that waits, or whose new tasks are not up yet; without a stage, end the
        whole job, which publishes nothing."""
        return self._ask(CancelJob(_number()) if stage is None else CancelChange(_number(), stage))

    def stop(self) -> str:
        """End the whole job after a last checkpoint, so that it can be resumed; at once if it makes none. Nothing is
        published. If no checkpoint can be made or written now, the job continues."""
        return self._ask(CancelJob(_number(), saves=True))

    def finish(self) -> str:
        """Close its open inputs: the job ends with what has come."""
        return self._ask(CloseFeeds(_number()))

    def _ask(self, request: Request) -> str:
        with connected(self._address):
            answer = self._client.ask(request)
        if answer.refused:
            raise ControlError(f"{self.name}: {answer.text}")
        return answer.text


def _number() -> int:
    return secrets.randbits(62)
