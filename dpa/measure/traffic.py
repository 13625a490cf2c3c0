"""What a task sends: messages, records and bytes, by receiver."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

R = TypeVar("R", bound=Hashable)


@dataclass(frozen=True)
class Traffic:
    """Messages, the records in them, and their bytes."""

    messages: int = 0
    records: int = 0
    bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.messages + other.messages, self.records + other.records, self.bytes + other.bytes)


class TrafficMeter(Generic[R]):
    """Sums by receiver: three additions a message."""

    def __init__(self) -> None:
        self._found: dict[R, list[int]] = {}

    def sent(self, receiver: R, records: int, size: int) -> None:
        """A message of `size` bytes is sent."""
        sums = self._found.setdefault(receiver, [0, 0, 0])
        sums[0] += 1
        sums[1] += records
        sums[2] += size

    def found(self) -> Mapping[R, Traffic]:
        """What was sent so far."""
        return {receiver: Traffic(*sums) for receiver, sums in self._found.items()}
