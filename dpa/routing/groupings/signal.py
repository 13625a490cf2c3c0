"""What a reducer tells the mappers of its load, on the acknowledgements that it sends anyway (CG paper, V-C)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Wish(str, Enum):
    """What a reducer wants of the mappers in the next time slot."""

    KEEP = "keep"
    DECREASE = "decrease"
    INCREASE = "increase"


@dataclass(frozen=True, slots=True)
class Signal:
    """A reducer's finding at the end of a time slot. The same signal comes with many acknowledgements.

    Attributes:
        slot: number of the slot, growing.
        utilisation: of the reducer in that slot: above 1 if more work came than it could do.
        wish: what follows from that.
        records: how many came in that slot: what the utilisation rests on.
        service_seconds: time to process one record in that slot, or in the last one with any; None before the first.
    """

    slot: int
    utilisation: float
    wish: Wish
    records: int = 0
    service_seconds: float | None = None
