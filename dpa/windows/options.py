"""What a job file says of the time of rows, in `input.time`, and of windows, in a step's `window`.

Times are microseconds since 1970-01-01 UTC. A window holds its start and not its end."""

from dataclasses import dataclass, fields
from typing import Annotated, Literal, TypeAlias

from annotated_types import MinLen

from dpa._util.durations import MOST_SECONDS, Duration, as_seconds
from dpa.errors import ConfigError, traced_from_caller

WINDOW = START, END = "window_start", "window_end"
"""The columns that rows in windows have, which are the last parts of their keys."""

Unit: TypeAlias = Literal["s", "ms", "us"]
"""Seconds, milliseconds or microseconds since 1970."""

MICROS: dict[Unit, int] = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""Microseconds of a unit."""


@dataclass(frozen=True, kw_only=True)
class TimeOptions:
    """What the time of an input's rows is: when they happened, or when they are read."""

    column: Annotated[str, MinLen(1)]
    """Column with the time of each row: a timestamp or a date, UTC if it has no zone; or a number, with `unit`. With
    `by: processing`, dpa adds this column, a timestamp in UTC."""
    by: Literal["event", "processing"] = "event"
    """`event`: when the row happened, as the input says; `processing`: when a task read it, by the clock of its
    machine. The keys below are for event time."""
    unit: Unit | None = None
    """For a column of numbers: the unit since 1970."""
    out_of_order: Duration | None = None
    """Seconds by which a row may be older than the latest one before it; older rows are late. Null: 0 for unbounded
    input; bounded input may have any order, and its windows stay open to its end."""
    max_ahead: Duration = 300.0
    """Seconds; a time that is further ahead of the clock must be wrong, and does not move event time."""
    idle: Duration = 10.0
    """Seconds after which a part of the input that is read to its end and quiet no longer holds windows open."""

    def __post_init__(self) -> None:
        for of_event in (each for each in fields(self) if each.name not in ("column", "by")):
            if self.is_added and getattr(self, of_event.name) != of_event.default:
                why = "is of event time; with `by: processing` no row is late, and the clock waits for none"
                raise ValueError(f"`{of_event.name}` {why}: leave it out")

    @property
    def is_added(self) -> bool:
        """Whether it is processing time, and so a column that the input does not have."""
        return self.by == "processing"


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Windows of event time: of one length, or sessions."""

    size: Duration | None = None
    """Length of a window in seconds."""
    every: Duration | None = None
    """Seconds between the starts of two windows, which overlap if this is less than `size`; null: `size`."""
    offset: Duration = 0.0
    """Seconds by which windows begin later than the hours and days of UTC; less than `every`."""
    gap: Duration | None = None
    """Instead of `size`, sessions: most seconds between two neighbouring records of a key in one session."""
    lateness: Duration = 0.0
    """Seconds for which a window accepts late records after event time has passed its end."""

    def __post_init__(self) -> None:
        if (self.size is None) == (self.gap is None):
            raise ValueError("a window has a `size`, or is a session with a `gap`: give one of them")
        if self.gap is not None and (self.every is not None or self.offset):
            raise ValueError("a session begins with its first record: leave `every` and `offset` out")
        for name in ("size", "every", "gap", "offset", "lateness"):
            value, least = getattr(self, name), 0 if name in ("offset", "lateness") else 1e-6
            if value is not None and not (isinstance(value, int | float) and least <= value <= MOST_SECONDS):
                raise ValueError(f"`{name}` must be from {least:g} to {MOST_SECONDS:,} seconds, not {value!r}")
        if self.size is not None and self.slide_us > self.size_us:
            raise ValueError("`every` must not exceed `size`, or records between two windows would be in none")
        if self.size is not None and micros(self.offset) >= self.slide_us:
            raise ValueError("`offset` must be less than a window's beginning is from the next: `every`, or `size`")

    @property
    def is_session(self) -> bool:
        """Whether these are session windows."""
        return self.gap is not None

    @property
    def size_us(self) -> int:
        """The length of a window, or of a session with one record, in microseconds."""
        length = self.gap if self.size is None else self.size
        assert length is not None
        return micros(length)

    @property
    def slide_us(self) -> int:
        """Microseconds from the start of one window to the start of the next."""
        return self.size_us if self.every is None else micros(self.every)

    @property
    def offset_us(self) -> int:
        """Windows start this many microseconds after 1970-01-01 UTC."""
        return micros(self.offset)

    @property
    def past_end_us(self) -> int:
        """Microseconds by which event time must pass a window's end to close it: 1 for sessions, whose end still joins
        them, and 0 for other windows, which do not include their ends."""
        return int(self.is_session)

    @property
    def lateness_us(self) -> int:
        """`lateness` in microseconds."""
        return micros(self.lateness)

    def describe(self) -> str:
        """In a few words."""
        if self.is_session:
            return f"sessions with a gap of {self.gap:g} s"
        return f"windows of {self.size:g} s" + ("" if self.every is None else f" every {self.every:g} s")


def micros(seconds: float) -> int:
    """Seconds as microseconds."""
    return round(seconds * 1_000_000)


@traced_from_caller
def tumbling(size: float | str, *, offset: float | str = 0.0, lateness: float | str = 0.0) -> Windows:
    """Windows of one length, one after the other.

    Args:
        size: seconds, or a text as `1m`.
        offset, lateness: as in `Windows`.

    Raises:
        ConfigError: a duration is none, or does not fit.
    """
    return _windows(size=size, offset=offset, lateness=lateness)


@traced_from_caller
def sliding(
    size: float | str, every: float | str, *, offset: float | str = 0.0, lateness: float | str = 0.0
) -> Windows:
    """Windows of one length that start every `every` seconds; otherwise as `tumbling`."""
    return _windows(size=size, every=every, offset=offset, lateness=lateness)


@traced_from_caller
def session(gap: float | str, *, lateness: float | str = 0.0) -> Windows:
    """Sessions: a key's records with gaps of at most `gap` between them; otherwise as `tumbling`."""
    return _windows(gap=gap, lateness=lateness)


def _windows(**durations: float | str) -> Windows:
    try:
        return Windows(**{name: as_seconds(value) for name, value in durations.items()})
    except ValueError as error:
        raise ConfigError(f"window: {error}") from None
