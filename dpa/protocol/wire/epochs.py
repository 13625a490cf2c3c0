"""How long the epochs of a stream took to end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EpochWait:
    """For whom the end of an epoch waited.

    Attributes:
        task: its name.
        what: what it did.
        seconds: for how long the others waited.
    """

    task: str
    what: str
    seconds: float


@dataclass(frozen=True)
class EpochStats:
    """The epochs that cuts of the stream have ended.

    Attributes:
        number: how many.
        seconds: in which sources waited for cuts, all together.
        longest: the longest of these waits.
        waited_for: whom the longest one waited for most; None before the first.
    """

    number: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    waited_for: EpochWait | None = None

    def with_one(self, seconds: float, waited_for: EpochWait | None) -> EpochStats:
        """Also the one that was ended now."""
        longer = self.waited_for is None or seconds > self.longest
        return EpochStats(
            self.number + 1,
            self.seconds + seconds,
            max(seconds, self.longest),
            waited_for if longer else self.waited_for,
        )
