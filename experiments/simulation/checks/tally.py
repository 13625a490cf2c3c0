"""A count of each task of a stage, and their sum."""

from __future__ import annotations

from dpa.protocol.wire.addresses import Address


class Tally:
    """A number of each task, and their sum."""

    def __init__(self) -> None:
        self.total = 0
        self._of: dict[Address, int] = {}

    def note(self, address: Address, number: int) -> None:
        """A task's number is this now."""
        self.total += number - self._of.get(address, 0)
        self._of[address] = number
