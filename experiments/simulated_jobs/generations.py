"""A simulated job that is begun again behind its newest checkpoint when one of its processes dies: its generations, one
after the other, and beside each other where one was taken for dead.

What decides is what does so on Ray (`Recoveries`, `Checkpointing`, the chain of checkpoints). Simulated are the
processes, which are killed, the network, which keeps the messages of dead generations, and the file system.
"""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from dpa.checkpoints import CheckpointStore
from dpa.errors import CheckpointError, JobFailedError
from dpa.protocol.checkpointing import Checkpointing
from dpa.protocol.graph import Graph
from dpa.protocol.recovery import CheckpointOptions, Death, Recoveries, RecoveryOptions, SavedJob
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.instructions import Commit
from dpa.protocol.wire.snapshots import JobSnapshot
from dpa.tolerance import Letter
from experiments.simulated_jobs._files import KilledError, SimulatedFiles
from experiments.simulation.checks.published import LEFT
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import SimulatedJob, SimulatedRun
from experiments.simulation.violation import InvariantViolationError

_NEEDED_AT_LAST = ("operator", COORDINATOR.stage)
"""Whose death counts between the end of a job and the moment at which its result is fetched."""


@dataclass(frozen=True)
class Fault:
    """What ends a generation, unless it is done before.

    Attributes:
        steps: after how many events of the generation at the soonest.
        checkpoints: and after how many checkpoints of it.
        kind: of which process: `source`, `operator`, `load balancer` or `coordinator`.
        pick: which of that kind, counted around.
        is_alive: whether it is only taken for dead, and all of its generation goes on.
        writes: operations of the file system that a coordinator is still to carry out that dies while it begins, or
            while it writes a checkpoint.
    """

    steps: int
    kind: str
    pick: int = 0
    checkpoints: int = 0
    is_alive: bool = False
    writes: int = 0

    def is_due(self, cluster: SimulatedCluster) -> bool:
        """Whether it happens now."""
        return cluster.steps >= self.steps and len(cluster.checkpoints) >= self.checkpoints


@dataclass(frozen=True)
class Faults:
    """What goes wrong with a job.

    Attributes:
        of: generations, by number: what ends each.
        overheard: how often a message of a dead generation comes to the next one, 0 to 1; some come twice.
        write_failures: how often an operation of the file system fails, 0 to 1.
        late_lists: how often a list of files is too old, 0 to 1.
    """

    of: tuple[Fault | None, ...] = ()
    overheard: float = 0.5
    write_failures: float = 0.0
    late_lists: float = 0.0


@dataclass(frozen=True)
class SimulatedGeneration:
    """One of them.

    Attributes:
        cluster: its machines.
        began: when, in seconds of virtual time of the job.
    """

    cluster: SimulatedCluster
    began: float

    @property
    def now(self) -> float:
        """The time of the job."""
        return self.began + self.cluster.clock

    @property
    def next_at(self) -> float | None:
        """When its next event comes, in the time of the job; None: there is none."""
        at = self.cluster.next_at
        return None if at is None else self.began + at


@dataclass
class SimulatedGenerations:
    """A job with faults.

    Attributes:
        job: of a generation, given its number and its graph, and the seed of what is random in it.
        graph: of the job, with all its input.
        seed: of the schedulers.
        faults: what goes wrong.
        recovery, checkpoints: as of a job file; None: it makes no checkpoints.
        machines: arguments of `SimulatedCluster`.
        died: is called when a process is about to be killed, or taken for dead.
        counts: what has happened.
        in_vain: deaths since the newest checkpoint.
        cluster: the last generation that was begun.
        letters: the dead letters of a job that is done.
        finals: by stage and epoch, what is in the sinks, which take each epoch once, in the order of their numbers.
    """

    job: Callable[[int, Graph], SimulatedJob]
    graph: Graph
    seed: int
    faults: Faults
    recovery: RecoveryOptions = field(default_factory=RecoveryOptions)
    checkpoints: CheckpointOptions | None = None
    machines: Mapping[str, Any] = field(default_factory=dict)
    died: Callable[[SimulatedCluster], None] = lambda cluster: None
    cluster: SimulatedCluster = field(init=False)
    letters: tuple[Letter, ...] = ()

    def __post_init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.finals: dict[str, dict[int, tuple[pa.Table, ...]]] = {}
        self._random = random.Random(f"faults of {self.seed}")
        self.files = SimulatedFiles(random.Random(f"files of {self.seed}"))
        self._zombies: list[SimulatedGeneration] = []
        self._strays: list[Envelope] = []
        self._lives: list[SimulatedGeneration] = []
        self._store = CheckpointStore(self.files)
        self._saved: SavedJob | None = None
        self._stored: Checkpointing | None = None
        self.in_vain = 0
        if self.checkpoints is not None:
            self._saved = SavedJob(self.checkpoints, self._store.create("simulated").job)
        self.files.late = self.faults.late_lists

    def run(self, max_steps: int = 1_000_000) -> SimulatedRun:
        """Run to the end, each generation in at most `max_steps`.

        Raises:
            InvariantViolationError: an invariant was broken, or the job cannot end.
            JobFailedError: more processes died than it bears.
        """
        recoveries, now, newest = Recoveries(self.recovery), 0.0, -1
        while True:
            number = recoveries.generation
            fault = self.faults.of[number] if number < len(self.faults.of) else None
            self._let_zombies(now)
            try:
                died = self._begin(number, fault)
            except CheckpointError as error:
                raise InvariantViolationError(str(error), self.history()) from error
            if died is None:
                life = SimulatedGeneration(self.cluster, now)
                self._lives.append(life)
                died = self._live(life, fault, max_steps)
                now = life.now
            if died is None:
                self._end()
                return self._with_finals(self.cluster.outcome())
            self.counts["deaths"] += 1
            before, newest = newest, self._newest()
            self.in_vain = self.in_vain + 1 if newest == before else 1
            death = Death(died, "it was killed", generation=number, at=now)
            wait = recoveries.after(death, has_progressed=newest > before)
            if wait is None:
                raise JobFailedError(recoveries.in_words())
            now += wait

    def _newest(self) -> int:
        """The number of the newest checkpoint; -1 if there is none."""
        found = None if self._saved is None else self._store.chain(self._saved.job).newest()
        return -1 if found is None else found.number

    def _begin(self, number: int, fault: Fault | None) -> Address | None:
        """Begin a generation; returns the coordinator if it is killed meanwhile."""
        checkpointing, graph, whole = None, self.graph, None
        if self._saved is not None:
            is_killed = fault is not None and fault.kind == COORDINATOR.stage and not fault.steps
            self.files.left = fault.writes if fault is not None and is_killed else None
            try:
                checkpointing = Checkpointing(self._store, self._saved, graph, number, pickle.dumps)
            except KilledError:
                self.counts["coordinators killed while they take the checkpoints over"] += 1
                return COORDINATOR
            finally:
                self.files.left = None
            graph, whole = checkpointing.graph, self.graph
            self._stored = checkpointing
            self._require_newest(graph)
        job = replace(self.job(number, graph), whole=whole)
        self.cluster = SimulatedCluster(
            job,
            self.seed + number,
            generation=number,
            checkpointing=checkpointing,
            overheard=lambda envelope: self._overhear(number, envelope),
            committed=self._commit,
            **self.machines,
        )
        for envelope in self._strays:
            self._stray(self.cluster, envelope)
        self._strays = []
        return None

    def _commit(self, commit: Commit) -> None:
        """A sink is given an epoch, by whichever generation."""
        taken = self.finals.setdefault(commit.stage, {})
        if commit.epoch > max(taken, default=LEFT):
            self.counts["epochs that were published"] += 1
            taken[commit.epoch] = commit.staged

    def _with_finals(self, run: SimulatedRun) -> SimulatedRun:
        """A run with what all generations have published."""
        finals = {name: {**self.finals.get(name, {}), LEFT: of[LEFT]} for name, of in run.finals.items()}
        return replace(run, finals=finals)

    def _require_newest(self, graph: Graph) -> None:
        """No generation goes back behind what was reported as written."""
        assert graph.checkpoints is not None
        found, reported = graph.checkpoints.read, 0
        for cluster in (life.cluster for life in self._lives if life.cluster.checkpoints):
            assert cluster.graph.checkpoints is not None
            reported = max(reported, cluster.graph.checkpoints.read + cluster.checkpoints[-1].read)
        if found < reported:
            why = f"a generation begins behind {found} rows, though one behind {reported} was written"
            raise InvariantViolationError(why, self.history())
        self.counts["generations that began behind a checkpoint"] += found > 0

    def history(self) -> list[str]:
        """The events of all generations, one after the other."""
        return [line for life in self._lives for line in life.cluster.history()]

    def _live(self, life: SimulatedGeneration, fault: Fault | None, max_steps: int) -> Address | None:
        """Let a generation live; returns who has died, or None where the job is done."""
        cluster = life.cluster
        self.files.failures = self.faults.write_failures
        try:
            while cluster.next_at is not None and cluster.failure is None and cluster.steps < max_steps:
                if fault is not None and fault.is_due(cluster):
                    found = self._strike(life, fault)
                    fault = None
                    if found is not None:
                        return self._died(life, found, is_alive=cluster.failure is None and not cluster.dead)
                self._let_zombies(life.next_at)
                cluster.step()
        finally:
            self.files.failures = 0.0
        if cluster.is_fenced:
            raise InvariantViolationError(f"the newest generation was stopped: {cluster.failure}", self.history())
        lost = [task for task in cluster.dead if self._kind(cluster, task) in _NEEDED_AT_LAST]
        if cluster.dead and (cluster.failure is not None or (cluster.is_finished and lost)):
            return self._died(life, min(cluster.dead), is_alive=False)
        return None

    def _strike(self, life: SimulatedGeneration, fault: Fault) -> Address | None:
        """Let a fault happen; returns who is gone if that is noticed at once."""
        cluster = life.cluster
        victims = [address for address in cluster.alive if self._kind(cluster, address) == fault.kind]
        if not victims:
            return None
        victim = victims[fault.pick % len(victims)]
        self.died(cluster)
        if fault.is_alive:
            self.counts["generations that were taken for dead"] += 1
            return victim
        self.counts[f"{fault.kind}s killed"] += 1
        cluster.kill(victim)
        if victim != COORDINATOR:
            return None
        for cut in [event for event in cluster.pending if isinstance(event, JobSnapshot)]:  # its process is killed amid
            self.files.left = fault.writes
            try:
                cluster.saving.write(cut)
            except KilledError:
                self.counts["coordinators killed while they write a checkpoint"] += 1
            finally:
                self.files.left = None
        return victim

    @staticmethod
    def _kind(cluster: SimulatedCluster, address: Address) -> str:
        if address in (COORDINATOR, BALANCER):
            return address.stage
        return "source" if cluster.graph.is_source(address.stage) else "operator"

    def _died(self, life: SimulatedGeneration, victim: Address, *, is_alive: bool) -> Address:
        """A generation ends for its driver: what it has sent is still on its way, and perhaps it goes on."""
        if is_alive:
            self._zombies.append(life)
        self._strays = [
            event
            for event in life.cluster.pending
            if isinstance(event, Envelope) and self._random.random() < self.faults.overheard
        ]
        return victim

    def _overhear(self, number: int, envelope: Envelope) -> None:
        """A generation sends a message: if it is taken for dead, the living one may get a copy."""
        if self.cluster.generation > number and self._random.random() < self.faults.overheard:
            self._stray(self.cluster, envelope)

    def _stray(self, cluster: SimulatedCluster, envelope: Envelope) -> None:
        """A message of a dead generation comes to whoever is in the process of its receiver now."""
        for _ in range(self._random.choice([1, 2])):
            self.counts["messages of dead generations"] += 1
            at = envelope.receiver
            if at in cluster.tasks:
                at = self._random.choice([at, *cluster.tasks])
            cluster.arrives(envelope, self._random.choice([0.001, 0.1]) * self._random.random(), at)

    def _let_zombies(self, until: float | None) -> None:
        """Let those that were taken for dead go on until a moment."""
        for zombie in list(self._zombies):
            cluster = zombie.cluster
            while cluster.failure is None and (at := zombie.next_at) is not None and (until is None or at <= until):
                cluster.step()
            if cluster.is_fenced:
                self.counts["generations that found their checkpoints taken over"] += 1
                self._zombies.remove(zombie)

    def _end(self) -> None:
        """The job is done: those that were taken for dead end at last, and no file stays."""
        self._let_zombies(None)
        failed = self.cluster.coordinator.errors.noted
        if self._saved is None or self._stored is None:
            self.letters = failed.letters
            return
        self.letters = (*self._stored.letters.with_rest(failed),)
        slots = self._store.chain(self._saved.job)
        generations = [slot.generation for number in slots.numbers() if (slot := slots.slot(number)) is not None]
        if generations != sorted(generations):
            raise InvariantViolationError(f"slots of generations {generations} follow each other", self.history())
        self.files.late = 0.0
        slots.remove()
        if self.files.content:
            raise InvariantViolationError(f"files were left: {sorted(self.files.content)}", self.history())
