"""Answers that wait for who asked."""

from __future__ import annotations

import pytest

from dpa.protocol.wire.instructions import Answer
from dpa.runtime import _answers as module
from dpa.runtime._answers import KeptAnswers


def test_an_answer_is_given_once_to_who_expects_it() -> None:
    kept = KeptAnswers()
    kept.expect(1)
    assert kept.fetched([1]) == []
    for number in (1, 2, None):
        kept.keep(Answer(number, "done"))
    assert kept.fetched([1, 2]) == [Answer(1, "done")]
    assert kept.fetched([1, 2]) == []


def test_a_job_that_ends_refuses_what_it_has_not_answered_and_waits_until_all_is_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept, found = KeptAnswers(), list[Answer]()
    for number in (1, 2):
        kept.expect(number)
    kept.keep(Answer(1, "done"))
    monkeypatch.setattr(module.time, "sleep", lambda seconds: found.extend(kept.fetched([1, 2])))
    kept.close("it is over")
    assert found == [Answer(1, "done"), Answer(2, "it is over", refused=True)]
