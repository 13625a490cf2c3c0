"""What a job on Ray answers: requests, until whoever asked fetches the answer, and the driver, which polls it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dpa.protocol.plan import CancelJob, Request
from dpa.protocol.recovery import Death
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.instructions import Answer, Commit
from dpa.protocol.wire.metrics import Snapshot
from dpa.protocol.wire.nodes import TaskProcess

TOO_LATE, RESTARTED = "the job has ended before that", "the job was restarted"
"""Why requests are refused that a job, or a generation of it, had not answered when it ended."""

_CLOSE_SECONDS, _LOOK_SECONDS = 3.0, 0.05
"""How long a job that has ended keeps answers for those who asked, and how often it looks whether there are any."""


class PendingRequests:
    """The requests whose answers have not arrived yet, in all generations of a job; used from several threads.

    Attributes:
        is_cancelled: whether the job is to end without a result.
    """

    def __init__(self) -> None:
        self.is_cancelled = False
        self._of: dict[int, Answer | None] = {}

    def expect(self, request: int | None) -> None:
        """Keep the answer to a request when it comes; None: nobody waits for one."""
        if request is not None:
            self._of[request] = None

    def keep(self, answer: Answer) -> None:
        """Keep an answer, if it is expected; the first one counts."""
        if answer.request in self._of and self._of[answer.request] is None:
            self._of[answer.request] = answer

    def while_starting(self, request: Request) -> None:
        """Answer a request to a job that has not begun: it can only be cancelled."""
        if isinstance(request, CancelJob):
            self.cancel(request)
        else:
            self.keep(Answer(request.request, "the job is starting", refused=True))

    def cancel(self, request: CancelJob) -> None:
        # First the answer: who polls `is_cancelled` looks for the answer once more, and then never again.
        self.keep(Answer(request.request, "the job ends, and publishes nothing"))
        self.is_cancelled = True

    def answers(self, requests: Sequence[int]) -> list[Answer]:
        return [answer for request in requests if (answer := self._of.get(request)) is not None]

    def forget(self, requests: Sequence[int]) -> None:
        """Whoever asked has these answers."""
        for request in requests:
            self._of.pop(request, None)

    def refuse(self, why: str) -> None:
        for request in [request for request, answer in self._of.items() if answer is None]:
            self.keep(Answer(request, why, refused=True))

    def close(self, why: str) -> None:
        """Refuse what is not answered, and wait until all answers have arrived, or nobody seems to come for them."""
        self.refuse(why)
        until = time.monotonic() + _CLOSE_SECONDS
        while self._of and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)


@dataclass(frozen=True)
class Polled:
    """What is new of a job.

    Attributes:
        is_cancelled: whether it is to end without a result.
        snapshot: statistics, without their history unless the job has failed; None: it has not begun.
        warnings: those that have come since the last poll.
        processes: where all tasks are that there are.
        error: why the job has failed; None: it has not.
        death: the death that was the cause of that; None: there was another one.
        commits: epochs whose results the driver is to commit.
    """

    is_cancelled: bool
    snapshot: Snapshot | None = None
    warnings: Sequence[str] = ()
    processes: Mapping[Address, TaskProcess] = field(default_factory=dict)
    error: str | None = None
    death: Death | None = None
    commits: Sequence[Commit] = ()
