"""Whole jobs in the simulator: random ones keep every invariant, and machines that are broken on purpose are caught."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from builders import map_task

from dpa.balance.balancer import Balancer
from dpa.balance.decision import Decision
from dpa.balance.load import Load
from dpa.protocol import assembly
from dpa.protocol.channel import Inbox
from dpa.protocol.coordinator import CoordinatorMachine
from dpa.protocol.machine import ProcessDone
from dpa.protocol.mapper import MapperMachine
from dpa.protocol.messages import BALANCER, Address, Envelope, Freeze, Message, ReducerReport, TableUpdate
from dpa.protocol.reducer import Queued, ReducerMachine, ReducerOptions
from dpa.routing.table import RoutingTable
from dpa.simulation import cluster
from dpa.simulation.cluster import InvariantViolationError, Network, SimulatedCluster, SimulatedJob
from dpa.simulation.random_jobs import Collect, random_job, run_random_job
from dpa.splits import memory_splits

SEEDS, CHUNK = 150, 30


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_random_jobs_keep_every_invariant_and_give_the_right_result(first: int) -> None:
    for seed in range(first, first + CHUNK):
        try:
            run_random_job(seed)
        except InvariantViolationError as violation:
            pytest.fail("\n".join([f"seed {seed}: {violation}", *violation.history[-40:]]))


def test_the_random_jobs_are_worth_running() -> None:
    """They redistribute, forward, merge and are cut into splits: not all of them, but enough."""
    happened: Counter[str] = Counter()
    for seed in range(60):
        snapshot = run_random_job(seed).snapshot
        happened["redistributed"] += snapshot.epoch > 0
        happened["twice"] += snapshot.epoch > 1
        happened["forwarded"] += sum(reducer.forwarded for reducer in snapshot.reducers) > 0
        happened["refused"] += len(snapshot.decisions) > snapshot.epoch
        happened["ended by themselves"] += snapshot.phase == "done"
    assert happened["ended by themselves"] == 60
    assert all(happened[what] >= 5 for what in ("redistributed", "twice", "forwarded", "refused")), happened


@pytest.mark.parametrize("seed", [3, 14, 15, 92])
def test_the_same_seed_gives_the_identical_run(seed: int) -> None:
    runs = []
    for _ in range(2):
        simulated = SimulatedCluster(random_job(seed)[0], seed)
        outcome = simulated.run()
        runs.append((simulated.history(), outcome.snapshot, outcome.seconds, outcome.steps))
    assert runs[0] == runs[1]


def test_another_seed_gives_another_run_of_the_same_job() -> None:
    job = random_job(14)[0]
    histories = []
    for seed in (1, 2):
        simulated = SimulatedCluster(job, seed)
        simulated.run()
        histories.append(simulated.history())
    assert histories[0] != histories[1]


# --- machines that are broken on purpose


class EndsByEmptyQueues(CoordinatorMachine):
    """Ends when every reducer says that its queue is empty, as the published prototype does."""

    def _reducer_report(self, sender: Address, message: ReducerReport) -> None:
        self._note(message.stats)
        all_mapped = len(self._mappers_done) == len(self._mappers)
        if all_mapped and not self._frozen and not any(stats.queue for stats in self._reducers):
            self._frozen = True
            self.send(BALANCER, Freeze())


class NeverEnds(CoordinatorMachine):
    """Misses the end."""

    def _reducer_report(self, sender: Address, message: ReducerReport) -> None:
        self._note(message.stats)


class KeepsWhatItGets(ReducerMachine):
    """Skips the ownership check."""

    def _keep_owned(self, queued: Queued) -> list[Queued]:
        return [queued]


class LosesForwarded(ReducerMachine):
    """Drops what it should forward."""

    def send(self, receiver: Address, message: Message) -> None:
        if getattr(message, "hops", 0) == 0:
            super().send(receiver, message)


class ForgetsDuplicates(Inbox):
    """Restores the order, and delivers duplicates."""

    def accept(self, envelope: Envelope) -> list[Message]:
        if envelope.seq < self._expected.get(envelope.sender, 0):
            return [envelope.message]
        return super().accept(envelope)


class TakesDuplicates(ReducerMachine):
    """Drops the check for duplicates."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._inbox = ForgetsDuplicates()


class GoesBack(ReducerMachine):
    """Takes up its first table again when the second comes."""

    def __init__(self, index: int, table: RoutingTable, options: ReducerOptions) -> None:
        super().__init__(index, table, options)
        self._first = table

    def _table_update(self, sender: Address, message: TableUpdate) -> None:
        super()._table_update(sender, message)
        if message.change.epoch > 1:
            self.table = self._first


class IgnoresCredit(MapperMachine):
    """Pushes whatever it has mapped."""

    def _go_on(self) -> None:
        self._credit = 10**9
        super()._go_on()


class CountsTwice(ReducerMachine):
    """Says twice what it has processed."""

    def _process_done(self, sender: Address, event: ProcessDone) -> None:
        rows = self._working_on.block.rows if self._working_on else 0
        super()._process_done(sender, event)
        self.processed += rows


class ActsWithoutReason(Balancer):
    """Redistributes at every report, whatever the loads."""

    def report(self, reducer: int, load: Load, now: float) -> Decision:
        self._loads[reducer] = load
        return self.redistribute(reducer, now)


class IgnoresRounds(Balancer):
    """Gives every reducer as many rounds as it likes."""

    def report(self, reducer: int, load: Load, now: float) -> Decision:
        self._rounds = [0] * len(self._rounds)
        return super().report(reducer, load, now)


BROKEN = {
    "never ends": ("coordinator", NeverEnds, "the job did not end|no reducer has had any"),
    "skips the ownership check": (
        "reducer_machine",
        KeepsWhatItGets,
        "acted on table . when it had table|a key of another",
    ),
    "loses what it forwards": ("reducer_machine", LosesForwarded, "records emitted, but"),
    "takes duplicates": ("reducer_machine", TakesDuplicates, "records emitted, but"),
    "goes back to older tables": ("reducer_machine", GoesBack, "went back to table|acted on table"),
    "counts twice": ("reducer_machine", CountsTwice, "records emitted, but"),
    "ignores credit": (cluster, "MapperMachine", IgnoresCredit, "records in flight|records are queued"),
    "acts without a reason": (assembly, "Balancer", ActsWithoutReason, "redistributed without a load reason"),
    "ignores rounds": (assembly, "Balancer", IgnoresRounds, "caused more than . rounds"),
}


@pytest.fixture
def violation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> InvariantViolationError:
    """The first violation that a broken machine commits in some random jobs."""
    *where, expected = BROKEN[request.param]
    machines = {where[0]: where[1]} if len(where) == 2 else {}
    if len(where) == 3:
        monkeypatch.setattr(*where)
    for seed in range(60):
        try:
            run_random_job(seed, **machines)
        except InvariantViolationError as error:
            assert re.search(expected, str(error)), error
            return error
    pytest.fail("60 random jobs have not caught it")


@pytest.mark.parametrize("violation", BROKEN, indirect=True)
def test_a_broken_machine_is_caught(violation: InvariantViolationError) -> None:
    assert violation.history


def test_ending_by_empty_queues_forgets_a_reducer_that_has_not_reported_its_queue_yet() -> None:
    records = pa.table({"key": ["hot"] * 8, "number": range(8)})
    job = SimulatedJob(
        tuple(memory_splits(records, 2)),
        map_task(None, Collect(), batch_records=1),
        reducers=3,
        service_seconds=lambda reducer: 2.0,
        network=Network(0.0001, 0.2),
    )
    SimulatedCluster(job, seed=0).run()
    caught = 0
    for seed in range(20):
        try:
            SimulatedCluster(job, seed, coordinator=EndsByEmptyQueues).run()
        except InvariantViolationError as error:
            assert re.search("reducer . is to merge with . records in its queue", str(error)), error
            caught += 1
    assert caught > 5


@pytest.mark.parametrize("violation", ["takes duplicates"], indirect=True)
def test_the_history_of_a_violation_reads_as_what_happened(violation: InvariantViolationError) -> None:
    history = violation.history
    times = [float(line.split()[0]) for line in history]
    assert times == sorted(times)
    assert all(re.match(r" *\d+\.\d{6}  (coordinator|balancer|mapper \d|reducer \d) ", line) for line in history)
    assert any(re.search(r"coordinator +<- mapper 0 #0: SplitRequest\(\)", line) for line in history)
    assert any(
        re.search(r"reducer \d +<- mapper \d #\d+: Push\(block=<\d+ records>, epoch=0, mapper=\d", line)
        for line in history
    )
    assert any(re.search(r"mapper \d +Start\(\)", line) for line in history)
    assert max(map(len, history)) < 400
    last = history[-1]
    assert "Push" in last and last[12:] in [line[12:] for line in history[:-1]]  # the second copy of the same message


def test_a_job_that_cannot_go_on_is_told_from_one_that_ends() -> None:
    simulated = SimulatedCluster(random_job(14)[0], 14)
    with pytest.raises(InvariantViolationError, match="the job did not end"):
        simulated.run(most_steps=10)
    assert len(simulated.history()) == 10
