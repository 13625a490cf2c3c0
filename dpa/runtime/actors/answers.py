"""What a job on Ray answers: requests, whose calls wait for it, and the driver, which polls."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from dpa.protocol.plan import CancelJob, Request
from dpa.protocol.recovery import Death
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.instructions import Answer, Commit
from dpa.protocol.wire.metrics import Snapshot
from dpa.protocol.wire.nodes import TaskProcess

TOO_LATE, RESTARTED = "the job has ended before that", "the job was restarted"
"""Why requests are refused that a job, or a generation of it, had not answered when it ended."""


class PendingRequests:
    """The requests that are not answered yet, in all generations of a job; used from several threads.

    Attributes:
        is_cancelled: whether the job is to end without a result.
    """

    def __init__(self) -> None:
        self.is_cancelled = False
        self._of: dict[int | None, Future[Answer]] = {}
        self._is_over = ""

    def expect(self, request: int | None) -> Future[Answer] | None:
        """The answer to a request, when it comes; None: nobody waits for one."""
        expected = None if request is None else self._of.setdefault(request, Future())
        if self._is_over:
            self.refuse(self._is_over)
        return expected

    def keep(self, answer: Answer) -> None:
        """Give an answer to whoever expects it; the first one counts."""
        if (expected := self._of.pop(answer.request, None)) is not None:
            expected.set_result(answer)

    def while_starting(self, request: Request) -> None:
        """Answer a request to a job that has not begun: it can only be cancelled."""
        if isinstance(request, CancelJob):
            self.cancel(request)
        else:
            self.keep(Answer(request.request, "the job is starting", refused=True))

    def cancel(self, request: CancelJob) -> None:
        self.keep(Answer(request.request, "the job ends, and publishes nothing more"))
        self.is_cancelled = True

    def close(self, why: str) -> None:
        """Refuse all requests, and those that come later."""
        self._is_over = why
        self.refuse(why)

    def refuse(self, why: str) -> None:
        for request in [*self._of]:
            self.keep(Answer(request, why, refused=True))


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
