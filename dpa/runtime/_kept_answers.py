"""The answers to requests that a job has been asked, until who asked fetches them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dpa.protocol.wire.instructions import Answer

TOO_LATE, RESTARTED = "the job has ended before that", "the job was restarted"
"""Why requests are refused that a job, or a generation of it, had not answered when it ended."""

_CLOSE_SECONDS, _LOOK_SECONDS = 3.0, 0.05
"""How long a job that has ended keeps answers that nobody fetches, and how often it looks whether there are any."""


class KeptAnswers:
    """Knows the requests that are not answered, or whose answers are not fetched; used from several threads."""

    def __init__(self) -> None:
        self._of: dict[int, Answer | None] = {}

    def expect(self, request: int | None) -> None:
        """Keep the answer to a request when it comes; None: nobody waits for one."""
        if request is not None:
            self._of[request] = None

    def keep(self, answer: Answer) -> None:
        """Keep an answer, if it is expected; the first one counts."""
        if answer.request in self._of and self._of[answer.request] is None:
            self._of[answer.request] = answer

    def fetched(self, requests: Sequence[int]) -> list[Answer]:
        """The answers to these requests, as far as there are any; each is given once."""
        found = {request: answer for request in requests if (answer := self._of.get(request)) is not None}
        for request in found:
            del self._of[request]
        return list(found.values())

    def refuse(self, why: str) -> None:
        """Refuse what is not answered."""
        for request in [request for request, answer in self._of.items() if answer is None]:
            self.keep(Answer(request, why, refused=True))

    def close(self, why: str) -> None:
        """Refuse what is not answered, and wait until all is fetched and on its way, or nobody seems to come for it."""
        self.refuse(why)
        until = time.monotonic() + _CLOSE_SECONDS
        was_fetched = not self._of
        while not was_fetched and time.monotonic() < until:
            was_fetched = not self._of
            time.sleep(_LOOK_SECONDS)
