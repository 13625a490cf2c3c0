"""Who a message is from and for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """A task: the name of its stage and its number there, from 0."""

    stage: str
    index: int = 0

    def __str__(self) -> str:
        return self.stage if self.stage in RESERVED else f"{self.stage} {self.index}"


COORDINATOR = Address("coordinator")
BALANCER = Address("load balancer")
RESERVED = (COORDINATOR.stage, BALANCER.stage)
"""Names that no stage may have."""
