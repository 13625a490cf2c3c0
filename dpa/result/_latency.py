"""What a report says of the time of records: how long they took, and what they waited for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LatencyReport:
    """Seconds of the processed records from source to processed. A record's source is the moment at which a source's
    task began the step that read its block's rows, so mapping, waiting for credit, transport, queueing and processing
    are in it. Longest and mean are exact, up to the difference of the machines' clocks.

    Attributes:
        p50: seconds of the median, within 1 %.
        p95: seconds of the 95th percentile, within 1 %.
        p99: seconds of the 99th percentile, within 1 %.
        max: seconds of the longest.
        mean: seconds in the mean.
    """

    p50: float
    p95: float
    p99: float
    max: float
    mean: float


@dataclass(frozen=True)
class RecordTimes:
    """Where the time of a stage's records went from source to processed, in the mean of all of them: the four are
    `latency.mean` together, but where clocks of machines differ.

    Attributes:
        made: seconds from the source until the sender had made it: reading, mapping, and all stages before.
        credit: seconds that it waited at the sender for credit.
        queued: seconds on its way and in queues, where it may have been forwarded.
        work: seconds of the quantum in which it was processed.
    """

    made: float
    credit: float
    queued: float
    work: float
