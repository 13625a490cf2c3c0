"""How far senders may be ahead of a stage, and how its tasks portion their work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt

from dpa._util.bounds import FINITE


@dataclass(frozen=True, kw_only=True)
class FlowControl:
    """Bounds on the records that wait for a stage, and on how long its tasks work before they read their messages.

    A job file's section `limits` is made of this, so fields, defaults, bounds and docstrings are its keys.
    """

    batch_records: Annotated[int, Ge(1)] = 262_144
    """Most records in one pushed batch."""
    in_flight_records: Annotated[int, Ge(1)] = 1_048_576
    """Most records of one sender that may be emitted and not yet processed; queues are bounded by senders times
    this."""
    in_flight_mb: Annotated[int, Ge(1)] = 256
    """About the most MiB of them."""
    queue_seconds: Annotated[float, Gt(0), FINITE] | None = 0.5
    """The queueing delay to aim at: senders keep as many records in flight to a task as it processes in so many
    seconds. Longer: tasks that wait for a slow one have more to do meanwhile. Shorter: records arrive sooner, and less
    is queued where it must be forwarded. null: as many as the bounds allow."""
    quantum_records: Annotated[int, Ge(1)] = 262_144
    """Most records that a task processes before it reads its messages."""
    quantum_seconds: Annotated[float, Gt(0)] = 0.1
    """Seconds that a quantum should take at most: where records are slow, it has fewer."""
    drain_seconds: Annotated[float, Ge(0), FINITE] = 2.0
    """So long a task that leaves processes what is queued, before it hands over the rest with its states; while
    records are in order with their states (`consistency: migrate`) it does so at once."""

    def __post_init__(self) -> None:
        if self.batch_records > self.in_flight_records:
            raise ValueError(
                f"batch_records ({self.batch_records}) must not exceed in_flight_records ({self.in_flight_records})"
            )

    @property
    def in_flight_bytes(self) -> float:
        """`in_flight_mb` in bytes."""
        return self.in_flight_mb * 2**20
