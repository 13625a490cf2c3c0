"""Whole jobs in the simulator: random ones keep every invariant, and machines that are broken on purpose are caught."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from wires import check_waits

from dpa.balance._tokens import TokenPolicy
from dpa.balance.decision import Decision
from dpa.measure.load import Load
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.machine import Machine
from dpa.protocol.task._credit import Credit
from dpa.protocol.task.operator import OperatorMachine
from dpa.protocol.task.record_queue import Forwards, Queued, RecordQueue
from dpa.protocol.task.source import SourceMachine
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.channel import Inbox
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import Event
from dpa.protocol.wire.instructions import Instruction
from dpa.protocol.wire.messages import Message
from dpa.protocol.wire.messages.data import CreditTransfer
from dpa.protocol.wire.messages.end import Deliver
from dpa.protocol.wire.messages.tables import TableUpdate
from experiments.simulated_jobs.random_jobs import random_job, run_random_job
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.violation import InvariantViolationError

SEEDS, CHUNK = 90, 30

ENOUGH_STEPS = 25_000
"""Those of a job that does not end; the longest of the first 60 takes 4,100."""

run_of = cache(run_random_job)
"""The run of a seed, for all tests that look at it."""


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_random_jobs_keep_every_invariant_and_give_the_right_result(first: int) -> None:
    for seed in range(first, first + CHUNK):
        try:
            run_of(seed)
        except InvariantViolationError as violation:
            pytest.fail("\n".join([f"seed {seed}: {violation}", *violation.history[-40:]]))


def test_the_random_jobs_are_worth_running() -> None:
    """They redistribute, forward, merge and are cut into splits: not all of them, but enough."""
    happened: Counter[str] = Counter()
    for seed in range(SEEDS):
        snapshot = run_of(seed).snapshot
        stage = snapshot[REDUCER]
        happened["redistributed"] += stage.version > 0
        happened["twice"] += stage.version > 1
        happened["forwarded"] += sum(task.forwarded for task in stage.tasks) > 0
        happened["refused"] += len(stage.decisions) > stage.version
        happened["blocked"] += any(task.blocked_seconds for task in snapshot[MAPPER].tasks)
        happened["ended by themselves"] += snapshot.phase == "done"
    assert happened["ended by themselves"] == SEEDS
    assert all(happened[what] >= 8 for what in ("redistributed", "twice", "forwarded", "refused", "blocked")), happened


def test_the_random_jobs_publish_what_is_worth_looking_at() -> None:
    happened: Counter[str] = Counter()
    more = [seed for seed in range(SEEDS, 2 * SEEDS) if random_job(seed).job.graph[REDUCER].publishing]
    for run in (*map(run_of, range(SEEDS)), *map(run_random_job, more)):
        stats, published = run.snapshot[REDUCER].aggregation, run.published[REDUCER]
        if stats is None:
            assert published == ()
            continue
        assert stats.epochs == len(published)
        records = [sum(int(share.records.sum()) for share in epoch) for epoch in published]
        happened["epochs"] += stats.epochs > 0
        happened["several"] += stats.epochs > 3
        happened["states transferred"] += stats.states > 0
        happened["grown"] += bool(records) and records[0] < records[-1]
        happened["redistributed"] += run.snapshot[REDUCER].version > 0 and stats.epochs > 0
    wanted = ("epochs", "several", "states transferred", "grown", "redistributed")
    assert all(happened[what] >= 5 for what in wanted), happened


def test_every_record_counts_once_in_what_is_measured_and_none_longer_than_the_stream() -> None:
    for run in map(run_of, range(SEEDS)):
        check_waits(run)
        stage = run.snapshot[REDUCER]
        for found in (stage.latency, stage.stage_latency):
            assert found is not None
            assert found.records == sum(stats.processed for stats in stage.tasks)
            assert 0.0 <= found.max <= run.seconds
            assert bool(found.max) == bool(found.records)


@pytest.mark.parametrize("seed", [3, 14, 15, 92])
def test_the_same_seed_gives_the_identical_run(seed: int) -> None:
    runs = []
    for _ in range(2):
        simulated = SimulatedCluster(random_job(seed).job, seed)
        outcome = simulated.run()
        runs.append((simulated.history(), outcome.snapshot, outcome.seconds, outcome.steps))
    assert runs[0] == runs[1]


def test_another_seed_gives_another_run_of_the_same_job() -> None:
    job = random_job(14).job
    histories = []
    for seed in (1, 2):
        simulated = SimulatedCluster(job, seed)
        simulated.run()
        histories.append(simulated.history())
    assert histories[0] != histories[1]


class Haunted(Machine):
    """Gets, before each message, another of the same number that an older generation has left on the way."""

    def handle(self, event: Event, now: float) -> list[Instruction]:
        if isinstance(event, Envelope):
            assert super().handle(replace(event, message=Deliver(None), generation=-1), now) == []
        return super().handle(event, now)


class HauntedCoordinator(Haunted, CoordinatorMachine):
    pass


class HauntedSource(Haunted, SourceMachine):
    pass


class HauntedOperator(Haunted, OperatorMachine):
    pass


@pytest.mark.parametrize("seed", [3, 92])
def test_what_an_older_generation_has_left_on_the_way_changes_nothing(seed: int) -> None:
    haunted = {"coordinator": HauntedCoordinator, "source": HauntedSource, "operator": HauntedOperator}
    runs = []
    for machines in ({}, haunted):
        simulated = SimulatedCluster(random_job(seed).job, seed, **machines)
        runs.append((simulated.run().snapshot, simulated.history()))
    assert runs[0] == runs[1]


# --- machines that are broken on purpose


class NeverEnds(CoordinatorMachine):
    """Misses the end."""

    def settle(self) -> None:
        pass


class KeepsWhatItGets(RecordQueue):
    """Skips the ownership check."""

    def _owned(self, queued: Queued) -> tuple[list[Queued], Forwards]:
        return [queued], []


class ForgetsDuplicates(Inbox):
    """Restores the order, and delivers duplicates."""

    def accept(self, envelope: Envelope) -> list[Message]:
        if envelope.seq < self._expected.get(envelope.sender, 0):
            return [envelope.message]
        return super().accept(envelope)


class TakesDuplicates(OperatorMachine):
    """Drops the check for duplicates."""

    def live_in(self, generation: int) -> None:
        super().live_in(generation)
        self._inbox = ForgetsDuplicates(generation)


class GoesBack(OperatorMachine):
    """Takes up its first table again when the second comes."""

    def _updated(self, sender: Address, message: TableUpdate) -> None:
        super()._updated(sender, message)
        if message.change.version > 1:
            self.queue.table = self._ring_table


class IgnoresCredit(Credit):
    """Lets everything go that waits."""

    def room(self, receiver: int, wanted: int) -> int:
        return wanted


class IgnoresWindows(Credit):
    """Lets any receiver have as much as the bounds allow."""

    def window(self, receiver: int) -> int:
        return self.most


class KeepsCreditWhereItWas(SourceMachine):
    """Does not let credit follow forwarded records."""

    def _credit_transferred(self, sender: Address, message: CreditTransfer) -> None:
        pass


class ForwardsInSilence(OperatorMachine):
    """Does not tell senders what it forwards."""

    def send(self, receiver: Address, message: Message) -> None:
        if not isinstance(message, CreditTransfer):
            super().send(receiver, message)


class NeverWaits(SourceMachine):
    """Is done as soon as its last split is read, whatever it has still to push."""

    @property
    def has_emitted_all(self) -> bool:
        return self._production.is_closed


class ActsWithoutReason(TokenPolicy):
    """Redistributes at every report, whatever the loads."""

    def report(self, reducer: int, load: Load, now: float) -> Decision:
        self._loads[reducer] = load
        return self.redistribute(reducer, now)


class IgnoresRounds(TokenPolicy):
    """Gives every reducer as many rounds as it likes."""

    def report(self, reducer: int, load: Load, now: float) -> Decision:
        self.rounds.clear()
        return super().report(reducer, load, now)


BROKEN: dict[str, tuple[str, Any, str]] = {
    "never ends": ("coordinator", NeverEnds, "the job did not end"),
    "skips the ownership check": (
        "dpa.protocol.task.operator.RecordQueue",
        KeepsWhatItGets,
        "acted on table . when it had table|a key of another",
    ),
    "takes duplicates": ("operator", TakesDuplicates, "records emitted to reducer, but"),
    "goes back to older tables": ("operator", GoesBack, "went back to table|acted on table"),
    "ignores credit": ("dpa.protocol.task.emitter.Credit", IgnoresCredit, "records in flight towards"),
    "ignores windows": (
        "dpa.protocol.task.emitter.Credit",
        IgnoresWindows,
        "records in flight towards .* whose window is",
    ),
    "keeps credit where it was": ("source", KeepsCreditWhereItWas, "counts .* records in flight towards reducer, not"),
    "forwards in silence": ("operator", ForwardsInSilence, "still has .* credits in use towards|the job did not end"),
    "ends before it has emitted all": (
        "source",
        NeverWaits,
        "while it had records to push",
    ),
    "acts without a reason": (
        "dpa.balance._tokens.TokenPolicy",
        ActsWithoutReason,
        "redistributed without a load reason",
    ),
    "ignores rounds": ("dpa.balance._tokens.TokenPolicy", IgnoresRounds, "caused more than . rounds"),
}
"""What a machine does wrong: the simulator's argument for it, or the name that it replaces; its class; the finding."""


FIRST = 25
"""The seed whose job catches those that the least ones do not, to begin with."""


@pytest.fixture
def violation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> InvariantViolationError:
    """The first violation that a broken machine commits in some random jobs."""
    where, broken, expected = BROKEN[request.param]
    machines = {}
    if "." in where:
        monkeypatch.setattr(where, broken)
    else:
        machines[where] = broken
    for seed in (FIRST, *range(60)):
        try:
            run_random_job(seed, ENOUGH_STEPS, **machines)
        except InvariantViolationError as error:
            assert re.search(expected, str(error)), error
            return error
    pytest.fail("60 random jobs have not caught it")


@pytest.mark.parametrize("violation", BROKEN, indirect=True)
def test_a_broken_machine_is_caught(violation: InvariantViolationError) -> None:
    assert violation.history


@pytest.mark.parametrize("violation", ["takes duplicates"], indirect=True)
def test_the_history_of_a_violation_reads_as_what_happened(violation: InvariantViolationError) -> None:
    history = violation.history
    times = [float(line.split()[0]) for line in history]
    assert times == sorted(times)
    assert all(re.match(r" *\d+\.\d{6}  (coordinator|load balancer|mapper \d|reducer \d) ", line) for line in history)
    assert any(re.search(r"coordinator +<- mapper 0 #[02]: SplitRequest\(event_time=None\)", line) for line in history)
    assert any(
        re.search(r"reducer \d +<- mapper \d #\d+: Push\(block=<\d+ records>, version=0, origin=", line)
        for line in history
    )
    assert any(re.search(r"coordinator +Start\(\)", line) for line in history)
    assert max(map(len, history)) < 400
    last = history[-1]
    assert "Push" in last and last[12:] in [line[12:] for line in history[:-1]]  # the second copy of the same message


def test_a_job_that_cannot_go_on_is_distinguished_from_one_that_ends() -> None:
    simulated = SimulatedCluster(random_job(14).job, 14)
    with pytest.raises(InvariantViolationError, match="the job did not end"):
        simulated.run(max_steps=10)
    assert len(simulated.history()) == 10
