"""What a task measures of its own time: how long it is busy, what a record takes, and how long rows wait.

Times are in seconds and come from the caller, who has the clock."""

import math
from collections import deque
from dataclasses import dataclass
from statistics import median_low

_MEMORY = 0.7  # how much a quantum counts when another one comes, for each record
_OVERHEAD = 0.0005  # seconds that a quantum is taken to need whatever its records, until quanta have shown more
_OVERHEADS = 5  # measurements of that, of which the median counts: an odd quantum spoils two
_APART = 2.0  # two quanta show it if one has twice the records of the other, or more
_ALIKE = 16  # quanta after which another size is due: those of one record each would never show it
_NET = 0.125  # at least this part of a quantum is taken to be of its records

_LONG = 4.0
"""A quantum whose records take more than this many times the usual is long. A single long one may do what many earlier
records have caused, such as the folding of states: its excess is spread over the records of the last quanta. A second
long one in a row counts in full."""

HALF_LIFE = 1.0
"""Seconds of work after which a measurement of a record's time counts half: four reports of a busy reducer at the
default, so no single quantum decides, and a change of speed is known within seconds."""

_PACE_HALF_LIFE = 0.5
"""Seconds of quanta after which the share of waiting counts half, and so does what was above in a long quantum."""

_PRIOR = 0.05  # seconds of work without waiting that are assumed at first: a quantum of a moment may wait for many
_PIECE = 0.25  # seconds after which what has been made without a break is a measurement, even if it is nothing
_WHOLE = 0.05  # seconds from which on a stretch counts in full: the newest of these is believed

_AFTER_HOLD = 0.25
"""A stretch that follows a hold counts for so much of one without; by the square of its length, where it is short."""

_SUPPLY_HALF_LIFE = 10.0  # seconds after which a measurement counts for half as long a stretch


class BusyTime:
    """Which part of its time a task is busy since the last report, and which part of that it waits for a processor.
    Work in progress counts: one record may take many reports."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._working_since: float | None = None
        self._busy = self._waited = 0.0

    def arrived(self, now: float) -> None:
        if self._since is None:  # the time before there is anything to do counts for nothing
            self._since = now

    def began(self, now: float) -> None:
        self.arrived(now)
        self._working_since = now

    def ended(self, now: float, waited: float) -> None:
        """For `waited` seconds of the work there was no processor."""
        if self._working_since is not None:
            self._busy += now - self._working_since
            self._working_since = None
        self._waited += waited

    def report(self, now: float) -> tuple[float, float]:
        """The busy part of the time, and the part of that in which it waited, both 0 to 1."""
        if self._working_since is not None:
            self._busy += now - self._working_since
            self._working_since = now
        elapsed = 0.0 if self._since is None else now - self._since
        busy, waited = self._busy, self._waited
        self._since = None if self._since is None else now
        self._busy = self._waited = 0.0
        return min(1.0, busy / elapsed) if elapsed > 0 else 0.0, min(1.0, waited / busy) if busy > 0 else 0.0


class ServiceTime:
    """The time of a record, a mean over the recent past: a measurement `half_life` seconds of work ago counts half."""

    def __init__(self, half_life: float = HALF_LIFE) -> None:
        self._half_life = half_life
        self._records = self._seconds = 0.0
        self._squares = self._measurements = 0.0  # of the time of a record, weighted by records; their number
        self._observed = 0

    def observe(self, records: int, seconds: float) -> None:
        # The first measurement includes the user code's imports and first allocations, which may take a hundred times
        # the rest: it counts only until there is another one.
        if self._observed == 1:
            self._records = self._seconds = self._squares = self._measurements = 0.0
        self._observed += 1
        decay = 2.0 ** (-seconds / self._half_life)
        self._records = self._records * decay + records
        self._seconds = self._seconds * decay + seconds
        self._squares = self._squares * decay + seconds**2 / records
        self._measurements = self._measurements * decay + 1

    @property
    def evidence(self) -> float:
        """The number of records that the mean rests on, where older ones count less."""
        return self._records

    @property
    def seconds(self) -> float | None:
        """None before the first record."""
        return self._seconds / self._records if self._records else None

    @property
    def error(self) -> float:
        """The standard error of `seconds`; infinite before there are two measurements to compare."""
        if self._measurements <= 1.5:
            return math.inf
        mean = self._seconds / self._records
        variance = max(self._squares / self._records - mean**2, 0.0)
        return math.sqrt(variance / (self._measurements - 1))


class ServicePace:
    """How long a record takes now, and a quantum whatever its records, for bounding what is in flight: quick to learn,
    and not deceived by small quanta or by a long one now and then. `ServiceTime` is a mean over seconds with its error.
    """

    def __init__(self) -> None:
        self._overheads = deque[float](maxlen=_OVERHEADS)
        self._other: tuple[int, float] | None = None
        self._alike = 0
        self._records = self._net = 0.0
        self._seconds = self._work = 0.0
        self._shared = self._sharing = 0.0
        self._was_long = False

    def observe(self, records: int, seconds: float, waited: float) -> None:
        """A quantum of `records` records took `seconds`, and for `waited` of them had no processor."""
        work = max(seconds - waited, 0.0)
        self._compare(records, work)
        net = max(work - max(self.overhead, _OVERHEAD), _NET * work)
        above = max(net - _LONG * records * self._net / self._records, 0.0) if self._records else 0.0
        was_long, self._was_long = self._was_long, above > 0
        if was_long:  # two in a row are no accident: this one counts in full
            above = 0.0
        self._records = _MEMORY * self._records + records
        self._net = _MEMORY * self._net + net - above
        fading = 2.0 ** (-seconds / _PACE_HALF_LIFE)
        self._seconds = fading * self._seconds + seconds
        self._work = fading * self._work + work
        self._sharing = fading * self._sharing + records
        self._shared = fading * self._shared + above

    def _compare(self, records: int, work: float) -> None:
        if self._other is None:
            self._other = records, work
        (few, short), (many, long) = sorted((self._other, (records, work)))
        self._alike += 1
        if many >= _APART * few:
            each = max(long - short, 0.0) / (many - few)
            self._overheads.append(min(short, long) - few * each)
            self._other, self._alike = (records, work), 0

    @property
    def overhead(self) -> float:
        """Seconds that a quantum takes whatever its records; 0 until that is shown to be much."""
        found = median_low(self._overheads or [0.0])
        return found if found > _OVERHEAD else 0.0

    @property
    def net(self) -> float:
        """Seconds for one record, without its share of the long quanta that come now and then; 0 before the first."""
        return self._net / self._records if self._records else 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is time for a quantum of another size, for the overhead to show."""
        return self._alike >= _ALIKE

    @property
    def seconds(self) -> float | None:
        """Seconds for one record, with the waiting for a processor that is usual now; None before the first."""
        if not self._records:
            return None
        net = self.net + self._shared / self._sharing
        return net * (self._seconds + _PRIOR) / (self._work + _PRIOR)


class Supply:
    """How many records a second a task makes of what it reads while nothing holds it back: what it offers to those that
    it feeds (the true output rate of a source, DS2, OSDI 2018, section 3).

    A task that was held back makes up for that first, if its input comes at a pace: it reads faster than rows come,
    until it has caught up or is held back again. So a stretch without a hold before it counts by its length, up to
    `_WHOLE`, one after a hold for less: a short one is nothing but making up. `rate` is in records a second; None
    before the first measurement.
    """

    def __init__(self) -> None:
        self.rate: float | None = None
        self._began: float | None = None
        self._made_at = 0.0
        self._is_held = False
        self._records = 0
        self._weight = 0.0
        self._at = -math.inf

    def begin(self, now: float) -> None:
        if self._began is None:
            self._began, self._records, self._made_at = now, 0, now

    def made(self, records: int, now: float) -> None:
        self._records += records
        self._made_at = now
        if self._began is not None and now - self._began >= _PIECE:
            self.end(now)
            self.begin(now)

    def hold(self, now: float) -> None:
        self.end(self._made_at)  # it may be at a step now, whose records are not known
        self._began = None
        self._is_held = True

    def end(self, now: float) -> None:
        """The task has nothing to read, or another stretch begins."""
        if self._began is None:
            return
        seconds, self._began = now - self._began, None
        if seconds <= 0 or (not self._records and seconds < _PIECE):
            return
        length = min(seconds / _WHOLE, 1.0)
        weight = _AFTER_HOLD * length**2 if self._is_held else length
        self._is_held = False
        if weight >= self._weight * 2.0 ** ((self._at - now) / _SUPPLY_HALF_LIFE):
            self.rate, self._weight, self._at = self._records / seconds, weight, now


@dataclass(frozen=True)
class Waited:
    """Rows that have waited.

    Attributes:
        seconds: since they were read, all rows together.
        longest: since the first of them was read.
    """

    rows: int = 0
    seconds: float = 0.0
    longest: float = 0.0


class RowWaits:
    """How long rows that a source has read wait for the end of their epoch, in bounded memory. A step of reading costs
    one addition."""

    def __init__(self) -> None:
        self._first_at: float | None = None
        self._rows = 0
        self._later = 0.0

    def read(self, rows: int, at: float) -> None:
        """`at`: when the reading of these rows began."""
        if not rows:
            return
        if self._first_at is None:
            self._first_at = at
        self._rows += rows
        self._later += rows * (at - self._first_at)  # differences keep their precision in a sum, moments would not

    def taken(self, now: float) -> Waited:
        """What they have waited by now; counting begins anew."""
        if self._first_at is None:
            return Waited()
        longest, rows, later = now - self._first_at, self._rows, self._later
        self._first_at, self._rows, self._later = None, 0, 0.0
        return Waited(rows, rows * longest - later, longest)
