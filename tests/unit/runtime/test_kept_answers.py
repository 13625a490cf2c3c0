"""Answers that wait for who asked."""

from __future__ import annotations

import pytest

from dpa.protocol.wire.instructions import Answer
from dpa.runtime.actors import answers as module
from dpa.runtime.actors.answers import PendingRequests


def test_an_answer_is_kept_for_who_expects_it_until_it_has_arrived() -> None:
    kept = PendingRequests()
    kept.expect(1)
    assert kept.answers([1]) == []
    for number in (1, 2, None):
        kept.keep(Answer(number, "done"))
    for _ in range(2):
        assert kept.answers([1, 2]) == [Answer(1, "done")]
    kept.forget([1, 2])
    assert kept.answers([1, 2]) == []


def test_a_job_that_ends_refuses_what_it_has_not_answered_and_waits_until_all_have_arrived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept, found = PendingRequests(), list[Answer]()
    for number in (1, 2):
        kept.expect(number)
    kept.keep(Answer(1, "done"))

    def sleep(seconds: float) -> None:
        if found:  # they are still on their way
            kept.forget([answer.request for answer in found if answer.request is not None])
        found.extend(kept.answers([1, 2]))

    monkeypatch.setattr(module.time, "sleep", sleep)
    kept.close("it is over")
    assert found == [Answer(1, "done"), Answer(2, "it is over", refused=True)]
