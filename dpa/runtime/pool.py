"""Processes that wait on a cluster for the next job of whoever uses it: `dpa up --address` (docs/sessions.md).

A detached actor on the head keeps them, and starts others for those that a job has taken. It owns them all, so nothing
stays when it ends. A job's driver ends what it took; if the driver has died, the pool does."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError

from dpa._util.version import code_version
from dpa.errors import ConfigError
from dpa.runtime._processes import Actor, Spares, Wanted
from dpa.runtime.actors.actor import StageActor, TaskActor
from dpa.runtime.detached import NAMESPACE
from dpa.runtime.ray_internals.private import dead_drivers

_log = logging.getLogger(__name__)

_NAME = "pool"

_HEAD = {"node:__internal_head__": 0.001}  # requests the head: other nodes come and go
_LOOK_SECONDS = 1.0  # how often to look for drivers that have died, and whether the pool has been unused for too long
_QUIET_SECONDS = 3.0  # how long after a job took or left processes others start in their place
_ENDING_SECONDS = 60.0  # how long a driver may take to end what its job took
_ANSWER_SECONDS = 30.0  # how long a pool may take to start, or to answer


@dataclass(frozen=True)
class Pool:
    """A pool as its actor describes itself.

    Attributes:
        made_with: what its processes have, which a job's must have too.
        size: the most processes for tasks that wait.
        waiting: how many do.
        drivers: how many have processes of it.
        lasts_seconds: how long it stays if no job comes.
    """

    made_with: dict[str, str]
    size: int
    waiting: int
    drivers: int
    lasts_seconds: float

    @staticmethod
    def find() -> Pool | None:
        """The one of the cluster that this process is connected to."""
        found: Pool | None = _asked("state")
        return found

    @staticmethod
    def start(size: int, lasts_seconds: float) -> Pool:
        """A new one, whose processes start in the background. ConfigError if it does not come up."""
        options = {"name": _NAME, "namespace": NAMESPACE, "lifetime": "detached", "num_cpus": 0, "resources": _HEAD}
        actor = ray.remote(**options)(PoolActor).remote(size, lasts_seconds)
        if (found := Pool.find()) is None:
            ray.kill(actor)
            raise ConfigError("the session did not start; is this dpa installed on the head of the cluster?")
        return found

    def end(self) -> None:
        """End it, and every process of it."""
        with suppress(ValueError):  # it has ended
            while True:
                ray.kill(ray.get_actor(_NAME, NAMESPACE))
                time.sleep(_LOOK_SECONDS / 10)

    def unfit(self, object_store_mb: int = 0) -> str | None:
        """As `Standing.unfit`."""
        for name, own in _made_with().items():
            if (its := self.made_with.get(name)) != own:
                return f"it has {name} {its}, and this process {own}; to replace it: dpa down; dpa up"
        return None

    def users(self) -> int:
        return self.drivers

    def left_seconds(self) -> float:
        """As of `Standing`."""
        return self.lasts_seconds

    def __str__(self) -> str:
        """In words."""
        return f"{self.waiting} of {self.size} processes for tasks wait"


class PoolActor:
    """The actor. Each process of it is a task once, like any other."""

    def __init__(self, size: int, lasts_seconds: float) -> None:
        self._size, self._lasts = size, lasts_seconds
        self._spares, self._others = Spares(lambda: True), dict[tuple[type[TaskActor], str | None], int]()
        self._jobs: Counter[str] = Counter()  # by driver, as its threads may run several
        self._lent: dict[str, list[ActorHandle]] = defaultdict(list)
        self._ending: list[tuple[float, str, list[ActorHandle]]] = []
        self._used, self._turn = time.monotonic(), threading.Lock()
        self._refill()
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    def state(self) -> Pool:
        with self._turn:
            left = max(0.0, self._lasts - (time.monotonic() - self._used))
            return Pool(_made_with(), self._size, self._spares.waiting(StageActor), len(self._jobs), left)

    def begin(self, driver: str) -> None:
        """A job of the driver with this number begins."""
        with self._turn:
            self._jobs[driver] += 1
            self._used, self._is_due = time.monotonic(), True
            self._spares.check()

    def lend(self, driver: str, made_with: dict[str, str], kind: type[TaskActor], node: str | None) -> Actor | None:
        """A process for a job of the driver; None: none waits that has this code."""
        with self._turn:
            self._used = time.monotonic()
            if made_with != _made_with() or (actor := self._spares.take(kind, node)) is None:
                return None
            self._lent[driver].append(actor.handle)
            return actor

    def take_back(self, driver: str, used: Wanted) -> None:
        """A job of the driver ends what it took. What it has `used` besides tasks is to wait for the next one."""
        with self._turn:
            self._used, self._is_due = time.monotonic(), True
            self._others = {(kind, node): 1 for kind, node in used if kind is not StageActor}
            self._jobs[driver] -= 1
            if self._jobs[driver] <= 0:
                del self._jobs[driver]
                # The driver may die before it has ended them.
                self._ending.append((self._used, driver, self._lent.pop(driver, [])))

    def _refill(self) -> None:
        self._is_due = False
        self._spares.check()
        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        others = {use: number for use, number in self._others.items() if use[1] in alive}
        self._spares.start({(StageActor, None): self._size, **others})

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK_SECONDS)
            try:
                with self._turn:
                    self._look(time.monotonic())
            except RayError:
                _log.exception("the pool could not be looked after")

    def _look(self, now: float) -> None:
        died = dead_drivers()
        over = [handles for _, driver, handles in self._ending if driver in died]
        over += [self._lent.pop(driver) for driver in died & self._lent.keys()]
        for handle in (handle for handles in over for handle in handles):
            ray.kill(handle)
        self._ending = [each for each in self._ending if each[1] not in died and now - each[0] < _ENDING_SECONDS]
        for driver in died & self._jobs.keys():
            del self._jobs[driver]
            self._used, self._is_due = now, True
        if self._is_due and now - self._used > _QUIET_SECONDS:  # a start of processes would slow down that of a job
            self._refill()
        if not self._jobs and now - self._used > self._lasts:
            ray.kill(ray.get_runtime_context().current_actor)


class PooledSpares(Spares):
    """The spare actors of this process, and after them those of the cluster's pool."""

    def __init__(self, stay: Callable[[], bool]) -> None:
        """`stay` as for `Spares`."""
        super().__init__(stay)
        self._driver = ray.get_runtime_context().get_job_id()
        self._may_ask = True

    def fit(self, tasks: int) -> None:
        super().fit(tasks)
        _asked("begin", self._driver)

    def check(self, avoided: Collection[str] = ()) -> None:
        super().check(avoided)
        self._may_ask = self._may_ask and not avoided  # processes of the pool may be on any node

    def take(self, kind: type[TaskActor], node: str | None = None) -> Actor | None:
        if (found := super().take(kind, node)) is not None or not self._may_ask:
            return found
        try:
            lent: Actor | None = _of_pool("lend", self._driver, _made_with(), kind, node)
        except (ValueError, RayError):  # it has ended, or does not answer
            self._may_ask, lent = False, None
        return lent

    def leave(self, used: Wanted, tasks: int) -> None:
        super().leave(used, tasks)
        _asked("take_back", self._driver, dict(used))


def _asked(name: str, *args: object) -> Any:
    """The answer of the cluster's pool; None: there is none, or it has ended."""
    with suppress(ValueError, RayError):
        return _of_pool(name, *args)
    return None


def _of_pool(name: str, *args: object) -> Any:
    return ray.get(getattr(ray.get_actor(_NAME, NAMESPACE), name).remote(*args), timeout=_ANSWER_SECONDS)


def _made_with() -> dict[str, str]:
    return {"dpa": code_version(), "Python": sys.version.split()[0]}
