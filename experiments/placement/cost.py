"""Part i: what it costs to measure what tasks use and send, by the processor time of the job that is measured.

A task counts every message that it sends, and says once a second what it has used so far. Both are timed here by
themselves, and then multiplied by how often they happen in jobs that run on Ray; two runs of a job differ by far more.
"""

from __future__ import annotations

import argparse
import pickle
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dpa import Job
from dpa.measure.load import TrafficMeter
from dpa.protocol.wire.addresses import COORDINATOR, Address
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.messages.end import Progress
from dpa.protocol.wire.metrics import TaskStats
from dpa.protocol.wire.use import TaskUse
from dpa.result import Report
from dpa.runtime.cluster import ray_session
from experiments.harness import Findings, Target, markdown_table, progress

MESSAGES, REPORTS = 200_000, 2_000
"""How often what is timed is done."""

ROWS, QUICK_ROWS = 400_000, 20_000
"""Lines of about ten words."""

BOUND = 0.01


@dataclass(frozen=True)
class Load:
    """A word count: its tasks, and the records that it sends at once at most (None: as many as there are)."""

    name: str
    tasks: int
    batch_records: int | None = None

    def job(self, rows: int) -> Job:
        """The job, without balancing."""
        return Job(
            input={"format": "generated", "use": "jobs.lines:Lines", "rows": rows},
            mapper="jobs.wordcount:words",
            key="word",
            reducer="count",
            combiner=False,
            parallelism={"mappers": self.tasks, "reducers": self.tasks},
            balance={"strategy": "none"},
            limits={} if self.batch_records is None else {"batch_records": self.batch_records},
        )


LOADS = (Load("2 + 2 tasks", 2), Load("8 + 8 tasks", 8), Load("2 + 2 tasks, 100 records a message", 2, 100))


@dataclass(frozen=True)
class Cost:
    """Of one job.

    Attributes:
        messages: that its tasks sent each other.
        cpu_seconds: of all its tasks.
        counting, reporting: the parts of these that measuring takes.
    """

    messages: int
    cpu_seconds: float
    counting: float
    reporting: float

    @property
    def part(self) -> float:
        """Both."""
        return self.counting + self.reporting


def measure(options: argparse.Namespace) -> Findings:
    """Time what measuring does, and see how often jobs do it."""
    rows, repeats = (QUICK_ROWS, 1) if options.quick else (ROWS, 5)
    message = statistics.median(_seconds_a_message() for _ in range(repeats))
    reports = {tasks: statistics.median(_seconds_a_report(tasks) for _ in range(repeats)) for tasks in (2, 8, 64)}
    found = {}
    with ray_session(None, actors=2 * max(load.tasks for load in LOADS) + 2):
        for load in LOADS:
            found[load.name] = _cost(load.job(rows).run().report, message, reports[load.tasks])
            progress(f"{load.name}: {found[load.name]}")
    worst = max(cost.part for cost in found.values())
    return Findings(
        data={
            "seconds_a_message": message,
            "seconds_a_report": reports,
            "jobs": {name: {**vars(cost), "part": cost.part} for name, cost in found.items()},
        },
        targets=[Target("processor time spent measuring, at most", "< 1%", f"{worst:.2%}", worst < BOUND)],
        text=_text(message, reports, found),
    )


def _cost(report: Report, message: float, use: float) -> Cost:
    tasks = [task for stage in report.stages for task in stage.tasks]
    messages = sum(traffic.messages for traffic in report.traffic)
    cpu = sum(task.cpu_seconds for task in tasks)
    return Cost(messages, cpu, messages * message / cpu, len(tasks) * report.seconds.stream * use / cpu)


def _seconds_a_message() -> float:
    meter: TrafficMeter[Address] = TrafficMeter()
    receivers = [Address("reducer", index) for index in range(16)]

    def count() -> None:
        for number in range(MESSAGES):
            meter.sent(receivers[number % 16], 100, 5_000)

    return _seconds(count) / MESSAGES


def _seconds_a_report(receivers: int) -> float:
    """To make, pickle and open a report of a task that sends to so many, beside one that says nothing of its use."""
    meter: TrafficMeter[Address] = TrafficMeter()
    for index in range(receivers):
        meter.sent(Address("reducer", index), 100, 5_000)

    def report(make: Callable[[], TaskUse | None]) -> None:
        for _ in range(REPORTS):
            stats = Progress(TaskStats("mapper", 0), use=make())
            pickle.loads(pickle.dumps(Envelope(Address("mapper", 0), COORDINATOR, 0, stats), protocol=5))

    def use() -> TaskUse:
        return TaskUse("node", cpu_seconds=time.process_time(), sent=meter.found())

    return (_seconds(lambda: report(use)) - _seconds(lambda: report(lambda: None))) / REPORTS


def _seconds(run: Callable[[], Any]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def _text(message: float, reports: Mapping[int, float], found: Mapping[str, Cost]) -> str:
    rows = [
        (name, cost.messages, cost.cpu_seconds, f"{cost.counting:.3%}", f"{cost.reporting:.3%}", f"{cost.part:.3%}")
        for name, cost in found.items()
    ]
    said = ", ".join(f"{1e6 * seconds:.0f} us with {tasks} receivers" for tasks, seconds in reports.items())
    head = ("job", "messages", "processor time, s", "counting", "reporting", "both")
    return (
        f"A message is counted in {1e9 * message:.0f} ns; a report a second takes {said}. Word counts on Ray, in parts "
        "of the processor time of all their tasks:\n\n" + markdown_table(head, rows)
    )
