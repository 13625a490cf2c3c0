"""Runs a plan in this process, one event after the other, with user code on the same blocks and states as on Ray."""

from __future__ import annotations

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from dpa._util.outages import HERE
from dpa.balance.decision import Decision, Outcome
from dpa.balance.options import NoBalancingOptions
from dpa.balance.policy import BalancedStage, BalancePolicy
from dpa.errors import JobFailedError
from dpa.execution.emission import Emission
from dpa.execution.reduce_task import ReduceStage
from dpa.local.machines import LocalMachines
from dpa.measure.load import Load, TrafficMeter
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.graph import Stage
from dpa.protocol.machines import task_of
from dpa.protocol.plan import RunHooks, RunOutcome, RunPlan, Times
from dpa.protocol.task.delivery import TaskOutput
from dpa.protocol.task.user_code import no_archive
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.epochs import EndedEpoch
from dpa.protocol.wire.events import (
    CheckpointFailed,
    CloseFeeds,
    Committed,
    Event,
    ExtractDone,
    PollDone,
    ProcessDone,
    PublishDone,
    Redistribute,
    SnapshotMarked,
    Start,
    StepDone,
    Tick,
)
from dpa.protocol.wire.instructions import Commit, Instruction, NextStep, Poll, ProcessBlocks
from dpa.protocol.wire.messages.data import Push
from dpa.protocol.wire.nodes import JobDemand, Placer
from dpa.protocol.wire.snapshots import JobSnapshot
from dpa.protocol.wire.use import TaskUse
from dpa.routing.assignment import KeySplit
from dpa.routing.change import TableChange
from dpa.routing.members import MemberChange
from dpa.routing.ring import TokenRing
from dpa.routing.table import RoutingTable
from dpa.runtime.asides import LoggedEpochs, OpenFeeds
from dpa.runtime.packed_plan import cloudpickle_here

if TYPE_CHECKING:
    from dpa.protocol.checkpointing import Checkpointing

_TICK_SECONDS = 0.25  # virtual time between two ticks of a machine, and the most that a source takes for a step
_RECORD_SECONDS = 1e-6  # virtual time in which a task processes or emits a record
_OBSERVE_SECONDS = 0.25  # real time between two statistics


class LocalBackend:
    """Runs plans in this process, without actors, threads or a network, for tests of jobs, and to see what their user
    code costs. Windows are closed, results published, checkpoints made and epochs logged as on Ray.

    Where a stage's grouping is the ring, keys are redistributed again and again, with any strategy. If
    states can be merged, one of the keys is split over all tasks. If they migrate, they move with the keys.
    A source has one task, and no task is slow on purpose. An open input ends where nothing more has come. The same rows
    give the same epochs each time, as time is virtual: a source takes `row_seconds` for a row, all else next to none.

    Args:
        redistributes: whether keys are redistributed at all.
        row_seconds: virtual time in which a source reads a row, more than 0. With 0.01, what is due each second is due
            every 100 rows.
    """

    name: ClassVar[str] = "local"
    samples: ClassVar[bool] = False
    is_ready: ClassVar[bool] = True

    def __init__(self, *, redistributes: bool = True, row_seconds: float = 1e-5) -> None:
        if row_seconds <= 0:
            raise ValueError(f"row_seconds must be more than 0, not {row_seconds:g}")
        self._redistributes = redistributes
        self._row_seconds = row_seconds

    def prepared(
        self, tasks: int, placer: Placer | None = None, demand: JobDemand | None = None
    ) -> AbstractContextManager[LocalBackend]:
        return nullcontext(self)

    def run(self, plan: RunPlan, hooks: RunHooks) -> RunOutcome:
        """Run a plan. No request is looked at.

        Raises:
            ExecutorError: user code failed.
            JobFailedError: it failed more often than is tolerated.
        """
        stages = tuple(_local(stage, plan, redistributes=self._redistributes) for stage in plan.graph.stages)
        generation = 0 if plan.saved is None else plan.saved.generation
        plan = replace(plan, graph=replace(plan.graph, stages=stages), generation=generation)
        checkpointing = _checkpointing(plan)
        if checkpointing is not None:
            plan = replace(plan, graph=checkpointing.graph)
        return _LocalRun(plan, hooks, checkpointing, self._row_seconds).run()


def _local(stage: Stage, plan: RunPlan, *, redistributes: bool) -> Stage:
    """A stage as it is run here."""
    work = plan.tasks[stage.name]
    if not isinstance(work, ReduceStage):
        return replace(stage, tasks=1)
    ring = {name: getattr(stage.balance, name) for name in ("initial_tokens", "token_format", "hash_seed")}
    can_move = stage.migrates or (stage.can_merge and work.receiver.keeps_states)
    moves = redistributes and can_move and stage.tasks > 1 and stage.grouping.is_ring
    balance = MovingOptions(**ring) if moves else NoBalancingOptions(**ring)
    # Senders need not wait: what is queued is processed next.
    return replace(stage, balance=balance, flow=replace(stage.flow, queue_seconds=None), expected_seconds=None)


def _checkpointing(plan: RunPlan) -> Checkpointing | None:
    """The job's checkpoints, if it makes any. CheckpointError if they cannot be read."""
    if plan.saved is None:
        return None
    from dpa.checkpoints import CheckpointStore
    from dpa.protocol.checkpointing import Checkpointing

    store, dumps = CheckpointStore.open(plan.saved.options.path), cloudpickle_here().dumps
    return Checkpointing(store, plan.saved, plan.graph, plan.generation, dumps, plan.sinks)


@dataclass(frozen=True, kw_only=True)
class MovingOptions(NoBalancingOptions):
    """Nothing moves but when that is asked for. `hashes`: those of keys to be split; the last one is next."""

    hashes: list[int] = field(default_factory=list, compare=False)

    def policy(self, stage: BalancedStage) -> BalancePolicy:
        return _Moving(self.first_ring(stage), 2 * self.initial_tokens, self.hashes if stage.may_split else [])


class _Moving(BalancePolicy):
    """Takes all tokens but one from the task to relieve, and splits a key over all tasks."""

    def __init__(self, ring: TokenRing, tokens: int, hashes: Sequence[int]) -> None:
        """`tokens`: how many all others have then."""
        self.rounds = {}
        self.table = ring.snapshot(0)
        self._ring, self._tokens, self._hashes = ring, tokens, hashes

    def report(self, reducer: int, load: Load, now: float) -> None:
        """Loads cause nothing."""

    def redistribute(self, reducer: int, now: float) -> Decision:
        for member in self._ring.members:
            self._ring.set_tokens(member, 1 if member == reducer else self._tokens)
        before = self.table.version
        if self._hashes:
            self.table = _with_a_split_key(self._ring.snapshot(before), self._hashes[-1])
        else:
            self.table = self._ring.snapshot(before + 1)
        return Decision.of(now, reducer, Outcome.APPLIED, "asked for", {}, self.table.version, 0)

    def change_members(self, change: MemberChange) -> None:
        members = change.after(self.table)
        self._ring.change_members(change)
        self.table = replace(self._ring.snapshot(self.table.version + 1), members=members)


def _with_a_split_key(table: RoutingTable, hashed: int) -> RoutingTable:
    """The next table, which splits the key of this hash over all tasks."""
    every, version = table.members, table.version + 1
    evenly = tuple(1 / len(every) for _ in every)
    split = KeySplit(every, evenly, tuple(float(reducer == every[0]) for reducer in every), version)
    before, after = (hashed - 1) % 2**32, (hashed + 1) % 2**32
    return TableChange.of(table, {hashed: table.assignment_of(before), after: split}).apply(table)


class _LocalRun(LocalMachines):
    """One run of a plan; `run` runs it."""

    def __init__(self, plan: RunPlan, hooks: RunHooks, checkpointing: Checkpointing | None, row_seconds: float) -> None:
        graph = plan.graph
        self._began = self._observed = time.time()
        super().__init__(
            graph, CoordinatorMachine(graph), partial(task_of, graph), generation=plan.generation, now=self._began
        )
        self._plan, self._hooks = plan, hooks
        self._checkpointing = checkpointing
        self._row_seconds = row_seconds
        self._step_rows = max(1, int(_TICK_SECONDS / row_seconds))
        self._feeds = OpenFeeds(lambda: plan.feeds, plan.limits.split_rows, lambda seconds: True)
        behind = 0 if graph.checkpoints is None else graph.checkpoints.epoch
        self._log = LoggedEpochs(plan.epoch_log, behind, hooks.warn, lambda thing: cloudpickle_here().dumps(thing))
        self._moving = {stage.name: stage.balance for stage in graph.stages if isinstance(stage.balance, MovingOptions)}
        self._blocks: Counter[str] = Counter()
        self._cpu_seconds: defaultdict[Address, float] = defaultdict(float)
        self._sent: defaultdict[Address, TrafficMeter[Address]] = defaultdict(TrafficMeter)
        for address in graph.addresses:
            self.begin(address)
        self.schedule(0.0, COORDINATOR, Start())
        for address in self.machines:
            self.schedule(_TICK_SECONDS, address, Tick())

    def run(self) -> RunOutcome:
        """Run it to its end."""
        try:
            while not self.is_finished and self.failure is None:
                self.step()
        finally:
            self._log.close()
        if self.failure is not None:
            raise JobFailedError(self.failure)
        ended, machine, snapshot = time.time(), self.coordinator, self.coordinator.snapshot()
        self._hooks.observe(snapshot)
        first = None if machine.first_record_at is None else self._began
        failed, stored = machine.errors.noted, self._checkpointing
        letters = failed.letters if stored is None else stored.letters.with_rest(failed)
        return RunOutcome(
            {of.name: tuple(map(self._output, machine.stages[of.name].addresses)) for of in self.graph.queue_fed()},
            snapshot,
            Times(self._began, self._began, first, ended, ended),
            {task: TaskUse(cpu_seconds=self._cpu_seconds[task], sent=self._sent[task].found()) for task in self.tasks},
            letters,
            machine.inputs.given,
            machine.cuts.staged,
            machine.cuts.epoch,
        )

    def _output(self, address: Address) -> TaskOutput:
        output = self.user_code[address].output
        assert output is not None
        return output

    def handle(self, address: Address, event: Event) -> None:
        if isinstance(event, Tick) and address not in self.stopped:
            self.schedule(_TICK_SECONDS, address, Tick())
            if address == COORDINATOR:
                self._look()
        super().handle(address, event)

    def _look(self) -> None:
        """Pass on statistics now and then, and close open inputs if somebody asks for that."""
        now = time.time()
        if now - self._observed < _OBSERVE_SECONDS:
            return
        self._observed, snapshot = now, self.coordinator.snapshot()
        self._hooks.observe(snapshot)
        if snapshot.is_open and self._hooks.closes():
            self.schedule(0.0, COORDINATOR, CloseFeeds())

    def begin(self, address: Address) -> None:
        beginning = None if self._checkpointing is None else self._checkpointing.beginning(address)
        archive = no_archive if beginning is None else beginning.archive.start_saving
        # A step looks at its clock once a record: so its length depends on the rows alone. None of operators is too
        # long.
        looks, seconds = itertools.count(), self._row_seconds if self.graph.is_source(address.stage) else 0.0
        code = self._plan.user_code(address, lambda: next(looks) * seconds, archive)
        self.user_code[address] = code
        if beginning is not None and isinstance(self._plan.tasks[address.stage], ReduceStage):
            beginning.restore(code)

    def send(self, envelope: Envelope) -> None:
        message = envelope.message
        if isinstance(message, Push):
            self._sent[envelope.sender].sent(envelope.receiver, message.block.rows, message.block.size)
        super().send(envelope)

    def work(self, address: Address, instruction: Instruction) -> None:
        is_source = isinstance(self._plan.tasks[address.stage], Emission)
        if isinstance(instruction, NextStep) and is_source:
            instruction = replace(instruction, rows=min(instruction.rows, self._step_rows))
        code, began = self.user_code[address], time.thread_time()
        event = code.carry_out(instruction)
        self._cpu_seconds[address] += time.thread_time() - began
        assert event is not None
        seconds = 0.0
        if isinstance(event, StepDone) and event.step is not None:
            seconds = event.step.read * (self._row_seconds if is_source else _RECORD_SECONDS)
        elif isinstance(instruction, ProcessBlocks):
            seconds = sum(block.rows for block in instruction.blocks) * _RECORD_SECONDS
            self._move(address, instruction)
        if isinstance(event, StepDone | ProcessDone | ExtractDone | PublishDone):
            event = replace(event, seconds=seconds)
        self.schedule(seconds, address, event)
        if isinstance(event, SnapshotMarked):
            self.schedule(0.0, address, code.write_snapshot())

    def _move(self, address: Address, done: ProcessBlocks) -> None:
        """Have keys redistributed after the first block of a stage, the second, the fourth and so on: so there are
        states to move and records that come after them, however many there are."""
        if address.stage not in self._moving:
            return
        self._blocks[address.stage] += 1
        number = self._blocks[address.stage]
        if number & (number - 1) == 0:
            self._moving[address.stage].hashes.append(int(done.blocks[0].hashes[0]))
            self.schedule(0.0, BALANCER, Redistribute(address.stage, address.index))

    def poll(self, poll: Poll) -> None:
        # Without an answer nothing more has come: the input ends here.
        found = self._feeds.poll(poll.stage, poll.position, for_lag=poll.for_lag) or PollDone(poll.stage, (), None)
        self.schedule(0.0, COORDINATOR, found)

    def write(self, cut: JobSnapshot) -> None:
        assert self._checkpointing is not None
        self._log.write()  # no epoch is missing in the log that a resumed job continues
        event = self._checkpointing.write(cut, self._hooks.warn)
        if isinstance(event, CheckpointFailed):
            why = f"a checkpoint could not be written, and the one before it stays the newest: {event.reason}"
            self._hooks.warn(why)
        else:
            self._feeds.release(cut)
        self.schedule(0.0, COORDINATOR, event)

    def commit(self, commit: Commit) -> None:
        sink = self._plan.sink_of(commit)
        if sink is not None and sink.in_driver:
            self._hooks.commit(commit)
        elif sink is not None:
            HERE.bear(lambda: sink.commit(commit.staged, commit.epoch, commit.at))
        self.schedule(0.0, COORDINATOR, Committed(commit.stage, commit.epoch, commit.output))

    def log_epoch(self, ended: EndedEpoch) -> None:
        if self._log.note(ended):
            self._log.write()
