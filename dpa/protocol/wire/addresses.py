"""Who a message is from and for."""

from typing import NamedTuple


class Address(NamedTuple):
    """A task: the name of its stage and its number there, from 0."""

    stage: str
    index: int = 0  # type: ignore[assignment]  # instead of the method of tuples

    def __str__(self) -> str:
        return self.stage if self in (COORDINATOR, BALANCER) else f"{self.stage} {self.index}"


class Present(NamedTuple):
    """Which tasks of a stage there are, of those numbered below `following`: all others of these are gone for good."""

    stage: str
    tasks: tuple[int, ...]
    following: int

    def has_gone(self, task: Address) -> bool:
        return task.stage == self.stage and task.index < self.following and task.index not in self.tasks


COORDINATOR = Address("coordinator")
BALANCER = Address("load balancer")
RELAY = "control relay"
"""The name of relays in the place of a stage's (`relays.py`)."""

RESERVED = (COORDINATOR.stage, BALANCER.stage, RELAY)
"""Names that no stage may have."""
