"""What is known of an epoch once it has ended, for a log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dpa.sources.splits import Split


@dataclass(frozen=True)
class StageEpoch:
    """A stage at the end of an epoch.

    Attributes:
        watermark: event time, in microseconds since 1970; None: nothing is known.
        closed: its windows that end by this event time are closed; None: none is.
        processed: records, in this generation.
        published: rows of its result that the epoch publishes; None: it publishes none.
    """

    watermark: int | None
    closed: int | None
    processed: int
    published: int | None


@dataclass(frozen=True, eq=False)
class EndedEpoch:
    """An epoch.

    Attributes:
        epoch: its number.
        at: when it ended, in seconds of the stream.
        seconds: since the epoch before ended, or the stream began.
        waited: seconds that sources waited for its end.
        read: rows of the input that were read by then, since the job was begun.
        unread: rows that had come, and were not read.
        latest: the greatest event time that this generation had read, in microseconds since 1970; None: there is none.
        late: records that were late by then.
        left_out: records that were left out by then for another reason.
        slot: of the checkpoint chain, for which the epoch's states are written; None: there is no checkpoint.
        is_last: whether the job ended with it.
        stages: all of them.
        splits: by source, what the epoch has read.
    """

    epoch: int
    at: float
    seconds: float
    waited: float
    read: int
    unread: int
    latest: int | None
    late: int
    left_out: int
    slot: int | None
    is_last: bool
    stages: Mapping[str, StageEpoch]
    splits: Mapping[str, tuple[Split, ...]] = field(repr=False)
