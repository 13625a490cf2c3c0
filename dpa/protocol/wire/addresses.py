"""Who a message is from and for."""

from __future__ import annotations

from typing import NamedTuple


class Address(NamedTuple):
    """A task: the name of its stage and its number there, from 0."""

    stage: str
    index: int = 0  # type: ignore[assignment]  # instead of the method of tuples

    def __str__(self) -> str:
        return self.stage if self.stage in RESERVED else f"{self.stage} {self.index}"


COORDINATOR = Address("coordinator")
BALANCER = Address("load balancer")
RESERVED = (COORDINATOR.stage, BALANCER.stage)
"""Names that no stage may have."""
