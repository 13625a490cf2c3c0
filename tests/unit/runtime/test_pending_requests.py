"""Requests that wait for their answers."""

from __future__ import annotations

from dpa.protocol.wire.instructions import Answer
from dpa.runtime.actors.answers import PendingRequests


def test_who_expects_an_answer_has_the_first_one_and_a_job_that_ends_refuses_the_others() -> None:
    requests = PendingRequests()
    one, two = requests.expect(1), requests.expect(2)
    assert one is not None and two is not None and requests.expect(None) is None
    for number in (1, None, 3):
        requests.keep(Answer(number, "done"))
    requests.keep(Answer(1, "done again"))
    assert one.result(0) == Answer(1, "done") and not two.done()
    requests.refuse("it is over")
    assert two.result(0) == Answer(2, "it is over", refused=True)
