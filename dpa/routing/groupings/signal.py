"""A reducer's report of its load to the mappers, on the acknowledgements that it sends anyway (CG paper, V-C)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class CapacityRequest(str, Enum):
    """What a reducer requests of the mappers for the next time slot."""

    KEEP = "keep"
    DECREASE = "decrease"
    INCREASE = "increase"


@dataclass(frozen=True, slots=True)
class Signal:
    """A reducer's measurement at the end of a time slot. Many acknowledgements carry the same signal.

    Attributes:
        slot: number of the slot, growing.
        utilisation: of the reducer in that slot: above 1 if more work came than it could do.
        request: what follows from that.
        records: the number that came in that slot, on which the utilisation rests.
        service_seconds: time to process one record in that slot, or in the last one with any; None before the first.
    """

    slot: int
    utilisation: float
    request: CapacityRequest
    records: int = 0
    service_seconds: float | None = None
