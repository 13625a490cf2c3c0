"""One run of the experiment: a job of which processes are killed until it has ended, by as many drivers as it takes."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from experiments.chaos.driver import RECOVERY
from experiments.chaos.jobs import TOPOLOGIES
from experiments.chaos.world import AWAY_SECONDS, BROKER, DRIVER, NODES, STORAGE, Kill, World, kill, kind_of

BACKOFF = "100ms"

MEAN_SECONDS = 1.5
"""From the begin of the stream, or the kill before, to a kill that may come at any moment, on average."""

PATIENCE = 6.0
"""Seconds for which a kill waits for its moment; then it comes at any."""

MOMENTS = ("any", "any", "startup", "checkpoint", RECOVERY, "merge")
"""What a job is to be at when something is killed: a phase of its driver, or writing a checkpoint."""

TASKS = ("source task", "operator task", "load balancer", "coordinator")

MOST_SECONDS = 480.0
"""Of a run; one that takes longer hangs."""

MOST_DRIVERS = 8

LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class Way:
    """What a run is of.

    Attributes:
        topology: the name of the job.
        consistency: `merge` or `migrate`.
        sink: where its results go.
        checkpoints: where those go: `directory`, `objects`, or empty: there are none.
    """

    topology: str
    consistency: str
    sink: str
    checkpoints: str


@dataclass(frozen=True)
class Flowed:
    """Records flow behind a kill, by the same driver.

    Attributes:
        what: was killed; of several, the first, or that of a node.
        seconds: since the first of them.
        again: whether they flowed before; or else a job was killed that was starting.
    """

    what: str
    seconds: float
    again: bool


@dataclass
class Run:
    """What became of a run.

    Attributes:
        way: what it was of.
        kills: what was killed.
        drivers: how each ended: `killed`, `failed`, or `ended`.
        resumed: how many drivers went on behind a checkpoint.
        flowed: each time that records flowed behind a kill.
        starts: seconds from the start of the tasks until records flowed, of drivers of which nothing was killed before.
        seconds: that it took.
        errors: of drivers that failed.
        is_exact: whether its results are Spark's.
        left: what it should not have left.
    """

    way: Way
    kills: list[Kill] = field(default_factory=list)
    drivers: list[str] = field(default_factory=list)
    resumed: int = 0
    flowed: list[Flowed] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    seconds: float = 0.0
    errors: list[str] = field(default_factory=list)
    is_exact: bool = False
    left: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        """How it came to its end."""
        if self.drivers[-1:] != ["ended"]:
            return "failed"
        return "went on" if len(self.drivers) == 1 else "resumed" if self.resumed else "begun anew"


class Chaos:
    """Runs one job, and kills."""

    def __init__(self, world: World, name: str, place: str, rows: int, way: Way, draw: random.Random) -> None:
        """`name`: of the job, which no other has; `place`: where its rows are, as its topology takes it."""
        self.run = Run(way)
        self._world = world
        self._name = name
        self._draw = draw
        self._topology = TOPOLOGIES[way.topology]
        sections: dict[str, Any] = {
            "limits": {"batch_records": 50, "in_flight_records": 400, "split_records": 1_000},
            "recovery": {"attempts": 8, "backoff": BACKOFF},
            "placement": {"allocator": "even", "costs": dict.fromkeys(self._topology.stages, 1.0)},
        }
        if self._topology.publishes is not None:
            sections["until"] = {"records": rows}
        self._store = ""
        if way.checkpoints:
            self._store = world.store(name, is_remote=self._is_remote)
            sections["checkpoint"] = {"path": self._store, "every": "500ms", "keep": 2}
        self._given = {
            "name": name,
            "topology": way.topology,
            "consistency": way.consistency,
            "file": place,
            "address": world.cluster.address,
            "sections": sections,
            "write": {step: world.write(way.sink, self._place(step), self._topology.publishes) for step in self._steps},
        }
        self._at, self._has_flowed, self._starts = "", False, 0.0
        self._killed_at: list[tuple[str, float]] = []
        self._said: list[str] = []
        self._given_up: set[str] = set()  # jobs whose driver was killed before their first checkpoint

    @property
    def _is_remote(self) -> bool:
        return self.run.way.checkpoints == "objects"

    @property
    def _steps(self) -> list[str]:
        return [*self._topology.queries]

    def _place(self, step: str) -> str:
        return f"{self._name}-{step}"

    def work(self, kills: int) -> Run:
        """Run the job to its end, and kill so often meanwhile."""
        began = time.monotonic()
        planned: list[tuple[str, str]] = []
        for _ in range(kills):
            planned.append(self._plan(planned))
        self._start(resume=False)
        try:
            while self._goes_on(planned, time.monotonic() - began > MOST_SECONDS):
                time.sleep(LOOK_SECONDS)
        finally:
            self._driver.kill()
            self._driver.wait()
        if self._given_up:
            self._world.remove(self._store, self._given_up)
        self.run.seconds = round(time.monotonic() - began, 1)
        return self.run

    def _goes_on(self, planned: list[tuple[str, str]], hangs: bool) -> bool:
        """Kill what is planned first if it is time, and see to a driver that has ended; whether the run goes on."""
        if hangs:
            self._driver.kill()
            self._end("hung")
            return False
        status = self._driver.poll()
        if status is not None:
            self._end("ended" if status == 0 else "killed" if status < 0 else "failed")
            if status == 0 or len(self.run.drivers) == MOST_DRIVERS:
                return False
            self._start(resume=bool(self._store) and self._world.has_checkpoint(self._store, self._given_up))
        elif planned and self._is_time(planned[0][1]) and self._kill(planned[0][0]):
            del planned[0]
            self._draw_next()
        return True

    def _draw_next(self) -> None:
        """Of the next kill, when it comes if at any moment."""
        self._since, self._due = time.monotonic(), self._draw.expovariate(1 / MEAN_SECONDS)

    def _plan(self, before: list[tuple[str, str]]) -> tuple[str, str]:
        """What is to be killed, and when; the other node once, by its raylet or with all its processes."""
        kinds = [
            *TASKS,
            *([] if any(what in NODES for what, _ in before) else NODES),
            *([DRIVER] if self._store else []),
        ]
        if self._is_remote or self.run.way.sink == "objects":
            kinds.append(STORAGE)
        if self._topology.reads_topic:
            kinds.append(BROKER)
        return self._draw.choice(kinds), self._draw.choice(MOMENTS)

    def _is_time(self, moment: str) -> bool:
        """A kill at any moment, or one whose moment does not come, waits for the stream, and counts from its begin."""
        if self._at in ("", "load", "startup"):
            return moment == self._at
        waited = time.monotonic() - self._since
        if moment == "any" or waited > PATIENCE:
            return waited > self._due
        return self._step() == moment

    def _step(self) -> str:
        """What the job is at."""
        is_streaming = self._at == "stream" and bool(self._store)
        if is_streaming and self._world.is_writing(self._name, is_remote=self._is_remote):
            return "checkpoint"
        return self._at

    def _kill(self, what: str) -> bool:
        """Whether there was something to kill."""
        step, at = self._step(), time.time()
        match what:
            case "driver":
                kill(self._driver.pid)
            case "another node":
                self._world.kill_node()
            case "its raylet":
                self._world.kill_raylet()
            case "object storage":
                self._world.kill_storage(self._draw.choice(AWAY_SECONDS))
                self._killed_at.clear()  # for how long that takes says nothing of a recovery
            case "broker":
                self._world.broker.silence(self._draw.choice(AWAY_SECONDS))
                self._killed_at.clear()
            case _:
                found = self._world.processes(self._name)
                of_kind = [task for task in sorted(found) if kind_of(task, self._topology.stages[0]) == what]
                if not of_kind:
                    return False
                kill(self._draw.choice(found[self._draw.choice(of_kind)]))
        self.run.kills.append(Kill(what, step, at))
        if what not in (DRIVER, STORAGE, BROKER):
            self._killed_at.append((what, at))
        return True

    def _start(self, *, resume: bool) -> None:
        self._world.mend()
        if self._store and not resume:
            self._given_up |= self._world.jobs(self._store)
        elif self._given_up:  # one may have got its checkpoint behind the death of its driver
            self._world.remove(self._store, self._given_up)
        self._at, self._has_flowed, self._said = "", False, []
        self._killed_at.clear()
        self._draw_next()
        self.run.resumed += resume
        command = [sys.executable, "-m", "experiments.chaos.driver", json.dumps(self._given)]
        self._driver = subprocess.Popen(
            [*command, *(["resume"] if resume else [])], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._readers = [threading.Thread(target=read, args=(self._driver,)) for read in (self._listen, self._keep)]
        for reader in self._readers:
            reader.start()

    def _listen(self, driver: subprocess.Popen[str]) -> None:
        """Note what a driver is at, and when records flow again."""
        assert driver.stdout is not None
        for line in driver.stdout:
            if line.strip() == "startup":
                self._starts = time.time()
            if line.strip() == "stream":
                self._note_flow()
            self._at = line.strip()

    def _note_flow(self) -> None:
        """Records flow: for the first time of a driver, or again."""
        if self._at == "startup":
            self._draw_next()
            if not self._killed_at:
                self.run.starts.append(time.time() - self._starts)
        elif self._killed_at:
            killed, at = [what for what, _ in self._killed_at], self._killed_at[0][1]
            first = next((what for what in killed if what in NODES), killed[0])
            self.run.flowed.append(Flowed(first, time.time() - at, self._has_flowed))
            self._killed_at.clear()
        self._has_flowed = True

    def _keep(self, driver: subprocess.Popen[str]) -> None:
        assert driver.stderr is not None
        self._said.extend(driver.stderr)

    def _end(self, how: str) -> None:
        self._driver.wait()
        for reader in self._readers:
            reader.join()
        self.run.drivers.append(how)
        if how in ("failed", "hung"):
            self.run.errors.append("".join(self._said)[-2_000:])
