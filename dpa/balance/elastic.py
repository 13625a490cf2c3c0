"""How many tasks a stage should have: more while all of them are busy, fewer while they are mostly idle, and only where
that is worth what it costs.

Balancing moves work between tasks; this is for the case that all have too much of it, or too little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Le

from dpa._util.words import plural
from dpa.routing.members import MOST_TASKS

_FIRST_COST = 2.0
"""Seconds that a change is expected to take before one has been measured: a process has to start."""

_CORES_USED = 0.95
"""The processors are used up where so much of their time is: further tasks would only share them."""


@dataclass(frozen=True, kw_only=True)
class ElasticOptions:
    """How far, and at what load, the number of a stage's tasks follows its work."""

    min_tasks: Annotated[int, Ge(1)] = 1
    """Fewest tasks."""
    max_tasks: Annotated[int, Ge(1), Le(MOST_TASKS)] = 8
    """Most tasks."""
    busy: Annotated[float, Gt(0), Le(1)] = 0.9
    """More tasks are started once those there are have been busy for so much of their time, all together."""
    idle: Annotated[float, Ge(0), Le(1)] = 0.4
    """Tasks are ended once they have been busy for no more than so much of it."""
    seconds: Annotated[float, Gt(0)] = 2.0
    """For so long it must have been so; twice as long before tasks are ended."""

    def __post_init__(self) -> None:
        if self.min_tasks > self.max_tasks:
            raise ValueError(f"min_tasks ({self.min_tasks}) must not exceed max_tasks ({self.max_tasks})")
        if self.idle >= self.busy:
            raise ValueError(f"idle ({self.idle}) must be below busy ({self.busy})")


@dataclass(frozen=True)
class StageWork:
    """What a stage does now.

    Attributes:
        tasks: how many it has.
        busy: the share of their time in which user code works, the mean of all tasks since the last look, 0 to 1.
        cores_busy: the share of the processors' time that is used, by whomever, of the node where it is least, 0 to 1.
        seconds_left: until the stream would end at the present rate; None: nobody knows.
    """

    tasks: int
    busy: float
    cores_busy: float = 0.0
    seconds_left: float | None = None


@dataclass(frozen=True)
class Scaling:
    """A decision: how many tasks there should be, as many as there are if nothing is to change, and why. `kind`: the
    reason without its numbers."""

    tasks: int
    kind: str
    reason: str


class ElasticPolicy:
    """One stage's. Between the two loads it does nothing, so it does not go back and forth."""

    def __init__(self, options: ElasticOptions) -> None:
        self._options = options
        self._since: dict[str, float] = {}
        self._cost = _FIRST_COST

    def changed(self, seconds: float) -> None:
        """A change has taken so many seconds; what was measured before it counts no more."""
        self._cost = seconds
        self.forget()

    def forget(self) -> None:
        """What has been measured counts no more."""
        self._since.clear()

    def look(self, work: StageWork, now: float) -> Scaling:
        """Decide, at `now` seconds."""
        options, tasks = self._options, work.tasks
        is_busy, is_idle = work.busy >= options.busy, work.busy <= options.idle
        held = self._held("busy", is_busy, now), self._held("idle", is_idle, now)
        measured = f"busy {work.busy:.0%} of the time"
        if not (is_busy or is_idle):
            return Scaling(tasks, "within bounds", measured)
        if max(held) < (options.seconds if is_busy else 2 * options.seconds):
            return Scaling(tasks, "not for long enough", f"{measured}, for {max(held):.1f} s")
        wanted = self._wanted(work)
        if wanted == tasks:
            bound = options.max_tasks if is_busy else options.min_tasks
            return Scaling(tasks, "at a bound", f"{measured}, with {plural(bound, 'task')}, the bound")
        if wanted > tasks:
            worthless = self._why_not_more(work, wanted)
            if worthless is not None:
                return Scaling(tasks, worthless[0], f"{measured}, but {worthless[1]}")
        return Scaling(wanted, "more tasks" if wanted > tasks else "fewer tasks", f"{measured} for {max(held):.1f} s")

    def _wanted(self, work: StageWork) -> int:
        """So many tasks that each would be busy half-way between the two bounds."""
        options = self._options
        fitting = math.ceil(work.tasks * work.busy / ((options.busy + options.idle) / 2) - 1e-9)
        wanted = max(fitting, work.tasks + 1) if work.busy >= options.busy else min(fitting, work.tasks - 1)
        return min(max(wanted, options.min_tasks), options.max_tasks)

    def _why_not_more(self, work: StageWork, wanted: int) -> tuple[str, str] | None:
        if work.cores_busy >= _CORES_USED:
            return "processors are used up", f"the processors are used {work.cores_busy:.0%} of the time"
        if work.seconds_left is not None:
            gain = work.seconds_left * (1 - work.tasks / wanted)
            if gain <= self._cost:
                return "not worth it", f"{plural(wanted, 'task')} would gain {gain:.1f} s, and cost {self._cost:.1f} s"
        return None

    def _held(self, what: str, holds: bool, now: float) -> float:
        """For how many seconds something has held without a break."""
        if not holds:
            self._since.pop(what, None)
            return 0.0
        return now - self._since.setdefault(what, now)
