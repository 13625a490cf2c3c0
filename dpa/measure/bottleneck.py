"""Which stage of a graph limits a run: the one that is waited for, found from the busy and blocked time of tasks.

A task is blocked while it has work but may not emit, because records that it has emitted wait downstream. So the
blocked stages point to the bottleneck: it is fed by one and is not blocked itself. A queue says less, as a long one is
harmless where the tasks after it wait for something else."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

BLOCKED = 0.1
"""A stage is blocked whose tasks are blocked for this part of the time."""
BUSY = 0.5
"""Where nothing is blocked, a stage sets the pace only if its busiest task is busy for this part of the time."""
MARGIN = 0.1  # and only if no task of another stage is busy for a part of the time that comes within this of it


@dataclass(frozen=True)
class StageLoad:
    """What the tasks of a stage do with their time, as parts of it (0 to 1): `busy`, `blocked` and `waiting` for input
    on average over the tasks, and `busiest`, the busy part of the busiest task, which has the number `task`."""

    name: str
    busy: float
    blocked: float
    busiest: float
    task: int = 0
    waiting: float = 0.0

    @property
    def is_blocked(self) -> bool:
        return self.blocked >= BLOCKED


@dataclass(frozen=True)
class Bottleneck:
    """What limits a run.

    Attributes:
        kind: `stage` if an operator stage limits the run, `source` if a source does, `none` if nothing stands out.
        stage: the stage that limits the run; None for the kind `none`.
        reason: one sentence, with the numbers that decided.
    """

    kind: Literal["stage", "source", "none"] = "none"
    stage: str | None = None
    reason: str = "no bottleneck: no task was busy"


@dataclass(frozen=True)
class EdgeReport:
    """The records emitted from one stage to another.

    Attributes:
        source: the stage that emits.
        target: the stage that receives.
        records: records emitted.
        blocked: whether the receiver is why the sender was blocked (`dpa.measure.bottleneck.held_up` estimates it).
    """

    source: str
    target: str
    records: int = 0
    blocked: bool = False


def held_up(loads: Sequence[StageLoad], edges: Sequence[tuple[str, str]]) -> tuple[bool, ...]:
    """For each edge, whether its sender is blocked because of its receiver, by what can be known."""
    # Tasks report how long they are blocked, but not by which edge. Of the stages that a blocked stage feeds, those
    # that are blocked too are held responsible, and of the others the one with the busiest task.
    of = {load.name: load for load in loads}
    busiest = {
        source: max(
            (of[target] for other, target in edges if other == source and not of[target].is_blocked),
            key=lambda load: load.busiest,
            default=None,
        )
        for source, _ in edges
    }
    return tuple(
        of[source].is_blocked and (of[target].is_blocked or of[target] is busiest[source]) for source, target in edges
    )


def bottleneck(loads: Sequence[StageLoad], edges: Sequence[tuple[str, str]]) -> Bottleneck:
    """What limits a run, by the rule of docs/report.md.

    If a stage is blocked: of the stages that are held responsible and are not blocked themselves, the one with the
    busiest task. As a graph has no cycle, there is one. Otherwise: the stage with the busiest task, if that is busy
    enough and stands out."""
    waiting: dict[str, list[StageLoad]] = {}
    of = {load.name: load for load in loads}
    for (source, target), blocked in zip(edges, held_up(loads, edges), strict=True):
        if blocked and not of[target].is_blocked:
            waiting.setdefault(target, []).append(of[source])
    if waiting:
        found = max((of[name] for name in waiting), key=lambda load: load.busiest)
        sender = max(waiting[found.name], key=lambda load: load.blocked)
        held = f"while {sender.name}, which feeds it, is blocked {sender.blocked:.0%} of the time"
        return Bottleneck("stage", found.name, f"{found.name} limits the run: {_busy(found)}, {held}")
    return _pace(loads, {target for _, target in edges})


def _pace(loads: Sequence[StageLoad], fed: set[str]) -> Bottleneck:
    """Where no stage is blocked."""
    ordered = sorted(loads, key=lambda load: -load.busiest)
    if not ordered or not ordered[0].busiest:
        return Bottleneck()
    first = ordered[0]
    if first.busiest < BUSY:
        why = f"every task is idle most of the time; the busiest stage is {first.name}: {_busy(first)}"
        return Bottleneck(reason=f"no bottleneck: no stage is blocked, and {why}")
    rivals = [load.name for load in ordered[1:] if first.busiest - load.busiest < MARGIN]
    if rivals:
        why = f"no bottleneck: no stage is blocked, and {', '.join(rivals)} and {first.name} are about equally busy"
        return Bottleneck(reason=f"{why}: of {first.name}, {_busy(first).removeprefix('its ')}")
    kind: Literal["stage", "source"] = "stage" if first.name in fed else "source"
    name = f"the source {first.name}" if kind == "source" else first.name
    return Bottleneck(kind, first.name, f"{name} limits the run: {_busy(first)}; no stage is blocked")


def _busy(load: StageLoad) -> str:
    return f"its busiest task, {load.task}, is busy {load.busiest:.0%} of the time, the average {load.busy:.0%}"
