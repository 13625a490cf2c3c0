"""Which relay a task has, and when it passes on what it has gathered."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.relays import RELAYED_TASKS, Bundling, relay_of, relays_for

STAGES = ("read", "pass", "sum")


def test_a_job_of_few_tasks_has_no_relays_and_one_of_many_has_as_many_tasks_at_each() -> None:
    assert relays_for(RELAYED_TASKS) == 0
    assert relay_of(Address("sum", 3), 0) is None
    relays = relays_for(3 * 256)
    found = Counter(relay_of(Address(stage, index), relays) for stage in STAGES for index in range(256))
    assert found == dict.fromkeys(range(relays), 3 * 256 // relays)
    assert relays_for(RELAYED_TASKS + 1) == 1
    assert relay_of(COORDINATOR, relays) is None and relay_of(BALANCER, relays) is None


@given(st.lists(st.floats(0, 10, allow_nan=False), min_size=1, max_size=200).map(sorted))
def test_what_comes_is_soon_on_its_way_in_few_bundles(times: list[float]) -> None:
    bundling, passed = Bundling(), []
    for at in times:
        if not passed or passed[-1] < at:
            passed.append(bundling.due(at))
        assert at <= passed[-1] <= at + 0.0401, "no message waits for longer than from one bundle to the next"
    assert all(after - before >= 0.0399 for before, after in pairwise(passed))
    assert passed[0] <= times[0] + 0.0051, "what comes after a while of silence goes soon"
