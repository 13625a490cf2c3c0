"""Machines, stores and user code that are broken on purpose: the simulator catches each of them, so what it asserts of
sound ones says something."""

from __future__ import annotations

import inspect
import pkgutil
import re
import textwrap
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from test_rare_interleavings import rescaled

from dpa.protocol.balancer.machine import BalanceState, StageBalance
from dpa.protocol.coordinator.cuts import CutState
from dpa.protocol.graph import REDUCER, CheckpointTimes
from dpa.protocol.rules import RuledMachine, on
from dpa.protocol.task.operator import OperatorState
from dpa.protocol.task.state_exchange import ExchangeState, StateExchange
from dpa.protocol.wire.events import Rescale
from dpa.protocol.wire.messages.end import Freeze
from dpa.protocol.wire.messages.exchange import StateTransfer
from dpa.protocol.wire.messages.migration import Settled
from dpa.protocol.wire.metrics import TaskStats
from experiments.interleavings_faults import run as faults
from experiments.simulated_jobs.random_graphs import run_random_graph
from experiments.simulated_jobs.random_jobs import random_job, run_random_job
from experiments.simulated_jobs.random_timers import run_random_timers
from experiments.simulated_jobs.random_windows import random_windows, run_random_windows
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import behind
from experiments.simulation.violation import InvariantViolationError


def break_member(patch: pytest.MonkeyPatch, path: str, by: Any) -> None:
    """Put something in the place of a member of a class or a module of `dpa.protocol`, if no other package is named;
    or where `by` is `one text ==> another`, itself with that change."""
    owner, name = path.rsplit("." if "." in path.rpartition(":")[2] else ":", 1)
    of = pkgutil.resolve_name(owner if owner.startswith(("dpa.", "experiments.")) else f"dpa.protocol.{owner}")
    if isinstance(by, str):
        found = inspect.getattr_static(of, name)
        function = found.fget if isinstance(found, property) else found
        source = textwrap.dedent(inspect.getsource(function)).replace("super()", f"super({of.__name__}, self)")
        right, _, wrong = by.partition(" ==> ")
        assert right in source, f"{path} has no {right!r} to break"
        made: dict[str, Any] = {}
        exec(f"from __future__ import annotations\n{source.replace(right, wrong)}", function.__globals__, made)
        by = made[name]
    patch.setattr(of, name, by)
    if inspect.isclass(of) and issubclass(of, RuledMachine):  # its rules know their handlers
        for known in ("KINDS", "_by_event", "_by_state"):
            patch.setattr(of, known, getattr(of, known))
        of.__init_subclass__()


jobs = partial(run_random_job, max_steps=25_000)
migrating = partial(run_random_job, max_steps=60_000, migrates=True)
graphs = partial(run_random_graph, max_steps=60_000)
cuts = partial(run_random_graph, cuts=True)
relayed = partial(run_random_graph, max_steps=20_000, changes=True, relays=True)
timers = partial(run_random_timers, changes=True)
window_cuts = partial(run_random_windows, cuts=True)
finals = partial(run_random_windows, feeds=True, finals=True)


def publishing(seed: int) -> None:
    assert random_job(seed).job.graph[REDUCER].publishing
    run_random_job(seed)


def changing(seed: int) -> None:
    run_random_job(seed, 60_000, migrates=seed % 2 == 1, changes=True)


def growing_windows(seed: int) -> None:
    """Tasks come when windows are closed already."""
    job = random_windows(seed).job
    requests = tuple((0.03 * turn, Rescale(turn, "first", job.graph["first"].tasks + turn)) for turn in (1, 2, 3))
    SimulatedCluster(replace(job, requests=requests), seed).run()


def windows_behind_a_cut(seed: int) -> None:
    """Tasks begin when windows are closed already."""
    job = random_windows(seed).job
    job = replace(job, graph=replace(job.graph, checkpoints=CheckpointTimes(0.01)))
    cluster = SimulatedCluster(job, seed)
    cluster.run()
    cut = next(cut for cut in cluster.checkpoints if cut.operators["first"].reached.closed is not None)
    again = behind(job, cut)
    assert again.graph["first"].reached == cut.operators["first"].reached
    SimulatedCluster(again, seed).run()


SOURCE, OPERATOR, STAGE = "task.source:SourceMachine", "task.operator:OperatorMachine", "coordinator.stage_progress:"
IN_DISORDER = "records of key .* from mapper . are out of order at task"
ELSEWHERE = "processed key .*, whose state is"
CLOSED = property(lambda self: self._production.is_closed)
EARLY = "known, windows = ==> low = low and replace(low, time=low.time + 10_000_000); known, windows ="
OWN_CLOCK = "max(micros(self.now), self._not_before) ==> micros(self.now)"
TAKES_LATE_STATES = (
    *(rule for rule in StateExchange.RULES if rule.kind is not StateTransfer),
    on(StateTransfer, ExchangeState, StateExchange._transferred, "keep"),
)
FREEZES_AT_ONCE = (
    *(replace(rule, then=(BalanceState.FROZEN,)) if rule.kind is Freeze else rule for rule in StageBalance.RULES),
    on(Settled, BalanceState.FROZEN, RuledMachine._ignore, "ignore"),
)

BROKEN: dict[str, tuple[Callable[[int], object], int, str, dict[str, Any]]] = {
    "never ends": (
        jobs,
        25,
        "the job did not end",
        {"coordinator.machine:CoordinatorMachine.settle": lambda self: None},
    ),
    "skips the ownership check": (
        *(jobs, 25, "acted on table . when it had table|a key of another"),
        {"task.record_queue:RecordQueue._owned": lambda self, queued: ([queued], [])},
    ),
    "takes duplicates": (
        *(jobs, 25, "records emitted to reducer, but"),
        {
            "wire.channel:Inbox.accept": "return () ==> "
            "return (envelope.message,) if envelope.receiver.stage == 'reducer' else ()"
        },
    ),
    "goes back to older tables": (
        *(jobs, 25, "went back to table|acted on table"),
        {
            f"{OPERATOR}._updated": "message.senders) ==> message.senders)\n"
            "    self.queue.table = self._ring_table if message.change.version > 1 else self.table"
        },
    ),
    "ignores credit": (
        *(jobs, 0, "records in flight towards"),
        {"task._credit:Credit.room": lambda self, receiver, wanted: wanted},
    ),
    "ignores windows": (
        *(jobs, 3, "records in flight towards .* whose window is"),
        {"task._credit:Credit.window": lambda self, receiver: self.most},
    ),
    "keeps credit where it was": (
        *(jobs, 25, "counts .* records in flight towards reducer, not"),
        {f"{SOURCE}._credit_transferred": lambda self, sender, message: None},
    ),
    "forwards in silence": (
        *(jobs, 25, "still has .* credits in use towards|the job did not end"),
        {f"{OPERATOR}._forward": "self.send(origin, CreditTransfer(edge, records, owner)) ==> pass"},
    ),
    "ends before it has emitted all": (
        *(jobs, 3, "while it had records to push"),
        {f"{SOURCE}.has_emitted_all": CLOSED},
    ),
    "acts without a reason": (
        *(jobs, 25, "redistributed without a load reason"),
        {"dpa.balance._tokens:TokenPolicy.report": "suspect = ==> return self.redistribute(reducer, now); suspect ="},
    ),
    "ignores rounds": (
        *(jobs, 25, "caused more than . rounds"),
        {"dpa.balance._tokens:TokenPolicy.report": "[reducer] = load ==> [reducer] = load; self.rounds.clear()"},
    ),
    "drains with the first stage that feeds it": (graphs, 7, "", {f"{STAGE}StageProgress.is_fed": "all( ==> any("}),
    "asks for the next split while blocks wait, which it has not counted": (
        *(graphs, 14, ""),
        {f"{SOURCE}.has_emitted_all": CLOSED, f"{SOURCE}.stats": "emitter.made for ==> emitter.emitted for"},
    ),
    "makes records however many wait": (graphs, 7, "", {f"{SOURCE}.is_open": property(lambda self: True)}),
    "returns all credit on one edge": (
        *(graphs, 7, ""),
        {f"{OPERATOR}._process_done": "Ack(push.edge ==> Ack(self.__dict__.setdefault('first', push.edge)"},
    ),
    "does not wait for the states of others, and merges them in the next epoch": (
        *(publishing, 13, "were published in epoch|two tasks published|still waits"),
        {
            "task.state_exchange:StateExchange._end": "if len(self._parts) < len(self._others) ==> if False",
            "task.state_exchange:StateExchange._transferred": lambda self, sender, message: self._parts.update(
                {len(self._parts): message.part}
            ),
            "task.state_exchange:StateExchange.RULES": TAKES_LATE_STATES,
        },
    ),
    "publishes what it has, though others may have states of the same keys": (
        *(publishing, 13, "two tasks published"),
        {
            f"{OPERATOR}._begin_exchange": "self.hand_on(sender, message) ==> "
            "self.hand_on(sender, message if message.last else replace(message, transfer=False))"
        },
    ),
    "goes on while tasks publish": (
        *(publishing, 7, "are on their way at a cut|is to publish with|were published in"),
        {"coordinator.cuts:Cuts.is_holding": property(lambda self: self.state is CutState.DRAINING)},
    ),
    "waits for nobody": (
        *(migrating, 3, f"{IN_DISORDER}|{ELSEWHERE}"),
        {"task.record_queue:MigratingQueue._waits": lambda self, before, sender, hashes: np.zeros(len(hashes), bool)},
    ),
    "forwards what is leaving, the last first": (
        *(migrating, 3, IN_DISORDER),
        {"task.record_queue:MigratingQueue.states_given": "push in leaving for ==> push in leaving[::-1] for"},
    ),
    "loses what leaves": (
        *(migrating, 3, "records emitted to reducer, but|counts .* records in flight"),
        {"task.record_queue:MigratingQueue.states_given": "_send_on(owner, push)] ==> _send_on(owner, push)][:0]"},
    ),
    "forgets states": (
        *(migrating, 3, f"{ELSEWHERE} on its way|while the state of key .* was on its way"),
        {"task.hand_over:Giving._extracted": "piece.parts.get(receiver) ==> None"},
    ),
    "extracts though user code is at work": (
        *(migrating, 3, "was to carry out a .* while its user code was at work"),
        {"task.hand_over:Giving.begin": "frozenset(senders))) ==> frozenset(senders))); self.advance()"},
    ),
    "names the last table before all have settled it": (
        *(migrating, 165, "is to finish before table . is settled"),
        {
            "balancer.machine:StageBalance._freeze_settled": lambda self, sender, message: (
                self._settled.clear() or self._end()
            ),
            "balancer.machine:StageBalance.RULES": FREEZES_AT_ONCE,
        },
    ),
    "ends while tasks change": (
        *(changing, 26, "cannot be done while|cannot take a|before|while it had records|wrong result"),
        {f"{STAGE}StageProgress.is_changing": False},
    ),
    "waits for tasks that never came up": (
        *(changing, 65, "was open for tasks that were not up"),
        {"coordinator.membership:Membership._cancel_if_over": lambda self: None},
    ),
    "stops tasks as soon as the table without them is published": (
        *(changing, 23, "cannot take a Left|was stopped before|was stopped while|while it had records"),
        {"coordinator.membership:Membership._publish": "set(change.going) ==> set()"},
    ),
    "forgets what tasks that left had processed": (
        *(changing, 3, "did not end|were lost|were emitted"),
        {
            f"{STAGE}StageProgress.left": lambda self, message: self.roster.note(
                TaskStats(self.name, message.stats.index), 0.0
            ),
            f"{STAGE}StageProgress._noted": "    self.ledger.note( ==> "
            "    if sender.index not in self.roster.members and not message.done: return\n    self.ledger.note(",
        },
    ),
    "waits for no marker": (
        *(changing, 1, "was stopped before|cannot take a|still wait at"),
        {"task.hand_over:Giving.begin": "frozenset(senders) ==> frozenset()"},
    ),
    "leaves before what it sent has come": (
        *(rescaled, 3, "was stopped while something of it was on its way to"),
        {f"{OPERATOR}._flush": lambda self: OperatorState.LEAVING},
    ),
    "has a bundle of the first message alone": (
        *(relayed, 3, ""),
        {
            "wire.relays:Relay.gather": "    self._gathered.append(message) ==> "
            "    if self._gathered: return None\n    self._gathered.append(message)"
        },
    ),
    "keeps what comes after the first bundle": (
        relayed,
        3,
        "",
        {"wire.relays:Relay.take": lambda self: self._gathered[:]},
    ),
    "knows no task that comes later": (
        *(relayed, 3, ""),
        {"wire.relays:Relay.meet": "update(tasks) ==> update(() if len(self._tasks) > 1 else tasks)"},
    ),
    "says that it has paused while it still reads": (
        *(cuts, 5, ""),
        {f"{SOURCE}._pause": "self._give_back() ==> self._give_back(); self._pause_now()"},
    ),
    "lets the whole split be read again": (
        *(cuts, 5, ""),
        {"coordinator._split_queue:SplitQueue.pauses": "self.gives_back(task, read) ==> self.gives_back(task, 0)"},
    ),
    "begins every task with all states": (
        *(cuts, 5, ""),
        {"experiments.simulation._saving:begins_with": lambda stage, snapshots, index, before: (snapshots, None)},
    ),
    "closes windows that still get records": (run_random_windows, 1, "", {"coordinator._watermarks:_later": EARLY}),
    "calls timers early": (timers, 2, "", {"coordinator._watermarks:_later": EARLY}),
    "closes sessions that a row of the watermark's own time still joins": (
        *(run_random_windows, 37, ""),
        {
            "dpa.windows.options:Windows.past_end_us": 0,
            "dpa.execution.receivers._sessions:SessionStates.close": "self.note ==> until += 1; self.note",
        },
    ),
    "publishes rows of closed windows again": (
        *(finals, 0, "publish"),
        {"dpa.execution.reduce_task:ReduceTask.published": "self._kept = [each for ==> [each for"},
    ),
    "lets a task that comes take what is late": (
        *(growing_windows, 12, "judges by None"),
        {"balancer.machine:StageBalance._tell": ", closed) ==> )"},
    ),
    "lets a task that begins behind a cut take what is late": (
        *(windows_behind_a_cut, 12, "judges by None"),
        {f"{OPERATOR}.__init__": "stage.reached.closed ==> None"},
    ),
    "stamps rows by a clock that begins again behind a cut": (window_cuts, 3, "", {f"{SOURCE}.read_at": OWN_CLOCK}),
    "closes windows by a clock that is ahead": (
        *(window_cuts, 3, ""),
        {
            f"{SOURCE}.read_at": OWN_CLOCK,
            f"{STAGE}StageProgress.held": "return self.splits.held(self._coordinator.now) ==> "
            "at = self.splits.held(self._coordinator.now)\n"
            "    return at and replace(at, watermark=at.watermark + 1_000_000)",
        },
    ),
    "cuts one record late": (
        faults,
        5,
        "",
        {"coordinator._split_queue:SplitQueue.pauses": "ck(task, read) ==> ck(task, read + 1)"},
    ),
    "writes a state twice": (
        faults,
        5,
        "",
        {"dpa.execution.snapshots:TaskSaving._keep": "self._dumps( ==> 2 * self._dumps("},
    ),
    "leaves out a state that has changed": (
        *(faults, 11, ""),
        {"dpa.execution._object_table:ObjectTable.add": "self._changed[places] = True ==> pass"},
    ),
    "restores rows in every task": (
        *(faults, 23, ""),
        {"dpa.execution.reduce_task:ReduceTask.restore": "if found.rows and ( ==> if found.rows and (True or "},
    ),
    "accepts a stale generation": (
        *(faults, 4, ""),
        {"wire.channel:Inbox.accept": "envelope.generation < self._generation or  ==> "},
    ),
    "ignores a claim": (
        *(faults, 1, ""),
        {
            "dpa.checkpoints._chain:Chain._put": "there is None or there.claimant != self._claimant:\n"
            "        return None ==> there.claimant != self._claimant:\n"
            "        self._files.content[self._path(slot.number)] = slot.encode()\n        return slot"
        },
    ),
    "takes a snapshot before all is processed": (
        *(faults, 5, ""),
        {"coordinator.cuts:Cuts._drained": " and of.ledger.is_settled ==> "},
    ),
    "forgets rows that were read before": (
        *(faults, 15, ""),
        {"checkpointing:Checkpointing.write": "self._read + cut.read ==> cut.read"},
    ),
}
"""What is wrong: a run and a seed that unmask it, the finding, and the members that are broken."""


def violation(what: str, patch: pytest.MonkeyPatch) -> InvariantViolationError:
    run, seed, finding, members = BROKEN[what]
    for path, by in members.items():
        break_member(patch, path, by)
    with pytest.raises(InvariantViolationError, match=finding or ".") as caught:
        run(seed)
    return caught.value


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_broken_is_caught(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert violation(what, monkeypatch).history


def test_the_history_of_a_violation_reads_as_what_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    history = violation("takes duplicates", monkeypatch).history
    times = [float(line.split()[0]) for line in history]
    assert times == sorted(times)
    assert all(re.match(r" *\d+\.\d{6}  (coordinator|load balancer|mapper \d|reducer \d) ", line) for line in history)
    assert any(re.search(r"coordinator +<- mapper 0 #[02]: SplitRequest\(event_time=None\)", line) for line in history)
    pushed = r"reducer \d +<- mapper \d #\d+: Push\(block=<\d+ records>, version=0, origin="
    assert any(re.search(pushed, line) for line in history)
    assert any(re.search(r"coordinator +Start\(\)", line) for line in history)
    assert max(map(len, history)) < 400
    last = history[-1]
    assert "Push" in last and last[12:] in [line[12:] for line in history[:-1]]  # the second copy of the same message
