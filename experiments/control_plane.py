"""The control plane of a job of many tasks: the messages of its coordinator and of its load balancer, and the processor
time that these two take.

A job of three stages that publishes results every half a second runs in the simulator, with every task and real user
code on few records. What comes to the coordinator and to the load balancer is recorded, with the moments; then new
machines take in the same events, and nothing else: that is counted and timed. On Ray each message is one call of an
actor, as nothing is batched; what Ray and pickling cost is not in these times.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dpa.aggregates import Sum
from dpa.execution.emission import Emission
from dpa.execution.mapping import MapTask
from dpa.execution.receivers import receiver_of
from dpa.execution.receivers.stateless import StatelessReceiver
from dpa.execution.reduce_task import ReduceStage
from dpa.protocol.balancer.machine import load_balancer_of
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.graph import Edge, Graph, Stage
from dpa.protocol.machine import Machine
from dpa.protocol.task.flow_control import FlowControl
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import Event, PollDone
from dpa.protocol.wire.instructions import Send
from dpa.simulation.cluster import SimulatedCluster
from dpa.simulation.job import SimulatedJob
from dpa.sources.feed import Position
from dpa.sources.splits import MemorySplit
from experiments.charts import COLOURS, INK, panels
from experiments.harness import Findings, Target, at_most, below, main, markdown_table, progress

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

_OF_INPUT = ("SplitRequest", "SplitGrant")
"""Messages that hang on how the input is divided."""

_Sent = Counter[str]
"""Messages, by kind."""


class _Arriving(SimulatedJob):
    """A job whose input comes row by row, without end."""

    def polled(self, stage: str, position: Position, draw: random.Random) -> PollDone:
        """As many splits as have come since the last poll, about."""
        number, expected = position.value, SPLITS_A_SECOND * self.graph[stage].tasks * _POLL_SECONDS
        following = number + math.floor(expected + draw.random())
        splits = tuple(_split(row) for row in range(number, following))
        return PollDone(stage, splits, Position(following))


def _split(row: int) -> MemorySplit:
    return MemorySplit(pa.table({"place": [row], "key": [f"key {row * 7_919 % _KEYS}"], "number": [row]}))


def _job(tasks: int) -> SimulatedJob:
    """Rows are read, take their way through a stage without states, and are summed by key."""
    flow = FlowControl(batch_records=1, in_flight_records=1_000)
    stages = (
        Stage("read", tasks, position=Position(0)),
        Stage("pass", tasks, flow=flow),
        Stage("sum", tasks, flow=flow, aggregate_seconds=EPOCH_SECONDS),
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
    )


@dataclass(frozen=True)
class _Recorded:
    """What came to the coordinator and to the load balancer, with the virtual times in seconds."""

    graph: Graph
    events: dict[Address, list[tuple[float, Event]]]


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
    return _Recorded(job.graph, events)


@dataclass(frozen=True)
class _Replayed:
    """What a machine makes of it, from `FROM` on.

    Attributes:
        taken, sent: messages that it takes in, and that it sends, of the others among them.
        of_epochs: those of both while a cut is made.
        of_input: the others that hang on how the input is divided.
        epochs: how many cuts there were.
        seconds: of virtual time.
        processor: seconds in which it handled its events: the median of some times.
    """

    taken: _Sent
    sent: _Sent
    of_epochs: int
    of_input: int
    epochs: int
    seconds: float
    processor: float

    @property
    def messages(self) -> _Sent:
        """In and out."""
        return self.taken + self.sent

    @property
    def rate(self) -> float:
        """Messages a virtual second."""
        return self.messages.total() / self.seconds

    @property
    def share(self) -> float:
        """Of a processor."""
        return self.processor / self.seconds


def _replay(make: Callable[[], Machine], events: list[tuple[float, Event]], since: float, until: float) -> _Replayed:
    taken, sent, of_epochs, of_input, epochs = Counter[str](), Counter[str](), 0, 0, 0
    machine, is_cut = make(), False
    for at, event in events:
        was_cut, instructions = is_cut, machine.handle(event, at)
        is_cut = isinstance(machine, CoordinatorMachine) and machine.is_cut
        if at < since:
            continue
        own = [type(event.message).__name__] if isinstance(event, Envelope) else []
        out = [type(each.envelope.message).__name__ for each in instructions if isinstance(each, Send)]
        taken.update(own)
        sent.update(out)
        if was_cut or is_cut:
            of_epochs += len(own) + len(out)
        else:
            of_input += sum(kind in _OF_INPUT for kind in (*own, *out))
        epochs += is_cut and not was_cut
    spent = statistics.median(_processor_seconds(make(), events, since) for _ in range(_REPEATS))
    return _Replayed(taken, sent, of_epochs, of_input, epochs, until - since, spent)


def _processor_seconds(machine: Machine, events: list[tuple[float, Event]], since: float) -> float:
    before = [(at, event) for at, event in events if at < since]
    for at, event in before:
        machine.handle(event, at)
    counted = events[len(before) :]
    began = time.process_time()
    for at, event in counted:
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
        found[tasks] = {at: _replay(make, recorded.events[at], since, seconds) for at, make in machines.items()}
        both = ", ".join(f"{at}: {of.rate:,.0f} messages/s, {of.share:.1%}" for at, of in found[tasks].items())
        progress(f"3 x {tasks} tasks: {both}")
    data = {tasks: {str(at): _plain(of, tasks) for at, of in machines.items()} for tasks, machines in found.items()}
    return Findings(data, _targets(found), _text(found), _figure(found))


def _plain(found: _Replayed, tasks: int) -> dict[str, Any]:
    return {
        "messages_a_second": found.rate,
        "taken": dict(found.taken),
        "sent": dict(found.sent),
        "seconds": found.seconds,
        "epochs": found.epochs,
        "messages_of_epochs": found.of_epochs,
        "messages_of_input": found.of_input,
        "an_epoch_and_task": _an_epoch_and_task(found, tasks),
        "least_epoch_seconds": _least_epoch_seconds(found),
        "processor_share": found.share,
    }


def _an_epoch_and_task(found: _Replayed, tasks: int) -> float:
    return found.of_epochs / max(1, found.epochs) / (3 * tasks)


def _least_epoch_seconds(found: _Replayed) -> float:
    """From one epoch to the next, so that the coordinator has as many messages as are allowed, without those of the
    input; infinite where the others are too many."""
    others = (found.messages.total() - found.of_epochs - found.of_input) / found.seconds
    left = ALLOWED - others
    return found.of_epochs / max(1, found.epochs) / left if left > 0 else math.inf


def _targets(found: dict[int, dict[Address, _Replayed]]) -> list[Target]:
    tasks = max(found)
    coordinator, balancer = found[tasks][COORDINATOR], found[tasks][BALANCER]
    of = f"with 3 x {tasks} tasks"
    return [
        at_most(f"messages a second of the coordinator {of}", coordinator.rate, ALLOWED),
        below(f"processor time of the coordinator {of}, of one processor", coordinator.share, 0.2),
        at_most(f"messages a second of the load balancer {of}", balancer.rate, ALLOWED),
        below(f"processor time of the load balancer {of}, of one processor", balancer.share, 0.2),
    ]


def _text(found: dict[int, dict[Address, _Replayed]]) -> str:
    rows = [
        (
            f"3 x {tasks}",
            str(at),
            of.rate,
            f"{of.share:.1%}",
            of.epochs / of.seconds,
            *((_an_epoch_and_task(of, tasks), _least_epoch_seconds(of)) if at == COORDINATOR else ("", "")),
        )
        for tasks, machines in found.items()
        for at, of in machines.items()
    ]
    head = ("tasks", "machine", "messages/s", "of a processor", "epochs/s", "messages an epoch and task")
    tables = [markdown_table((*head, f"epoch, s, for {ALLOWED:g} messages/s beside the input's"), rows)]
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
        f"task that reads gets {SPLITS_A_SECOND:g} rows a second. Each message is one call on Ray, which "
        f"carries {RAY_CALLS:,} a second of one caller."
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
    for panel, label, form in ((left, "messages a second", "{x:,g}"), (right, "of one processor", "{x:.1%}")):
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
