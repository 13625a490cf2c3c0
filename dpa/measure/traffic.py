"""What a task sends: messages, records and bytes, by receiver."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
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

    @property
    def receivers(self) -> list[R]:
        """To whom anything was sent, in the order of the first message."""
        return list(self._found)

    def merge(self, receivers: Iterable[R], into: R) -> None:
        """Count what was sent to some receivers as sent to another."""
        for receiver in receivers:
            sums = zip(self._found.get(into, (0, 0, 0)), self._found.pop(receiver), strict=True)
            self._found[into] = [one + other for one, other in sums]

    def found(self) -> Mapping[R, Traffic]:
        """What was sent so far."""
        return {receiver: Traffic(*sums) for receiver, sums in self._found.items()}
