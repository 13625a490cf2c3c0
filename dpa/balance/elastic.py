"""How many tasks a stage should have, from true rates and in one decision, as DS2 has it (Kalavri et al., OSDI 2018,
section 3): what is offered, divided by what a task processes in a second in which it has records.

Unlike DS2 it counts the backlog too, which must be worked off in a stated time. It weighs what a change costs, as
learned from the changes before, against tasks that idle: a load that rises is met ahead, one that falls is followed
late. It looks at numbers alone."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

from annotated_types import Ge, Gt, Le

from dpa._util.words import plural
from dpa.routing import MOST_TASKS

_FIRST_COST = 2.0  # seconds that a change is expected to take before one has been measured: a process has to start

_PAYS = 10.0
"""A change costs as much as if all tasks that the stage has then idled for this many times the seconds of a start."""

_FALLING = 3.0  # a load that has not settled is followed once idle tasks have cost as much as this many changes
_RISEN = 4.0  # a load has to be seen for this many times `seconds` before its slope says anything
_RATES = 8  # looks over which the rate of a task is averaged
_NOTED = 0.05  # a load that rises by less than this part of it within half of that time does not rise

_STEADY = 0.2
"""Nor does one that rises by less than this part of its whole rise in one half of that time: it makes a step."""

_RISING = 1.2  # while the load is this many times its least of late, no task is ended
_LONG = 5.0  # a load that comes and goes within `seconds` is seen in its mean over this many times as long
_HELPED = 1.1  # more tasks have helped where this many times as much is processed as before
_CORES_USED = 0.95  # the processors are used up where so much of their time is
_RUNNING = 0.1  # user code that runs for less than this part of its busy time needs other things than processors


@dataclass(frozen=True, kw_only=True)
class ElasticOptions:
    """How far, and at what load, the number of a stage's tasks follows its work."""

    min_tasks: Annotated[int, Ge(1)] = 1
    """Fewest tasks."""
    max_tasks: Annotated[int, Ge(1), Le(MOST_TASKS)] = 8
    """Most tasks."""
    busy: Annotated[float, Gt(0), Le(1)] = 0.9
    """Start tasks if the offered load would keep the present ones busy for more than this share of their time; as many
    as bring the share half-way between this and `idle`."""
    idle: Annotated[float, Ge(0), Le(1)] = 0.6
    """End tasks if the offered load keeps them busy for less than this share, down to the same number."""
    backlog_seconds: Annotated[float, Gt(0)] = 20.0
    """Seconds in which tasks should work off waiting records, beside the load that is offered meanwhile."""
    seconds: Annotated[float, Gt(0)] = 2.0
    """Seconds for which tasks must be too few before more are started. A change counts as if all tasks idled for ten
    times as long, or for ten times what a start takes. Superfluous tasks must have idled that long, all together,
    before any are ended."""

    def __post_init__(self) -> None:
        if self.min_tasks > self.max_tasks:
            raise ValueError(f"min_tasks ({self.min_tasks}) must not exceed max_tasks ({self.max_tasks})")
        if self.idle >= self.busy:
            raise ValueError(f"idle ({self.idle}) must be below busy ({self.busy})")

    @property
    def target(self) -> float:
        """The share of its time for which a task should be busy."""
        return (self.busy + self.idle) / 2


@dataclass(frozen=True)
class StageWork:
    """What a stage has to do, as measured since the last look.

    Attributes:
        tasks: how many it has.
        offered: records a second that would arrive without backpressure from the stage; of a source, those that the
            stages it feeds could take.
        rate: records a second that a task processes while it has any (DS2's true processing rate), or makes of rows
            while nothing holds it back; None: it has not.
        backlog: records that wait.
        processed: records a second that it processes.
        behind_seconds: for how long it has not been done with all that there is: a task has always had records, or one
            that feeds the stage has always been held back.
        running: the share of its busy time for which user code runs on a processor, 0 to 1.
        cores_busy: the share of the processors' time that is used, by whomever, of the node where it is least, 0 to 1.
        seconds_left: until the stream would end at the present rate; None: unknown.
    """

    tasks: int
    offered: float
    rate: float | None
    backlog: float = 0.0
    processed: float = 0.0
    behind_seconds: float = 0.0
    running: float = 0.0
    cores_busy: float = 0.0
    seconds_left: float | None = None


@dataclass(frozen=True)
class Scaling:
    """A decision: how many tasks there should be, as many as there are if nothing is to change, and why. `kind`: the
    reason without its numbers."""

    tasks: int
    kind: str
    reason: str


@dataclass(frozen=True)
class _Look:
    """When; how many tasks the offered load would keep busy all the time; for how many seconds the backlog would keep
    one busy. `smooth` is the mean load of this look and those shortly before."""

    at: float
    load: float
    smooth: float
    backlog: float


class ElasticPolicy:
    """One stage's.

    A change depends on what is offered and not on how many tasks there are, so while that stays no other change
    follows. Tasks are started soon and ended late: to be without them costs more than to have them."""

    def __init__(self, options: ElasticOptions) -> None:
        self._options = options
        self._looks: deque[_Look] = deque()
        self._rates: deque[float] = deque(maxlen=_RATES)
        self._cost = _FIRST_COST
        self._since = math.inf
        self._idle = 0.0  # seconds of tasks, all together, for which there were too many
        self._scale = 1.0
        self._stuck_at = 0.0

    def changed(self, seconds: float, *, started: bool) -> None:
        """A change has taken `seconds`; `started`: tasks were started for it."""
        if started:
            self._cost = seconds
        self._idle = 0.0
        self.forget()

    def forget(self) -> None:
        """What has been offered is no reason for a change any more; a load that rises still is."""
        self._since = math.inf

    def look(self, work: StageWork, now: float) -> Scaling:
        if work.rate:
            self._rates.append(work.rate)
        if not self._rates:
            return Scaling(work.tasks, "nothing is known", "no record has been processed")
        look = self._note(work, self._rate, now)
        reason = f"{work.offered:,.0f} records/s offered, {self._rate:,.0f} a task"
        reason += f", {work.backlog:,.0f} waiting" if work.backlog >= 0.5 else ""
        more = self._more(work.tasks, now)
        if more is not None:
            return self._grow(work, more, reason)
        if work.behind_seconds >= self._options.backlog_seconds:
            return self._unstick(work, look.smooth, f"{reason}: over its backlog for {work.behind_seconds:.0f} s")
        fewer = self._fewer(work.tasks, now)  # last: to be without tasks costs more than to have them
        if fewer is not None:
            return self._shrink(work, fewer, reason)
        is_off = self._is_too_much(look, work.tasks) or self._is_little(look, work.tasks)
        return Scaling(work.tasks, "not for long enough" if is_off else "within bounds", reason)

    def _note(self, work: StageWork, rate: float, now: float) -> _Look:
        load = work.offered / rate * self._scale
        recent = [look.load for look in self._looks if look.at > now - self._options.seconds / 2]
        look = _Look(now, load, fmean([*recent, load]), work.backlog / rate)
        spare = work.tasks - self._tasks_for(look.smooth, look.backlog)
        if spare <= 0:
            self._idle = 0.0
        elif self._since < now:
            self._idle += spare * (now - self._looks[-1].at)
        self._looks.append(look)
        self._since = min(self._since, now)
        while self._looks[0].at < now - max(self._patience, _LONG * self._options.seconds) - 1.0:
            self._looks.popleft()
        return look

    @property
    def _rate(self) -> float:
        return fmean(self._rates)

    @property
    def _patience(self) -> float:
        """What a change costs, in seconds of all tasks that there are then."""
        return _PAYS * max(self._cost, self._options.seconds)

    def _is_too_much(self, look: _Look, tasks: int) -> bool:
        options = self._options
        return look.smooth > options.busy * tasks or look.smooth + look.backlog / options.backlog_seconds > tasks

    def _is_little(self, look: _Look, tasks: int) -> bool:
        return look.smooth < self._options.idle * tasks and self._tasks_for(look.smooth, look.backlog) < tasks

    def _tasks_for(self, load: float, backlog: float) -> int:
        """The least number, within the bounds, whose tasks are as busy as they should be and done with the backlog in
        time."""
        options = self._options
        needed = max(load / options.target, load + backlog / options.backlog_seconds)
        return max(math.ceil(min(needed, options.max_tasks) - 1e-9), options.min_tasks)

    def _of_last(self, seconds: float, now: float) -> Sequence[_Look]:
        """Empty if the looks do not reach back as far."""
        if not self._looks or max(self._since, self._looks[0].at) > now - seconds + 1e-9:
            return ()
        return [look for look in self._looks if look.at >= now - seconds - 1e-9]

    def _more(self, tasks: int, now: float) -> int | None:
        """How many there should be; None if there are enough."""
        options = self._options
        looks = self._of_last(options.seconds, now)
        if looks and all(self._is_too_much(look, tasks) for look in looks):
            load = max(look.smooth for look in looks)
            short = max(load - tasks, 0.0)  # a source that is held back keeps more than is seen
            backlog = max(looks[-1].backlog, short * options.seconds) + short * self._cost
            return self._tasks_for(load + self._rise(load, now), backlog)
        looks = self._of_last(_LONG * options.seconds, now)
        if len(looks) > 1:
            loads, half = [look.load for look in looks], len(looks) // 2
            if min(fmean(loads[:half]), fmean(loads[half:])) > options.busy * tasks:
                return self._tasks_for(fmean(loads), looks[-1].backlog)
        return None

    def _rise(self, load: float, now: float) -> float:
        """By how much the load will rise while tasks start, and until those started for that have idled, on average,
        for as long as a change costs."""
        return self._slope(load, now) * (self._cost + 2 * self._patience)

    def _slope(self, load: float, now: float) -> float:
        """By how much the load rises a second, up to `load` now; 0 if it has not risen all the time of late."""
        recent = [look for look in self._looks if look.at >= now - self._patience]
        middle, seconds = recent[len(recent) // 2], now - recent[0].at
        if seconds < _RISEN * self._options.seconds:
            return 0.0
        rises = middle.smooth - recent[0].smooth, load - middle.smooth
        if min(rises) < max(_NOTED * load, _STEADY * sum(rises)):
            return 0.0
        halves = recent[: len(recent) // 2], recent[len(recent) // 2 :]
        before, after = (fmean(look.load for look in half) for half in halves)
        return 2 * (after - before) / seconds

    def _fewer(self, tasks: int, now: float) -> int | None:
        """How many there should be; None if there are not too many, or it pays to wait until no further change would
        follow."""
        looks = self._of_last(self._patience, now)
        change = self._patience * tasks
        if not looks or not all(self._is_little(look, tasks) for look in looks) or self._idle < change:
            return None
        last = looks[-1]
        if last.smooth > _RISING * min(look.smooth for look in looks):
            return None
        settled = [look for look in looks if look.at >= looks[0].at + self._options.seconds]
        if not settled:  # there was no look for long: it says nothing of that time
            return None
        wanted = max(self._tasks_for(look.smooth, look.backlog) for look in settled)
        is_falling = wanted > self._tasks_for(last.smooth, last.backlog)
        return None if is_falling and self._idle < _FALLING * change else wanted

    def _unstick(self, work: StageWork, load: float, reason: str) -> Scaling:
        """The stage is not done in time, though it should have tasks enough."""
        # The keys of one may be more than its share of the work, more may wait at the source than was to be seen, or
        # records are long on their way. So what it is offered is taken to keep all its tasks busy, from now on.
        if work.processed <= _HELPED * self._stuck_at:
            return Scaling(work.tasks, "more did not help", reason)
        found = self._grow(work, self._tasks_for(float(work.tasks), 0.0), reason)
        if found.tasks != work.tasks:
            self._stuck_at = work.processed
            self._scale *= max(work.tasks / load, 1.0) if load > 0 else 1.0
        return found

    def _grow(self, work: StageWork, wanted: int, reason: str) -> Scaling:
        if wanted <= work.tasks:
            bound = plural(self._options.max_tasks, "task")
            return Scaling(work.tasks, "at a bound", f"{reason}: with {bound}, the bound")
        if work.cores_busy >= _CORES_USED and work.running >= _RUNNING:
            used = f"the processors are used {work.cores_busy:.0%} of the time"
            return Scaling(work.tasks, "processors are used up", f"{reason}: but {used}")
        if work.seconds_left is not None:
            left = max(work.seconds_left, work.backlog / self._rate / work.tasks)
            gain = left * (1 - work.tasks / wanted)
            if gain <= self._cost:
                costs = f"{plural(wanted, 'task')} would gain {gain:.1f} s, and cost {self._cost:.1f} s"
                return Scaling(work.tasks, "not worth it", f"{reason}: but {costs}")
        return Scaling(wanted, "more tasks", reason)

    def _shrink(self, work: StageWork, wanted: int, reason: str) -> Scaling:
        if work.seconds_left is not None and work.seconds_left <= self._cost:
            return Scaling(work.tasks, "not worth it", f"{reason}: but the stream ends in {work.seconds_left:.1f} s")
        self._scale, self._stuck_at = 1.0, 0.0
        return Scaling(wanted, "fewer tasks", f"{reason}: {self._idle:,.0f} s of tasks have idled")
