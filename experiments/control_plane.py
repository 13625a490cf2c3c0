"""The control plane of a job of many tasks: the messages of its coordinator and of its load balancer, and the processor
time that these two take.

A job of three stages that publishes results every half a second runs in the simulator, with every task and real user
code on few records. What comes to the coordinator and to the load balancer is recorded, with the moments; then new
machines take in the same events, and nothing else: that is counted and timed. On Ray each message is one call of an
actor, but for those that relays bring in bundles; what Ray and pickling cost is not in these times.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from dpa.aggregates import Sum
from dpa.execution.emission import Emission
from dpa.execution.mapping import MapTask
from dpa.execution.receivers import receiver_of
from dpa.execution.receivers.stateless import StatelessReceiver
from dpa.execution.reduce_task import ReduceStage
from dpa.protocol.balancer.machine import load_balancer_of
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.flow_control import FlowControl
from dpa.protocol.graph import Edge, Graph, Publishing, Stage, StageInput
from dpa.protocol.machine import Machine
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import Event, PollDone
from dpa.protocol.wire.instructions import Send
from dpa.protocol.wire.relays import RELAYED_BYTES, Bundling, relay_of, relays_for
from dpa.runtime.actors.pickled import PickledEnvelope
from dpa.sources.feed import Position
from dpa.sources.splits import MemorySplit
from experiments.charts import COLOURS, INK, panels
from experiments.harness import Findings, Target, at_most, below, main, markdown_table, progress
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import SimulatedJob

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = (16, 64, 256)
"""Tasks of each of the three stages."""

EPOCH_SECONDS = 0.5
SPLITS_A_SECOND = 2.0
"""Of a row each, for every task that reads: the messages that are counted do not depend on how many rows there are."""

SECONDS = 16.0
FROM = 4.0
"""Virtual seconds that are run, and from when on is counted: then the job is under way."""

RAY_CALLS = 2_500
"""A second, in a stream of calls of one caller, on the machine of the other results."""

ALLOWED = RAY_CALLS / 5
_REPEATS = 3
_POLL_SECONDS = 0.0255
"""What a poll takes on average in the simulator."""

_SHOWN = 5
_KEYS = 100_000

_Counts = Counter[str]
"""Messages, by kind."""


class _Relays:
    """Those of a job, and when each passed its bundles on."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._bundling = [Bundling() for _ in range(count)]
        self._passed: list[list[float]] = [[] for _ in range(count)]

    def passes_on(self, relay: int, at: float) -> float:
        """When a message is passed on that comes now."""
        passed = self._passed[relay]
        if not passed or passed[-1] < at:
            passed.append(self._bundling[relay].due(at))
        return passed[-1]

    def calls(self, events: Iterable[tuple[float, Event]]) -> list[_Taken]:
        """What comes to the coordinator, with the calls that bring it."""
        found = []
        for number, (at, event) in enumerate(events):
            relay = relay_of(event.sender, self.count) if isinstance(event, Envelope) else None
            bundle = number if relay is None else bisect_right(self._passed[relay], at)
            found.append(_Taken(at, event, (relay, bundle)))
        return found


class _Taken(NamedTuple):
    """What comes to a machine: at a virtual second, with others that have the same relay and number, or alone."""

    at: float
    event: Event
    call: tuple[int | None, int]


@dataclass(frozen=True)
class _Arriving(SimulatedJob):
    """A job whose input comes row by row, without end, and whose tasks reach the coordinator through relays."""

    bundling: _Relays = field(default_factory=lambda: _Relays(0))

    def polled(self, stage: str, position: Position, draw: random.Random) -> PollDone:
        """As many splits as have come since the last poll, about."""
        number, expected = position.value, SPLITS_A_SECOND * self.graph[stage].tasks * _POLL_SECONDS
        following = number + math.floor(expected + draw.random())
        splits = tuple(_split(row) for row in range(number, following))
        return PollDone(stage, splits, Position(following))

    def held(self, sender: Address, receiver: Address, at: float) -> float:
        """What is for the coordinator waits for the rest of its bundle."""
        relay = relay_of(sender, self.bundling.count) if receiver == COORDINATOR else None
        return 0.0 if relay is None else self.bundling.passes_on(relay, at) - at


def _split(row: int) -> MemorySplit:
    return MemorySplit(pa.table({"place": [row], "key": [f"key {row * 7_919 % _KEYS}"], "number": [row]}))


def _job(tasks: int) -> _Arriving:
    """Rows are read, take their way through a stage without states, and are summed by key."""
    flow = FlowControl(batch_records=1, in_flight_records=1_000)
    stages = (
        Stage("read", tasks, StageInput(position=Position(0))),
        Stage("pass", tasks, flow=flow),
        Stage("sum", tasks, flow=flow, publishing=(Publishing(EPOCH_SECONDS),)),
    )
    passes, sums = StatelessReceiver(), receiver_of(Sum("number"))
    read = MapTask(None, "place", None, passes, False, 0, 1, 1.0)
    passed = MapTask(None, "key", ("number",), sums, False, 0, 1, 1.0)
    return _Arriving(
        Graph(stages, (Edge("read", "pass"), Edge("pass", "sum"))),
        {
            "read": Emission((read,)),
            "pass": ReduceStage(passes, (), Emission((passed,))),
            "sum": ReduceStage(sums, "key"),
        },
        ticks=None,
        bundling=_Relays(relays_for(3 * tasks)),
    )


@dataclass(frozen=True)
class _Recorded:
    """What came to the coordinator and to the load balancer, with the virtual times in seconds."""

    graph: Graph
    relays: int
    taken: dict[Address, list[_Taken]]


def _record(tasks: int, seconds: float, seed: int) -> _Recorded:
    job, began = _job(tasks), time.time()
    cluster = SimulatedCluster(job, seed)
    while cluster.clock < seconds:
        cluster.step()
    events: dict[Address, list[tuple[float, Event]]] = {COORDINATOR: [], BALANCER: []}
    for at, to, event in cluster.log:
        if to in events:
            events[to].append((at, event))
    progress(f"3 x {tasks} tasks: {cluster.steps:,} events in {time.time() - began:.0f} s")
    taken = {COORDINATOR: job.bundling.calls(events[COORDINATOR]), BALANCER: _Relays(0).calls(events[BALANCER])}
    return _Recorded(job.graph, job.bundling.count, taken)


@dataclass(frozen=True)
class _Replayed:
    """What a machine makes of it, from `FROM` on.

    Attributes:
        taken, sent: messages that it takes in, and that it sends.
        calls: of Ray's that bring both.
        of_relays: of the relay that has most, both its own and those that reach it.
        of_epochs: messages while a cut is made.
        epochs: how many cuts there were.
        seconds: of virtual time.
        processor: seconds in which it handled its events: the median of some times.
    """

    taken: _Counts
    sent: _Counts
    calls: int
    of_relays: int
    of_epochs: int
    epochs: int
    seconds: float
    processor: float

    @property
    def messages(self) -> _Counts:
        """In and out."""
        return self.taken + self.sent

    @property
    def rate(self) -> float:
        """Calls a virtual second."""
        return self.calls / self.seconds

    @property
    def share(self) -> float:
        """Of a processor."""
        return self.processor / self.seconds


def _replay(make: Callable[[], Machine], recorded: list[_Taken], relays: int, since: float, until: float) -> _Replayed:
    taken, sent, direct, of_epochs, epochs = _Counts(), _Counts(), 0, 0, 0
    bundles: set[tuple[str, int, object]] = set()
    relayed: Counter[int] = Counter()
    machine, is_cut = make(), False
    for at, event, call in recorded:
        was_cut, instructions = is_cut, machine.handle(event, at)
        is_cut = isinstance(machine, CoordinatorMachine) and machine.cuts.is_holding
        if at < since:
            continue
        own = [event] if isinstance(event, Envelope) else []
        out = [instruction.envelope for instruction in instructions if isinstance(instruction, Send)]
        taken.update(type(envelope.message).__name__ for envelope in own)
        sent.update(type(envelope.message).__name__ for envelope in out)
        ways = [
            *(("from", _way(envelope, envelope.sender, relays)) for envelope in own),
            *(("to", _way(envelope, envelope.receiver, relays)) for envelope in out),
        ]
        for way, relay in ways:
            if relay is None:
                direct += 1
            else:
                relayed[relay] += 1
                bundles.add((way, relay, call))
        of_epochs += (len(own) + len(out)) * (was_cut or is_cut)
        epochs += is_cut and not was_cut
    relayed.update(relay for _, relay, _ in bundles)
    spent = statistics.median(_processor_seconds(make(), recorded, since) for _ in range(_REPEATS))
    busiest = max(relayed.values(), default=0)
    return _Replayed(taken, sent, direct + len(bundles), busiest, of_epochs, epochs, until - since, spent)


def _way(envelope: Envelope, task: Address, relays: int) -> int | None:
    """The relay by which Ray carries a message from or to a task; None: it goes directly."""
    relay = relay_of(task, relays)
    return None if relay is None or PickledEnvelope.of(envelope).size > RELAYED_BYTES else relay


def _processor_seconds(machine: Machine, recorded: list[_Taken], since: float) -> float:
    before = [taken for taken in recorded if taken.at < since]
    for at, event, _ in before:
        machine.handle(event, at)
    counted = recorded[len(before) :]
    began = time.process_time()
    for at, event, _ in counted:
        machine.handle(event, at)
    return time.process_time() - began


def measure(options: argparse.Namespace) -> Findings:
    """Record and replay each size."""
    sizes, seconds, since = ((4, 8), 3.0, 1.0) if options.quick else (SIZES, SECONDS, FROM)
    found: dict[int, dict[Address, _Replayed]] = {}
    for tasks in sizes:
        recorded = _record(tasks, seconds, options.seed)
        machines: dict[Address, Callable[[], Machine]] = {
            COORDINATOR: lambda graph=recorded.graph: CoordinatorMachine(graph),  # type: ignore[misc]
            BALANCER: lambda graph=recorded.graph: load_balancer_of(graph),  # type: ignore[misc]
        }
        found[tasks] = {
            at: _replay(make, recorded.taken[at], recorded.relays if at == COORDINATOR else 0, since, seconds)
            for at, make in machines.items()
        }
        both = ", ".join(f"{at}: {of.rate:,.0f} calls/s, {of.share:.1%}" for at, of in found[tasks].items())
        progress(f"3 x {tasks} tasks: {both}")
    data = {tasks: {str(at): _plain(of, tasks) for at, of in machines.items()} for tasks, machines in found.items()}
    return Findings(data, _targets(found), _text(found), _figure(found))


def _plain(found: _Replayed, tasks: int) -> dict[str, Any]:
    return {
        "calls_a_second": found.rate,
        "messages_a_second": found.messages.total() / found.seconds,
        "calls_of_a_relay_a_second": found.of_relays / found.seconds,
        "taken": dict(found.taken),
        "sent": dict(found.sent),
        "seconds": found.seconds,
        "epochs": found.epochs,
        "messages_of_epochs": found.of_epochs,
        "an_epoch_and_task": _an_epoch_and_task(found, tasks),
        "processor_share": found.share,
    }


def _an_epoch_and_task(found: _Replayed, tasks: int) -> float:
    return found.of_epochs / max(1, found.epochs) / (3 * tasks)


def _targets(found: dict[int, dict[Address, _Replayed]]) -> list[Target]:
    tasks = max(found)
    coordinator, balancer = found[tasks][COORDINATOR], found[tasks][BALANCER]
    of = f"with 3 x {tasks} tasks"
    return [
        at_most(f"calls a second of the coordinator {of}", coordinator.rate, ALLOWED),
        below(f"processor time of the coordinator {of}, of one processor", coordinator.share, 0.2),
        at_most(f"calls a second of the load balancer {of}", balancer.rate, ALLOWED),
        below(f"processor time of the load balancer {of}, of one processor", balancer.share, 0.2),
    ]


def _text(found: dict[int, dict[Address, _Replayed]]) -> str:
    rows = [
        (
            f"3 x {tasks}",
            str(at),
            of.messages.total() / of.seconds,
            of.rate,
            f"{of.share:.1%}",
            of.of_relays / of.seconds if of.of_relays else "",
            of.epochs / of.seconds,
            _an_epoch_and_task(of, tasks) if at == COORDINATOR else "",
        )
        for tasks, machines in found.items()
        for at, of in machines.items()
    ]
    head = ("tasks", "machine", "messages/s", "calls/s", "of a processor", "calls/s of the busiest relay", "epochs/s")
    tables = [markdown_table((*head, "messages an epoch and task"), rows)]
    for at in (COORDINATOR, BALANCER):
        of_largest = found[max(found)][at].messages
        kinds = [kind for kind, _ in of_largest.most_common(_SHOWN)]
        tables.append(f"Messages a second of the {at}, in and out, by kind: the most frequent ones.")
        tables.append(
            markdown_table(
                ("tasks", *kinds),
                [
                    (f"3 x {tasks}", *(machines[at].messages[kind] / machines[at].seconds for kind in kinds))
                    for tasks, machines in found.items()
                ],
            )
        )
    about = (
        f"Results are published every {EPOCH_SECONDS:g} s, or after as long as an epoch has held the sources; each "
        f"task that reads gets {SPLITS_A_SECOND:g} rows a second. Each message is one call on Ray, which carries "
        f"{RAY_CALLS:,} a second of one caller, but for those of a bundle between the coordinator and a relay."
    )
    return "\n\n".join((about, *tables))


def _figure(found: dict[int, dict[Address, _Replayed]]) -> Figure:
    figure, [left, right] = panels(2, size=(9.0, 3.6))
    sizes = sorted(found)
    for colour, at in zip(COLOURS, (COORDINATOR, BALANCER), strict=False):
        left.loglog(sizes, [found[tasks][at].rate for tasks in sizes], marker="o", color=colour, label=str(at))
        right.loglog(sizes, [found[tasks][at].share for tasks in sizes], marker="o", color=colour, label=str(at))
    left.axhline(ALLOWED, color=INK, linewidth=1, linestyle="--")
    right.axhline(0.2, color=INK, linewidth=1, linestyle="--")
    for panel, label, form in ((left, "calls a second", "{x:,g}"), (right, "of one processor", "{x:.1%}")):
        panel.set_xticks(sizes, labels=map(str, sizes))
        panel.yaxis.set_major_formatter(form)
        panel.xaxis.set_minor_formatter("")
        panel.yaxis.set_minor_formatter("")
        panel.set_xlabel("tasks of each of three stages", color=INK)
        panel.set_ylabel(label, color=INK)
        panel.legend(fontsize=8, frameon=False)
    return figure


if __name__ == "__main__":
    main("control_plane", argparse.ArgumentParser(description=__doc__), measure)
