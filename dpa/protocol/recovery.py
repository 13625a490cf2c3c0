"""What happens to a job when one of its processes dies: its graph restarts as the next *generation*, a bounded number
of times without progress. No clock and no Ray: the driver notices deaths, waits, and begins.

Only deaths are recovered from. Errors that user code raises, broken invariants and wrong configurations would come
again, so they fail the job at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Ge, Gt

from dpa._util.durations import Duration
from dpa.errors import JobFailedError
from dpa.protocol.wire.addresses import RESERVED, Address


@dataclass(frozen=True, kw_only=True)
class RecoveryOptions:
    """How often, and how soon, a job is begun again when one of its processes has died."""

    attempts: Annotated[int, Ge(0)] = 3
    """How often the job restarts after a death; each new checkpoint resets the count. 0: the first death fails the job.
    """
    backoff: Duration = 1.0
    """Seconds from the first death to the restart; doubles with each further death until there is a new checkpoint."""


@dataclass(frozen=True, kw_only=True)
class CheckpointOptions:
    """Checkpoints. A job restarts from the newest, or without any from the start of the input."""

    path: str
    """Directory, or `file://` or `s3://` URI, in which the job makes its own directory."""
    every: Annotated[Duration, Gt(0)] = 10.0
    """Seconds from a written checkpoint to the start of the next."""
    keep: Annotated[int, Ge(1)] = 3
    """How many of the newest checkpoints are kept."""


@dataclass(frozen=True)
class SavedJob:
    """Where the checkpoints of a job are, as its driver has made or found it.

    Attributes:
        job: its directory there.
        about: what a job must share with this one to continue from a checkpoint; a text that each checkpoint holds.
        generation: with which this driver begins; earlier ones belonged to drivers before.
        read: rows of the input that had been read at the checkpoint that it begins with.
    """

    options: CheckpointOptions
    job: str
    about: str = "{}"
    generation: int = 0
    read: int = 0


@dataclass(frozen=True)
class Death:
    """The death of a process of a job, with which its generation ends.

    Attributes:
        node: the name of its node; empty where the job has one node, or where it is not known.
        at: when that was noticed, in seconds since the epoch.
        what: what happened, such as `died` or `did not start`.
        is_planned: whether the generation is ended before the process dies, as it is known that it will.
    """

    task: Address
    cause: str
    node: str = ""
    generation: int = 0
    at: float = 0.0
    what: str = "died"
    is_planned: bool = False

    def in_words(self) -> str:
        where = f" on {self.node}" if self.node else ""
        return f"{self.task}{where} {self.what}: {self.cause}"


class TaskDiedError(JobFailedError):
    """A process of the job has died, which ends its generation: `death` says whose."""

    def __init__(self, death: Death) -> None:
        super().__init__(death.in_words())
        self.death = death

    def __reduce__(self) -> tuple[type[TaskDiedError], tuple[Death]]:
        return type(self), (self.death,)


@dataclass
class Recoveries:
    """Decides after each death whether the job is begun again.

    Attributes:
        generation: the next one, or the one that lives.
        deaths: that have ended a generation since the newest checkpoint, in order.
    """

    options: RecoveryOptions
    generation: int = 0
    deaths: list[Death] = field(default_factory=list)

    @property
    def attempts_left(self) -> int:
        return self.options.attempts - len(self.deaths)

    @property
    def suspects(self) -> frozenset[str]:
        """The stages in which two tasks, or the same one twice, have died: their user code may be to blame."""
        deaths = Counter(death.task.stage for death in self.deaths if death.task.stage not in RESERVED)
        return frozenset(stage for stage, number in deaths.items() if number > 1)

    def after(self, death: Death, *, has_progressed: bool = False) -> float | None:
        """The seconds from this death to the next beginning; None: all attempts are used up. A new checkpoint since the
        last death (`has_progressed`) counts deaths anew. A planned death does not count, and waits for nothing."""
        if has_progressed:
            self.deaths.clear()
        self.generation += 1
        if death.is_planned:
            return 0.0
        self.deaths.append(death)
        if len(self.deaths) > self.options.attempts:
            return None
        return float(self.options.backoff * 2 ** (len(self.deaths) - 1))

    def waits(self) -> Iterator[float]:
        """The seconds before each further try of what the next beginning needs, such as the place of a result."""
        for number in range(len(self.deaths), self.options.attempts):
            yield float(self.options.backoff * 2**number)

    def in_words(self) -> str:
        *before, last = self.deaths
        if not before:
            return last.in_words()
        if len({(death.task, death.cause) for death in self.deaths}) == 1:
            return f"{last.in_words()}; so it was in each of {len(self.deaths)} generations"
        earlier = "; ".join(f"in generation {death.generation}, {death.in_words()}" for death in before)
        return f"{last.in_words()}; before, {earlier}"
