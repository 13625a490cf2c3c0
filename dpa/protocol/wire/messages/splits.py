"""Reading the input: coordinator to source tasks, and back."""

from dataclasses import dataclass, field

from dpa.protocol.wire.messages import Message
from dpa.sources.splits import Split


@dataclass(frozen=True)
class Begin(Message):
    """All tasks are up: ask for the first split."""


@dataclass(frozen=True)
class SplitRequest(Message):
    """A source task has nothing left to read. `event_time`: the greatest of the rows that it has read of its last
    split, in microseconds; None: there is none. `read`: rows that it has read in all."""

    event_time: int | None = None
    read: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True)
class SplitGrant(Message):
    """The next split for a source task, or None if there is none left. `not_before`: with
    processing time, the watermark of the last cut, in microseconds since 1970. Rows of the split get no earlier time,
    even if the task's clock is slow."""

    split: Split | None
    not_before: int = 0


@dataclass(frozen=True)
class SplitReturned(Message):
    """A source task that leaves or pauses has read some rows of its split, and the rest is for others. `read`: how
    many. `event_time`: the greatest of these rows, as in `SplitRequest`."""

    read: int
    event_time: int | None = None
