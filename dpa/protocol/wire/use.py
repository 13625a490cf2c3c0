"""What tasks use of the machines that they are on: what placements are made by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from dpa.measure.load import Traffic, TrafficMeter
from dpa.protocol.wire.addresses import Address, Present

EARLIER = -1
"""The number that stands for all tasks of a stage that are forgotten."""

_GONE_KEPT = 1_000
"""Receivers of a stage that are gone and counted one by one still: those to whom something was sent last."""


@dataclass(frozen=True)
class TaskUse:
    """What a task used of the machine that it was on, by the names of `dpa.result.TaskReport`; and what it sent to each
    other task of a stage: pushed and forwarded records, acknowledgements, states."""

    node: str = ""
    peak_memory: int = 0
    cpu_seconds: float = 0.0
    sent: Mapping[Address, Traffic] = field(default_factory=dict)
    state_memory: int = 0
    spilled: int = 0

    @cached_property
    def without_traffic(self) -> TaskUse:
        return replace(self, sent={})


def with_sums(use: Mapping[Address, TaskUse], known: Container[Address]) -> dict[Address, TaskUse]:
    """The same with what all other tasks used than those that are known as the use of one of each stage, `EARLIER`."""
    found = {task: used for task, used in use.items() if task in known}
    for task, used in use.items():
        if task not in known:
            all_of = Address(task.stage, EARLIER)
            found[all_of] = _sum(found.get(all_of, TaskUse()), used)
    return found


def _sum(one: TaskUse, other: TaskUse) -> TaskUse:
    """What two tasks used together; what they sent, by the stage of the receivers."""
    sent: defaultdict[Address, Traffic] = defaultdict(Traffic)
    for receiver, traffic in (*one.sent.items(), *other.sent.items()):
        sent[Address(receiver.stage, EARLIER)] += traffic
    return TaskUse(
        peak_memory=max(one.peak_memory, other.peak_memory),
        state_memory=max(one.state_memory, other.state_memory),
        spilled=one.spilled + other.spilled,
        cpu_seconds=one.cpu_seconds + other.cpu_seconds,
        sent=dict(sent),
    )


def forget_receivers(sent: TrafficMeter[Address], present: Present) -> None:
    """Count what was sent to the first of those that are gone as sent to one, `EARLIER`."""
    gone = [to for to in sent.receivers if to.index != EARLIER and present.has_gone(to)]
    sent.merge(gone[:-_GONE_KEPT], Address(present.stage, EARLIER))
