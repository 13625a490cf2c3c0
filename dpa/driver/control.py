"""A running job that is asked to change its tasks, or to end, from another process, by its door."""

from __future__ import annotations

import json
import secrets
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from dpa.door.client import Offer, offers, this_machine
from dpa.errors import ControlError
from dpa.protocol.wire.metrics import Snapshot
from dpa.routing import MOST_TASKS
from dpa.runtime.cluster import ray_session
from dpa.telemetry.observers import Followed, Observer
from dpa.telemetry.tracker import Status

_STATUS_SECONDS = 6.0
"""How long to wait for a status, which a coordinator gives within 5 seconds; a stopped job gives none."""

_LOOK_SECONDS, _FOLLOW_SECONDS = 0.1, 1.0
"""How often to look for a door that is not open yet, and at a job that is followed."""

_STATUS = TypeAdapter(Status)


def connected(address: str | None) -> AbstractContextManager[object]:
    """A block in which jobs on the cluster at an address, or with None those of this machine, are asked over one
    connection. ConfigError if there is no such cluster, or it does not let this process in."""
    return nullcontext() if address is None else ray_session(address)


class RunningJob:
    """The asking side.

    Attributes:
        name: by which it can be found: that of the job, with the number of its process.
    """

    def __init__(self, name: str, offer: Offer | None, address: str | None = None) -> None:
        self.name = name
        self._offer, self._address = offer, address

    @staticmethod
    def all(address: str | None = None) -> list[RunningJob]:
        """The running jobs, by name: those on the cluster at an address; None: those of this user on this machine that
        have a Ray of their own. Errors as of `connected`."""
        with connected(address):
            return [RunningJob(name, offer, address) for name, offer in sorted(_offers(address).items())]

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
        listed = "give one of these names" if found else "running jobs"
        raise ControlError(f"{what}; {listed}: {there}")

    def status(self) -> Status | None:
        """None before it begins to stream, or if it has ended or does not answer."""
        found = self._look("/status")
        return None if found is None else _STATUS.validate_python(found)

    def page(self) -> tuple[str, str | None]:
        """The address of its page, with the token; and how to reach it, unless this machine does. ControlError if the
        job has ended."""
        offer, tunnel = self._door(), None
        if offer.machine != this_machine() and offer.page.startswith("http://"):
            host = offer.machine.partition("/")[0]
            tunnel = f"it is on the loopback of {host}: ssh -L {offer.port}:127.0.0.1:{offer.port} {host}"
        return offer.address, tunnel

    def _door(self) -> Offer:
        """Waits for a detached driver that begins. ControlError if it has ended."""
        with connected(self._address):
            while self._offer is None:
                there = _offers(self._address)
                if self.name not in there:
                    raise ControlError(f"{self.name} has ended")
                self._offer = there[self.name]
                time.sleep(_LOOK_SECONDS)
        return self._offer

    def follow(self, observer: Observer) -> tuple[int, str] | None:
        """Show the job to an observer until it ends; what is raised meanwhile, as by Ctrl-C, leaves it running. Returns
        the exit status of a detached job, and what its driver has printed; None for any other job."""
        followed = Followed(observer)
        with connected(self._address):
            end = None
            if self._address is not None:
                from dpa.runtime.detached import DriverEnd  # which imports Ray

                end = DriverEnd(self.name)
            while end is None or not end.wait(_FOLLOW_SECONDS):
                if (found := self._look("/snapshot")) is not None:  # else a coordinator dies or begins
                    followed.see(_snapshot(found))
                elif self.name not in _offers(self._address):
                    break
                if end is None:
                    time.sleep(_FOLLOW_SECONDS)
            return None if end is None else end.result()

    def scale(
        self, stage: str, tasks: int, nodes: Sequence[str] = (), warn: Callable[[str], None] = warnings.warn
    ) -> str:
        """Have a stage have `tasks` tasks, 256 at most; new ones on these nodes in turn, if they are given. `warn`
        receives that the cluster has fewer processors. This and the other requests return what has been done, in a
        sentence, when it is; ControlError if the job refuses, or has ended."""
        with connected(self._address):
            status = self.status()
            if status is not None and 0 < status.processors < tasks <= MOST_TASKS:
                warn(f"{tasks} tasks of {stage} share the {status.processors:g} processors of the cluster")
            return self._ask("scale", stage=stage, tasks=tasks, nodes=[*nodes])

    def move(self, stage: str, tasks: Sequence[int], nodes: Sequence[str] = ()) -> str:
        """Have new tasks take the places of these, on these nodes in turn."""
        return self._ask("move", stage=stage, tasks=[*tasks], nodes=[*nodes])

    def cancel(self, stage: str | None = None) -> str:
        """Make no change of a stage's tasks that waits, or whose new tasks are not up yet; without a stage, end the
        whole job, which publishes nothing more."""
        return self._ask("cancel", **({} if stage is None else {"stage": stage}))

    def stop(self) -> str:
        """End the whole job after a last checkpoint, so that it can be resumed; at once if it makes none. Nothing
        more is published. If no checkpoint can be made or written now, the job continues."""
        return self._ask("stop")

    def finish(self) -> str:
        """Close its open inputs: the job ends with what has come."""
        return self._ask("finish")

    def _ask(self, what: str, **given: Any) -> str:
        # Asked again with the same `id` where the door dies, it is done once.
        body = json.dumps({"id": secrets.randbits(62), what: given}).encode()
        answer = self._asked("/control", body)
        if answer["refused"]:
            raise ControlError(f"{self.name}: {answer['text']}")
        return str(answer["text"])

    def _look(self, path: str) -> Any:
        """None if it says nothing, or its door is not open yet."""
        with connected(self._address), suppress(ControlError):
            self._offer = self._offer or _offers(self._address).get(self.name)
            return None if self._offer is None else self._asked(path, None, _STATUS_SECONDS)
        return None

    def _asked(self, path: str, body: bytes | None = None, seconds: float | None = None) -> Any:
        with connected(self._address):
            offer, fetched = self._door(), None
            if self._address is not None:
                from dpa.door.notes import fetched_from  # which imports Ray

                fetched = fetched_from(offer)
            return json.loads(offer.ask(path, body, seconds, fetched))


def _offers(address: str | None) -> dict[str, Offer | None]:
    if address is None:
        return {offer.name: offer for offer in offers()}
    from dpa.door.notes import found  # which imports Ray

    return found()


@cache  # it takes as long to make as hundreds of snapshots to read
def _snapshots() -> TypeAdapter[tuple[Snapshot]]:
    return TypeAdapter(tuple[Snapshot], config={"arbitrary_types_allowed": True})


def _snapshot(found: Any) -> Snapshot:
    try:
        return _snapshots().validate_python([found])[0]
    except ValidationError as error:
        raise ControlError("its snapshot cannot be read: the job is of another version of dpa") from error
