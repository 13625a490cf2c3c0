"""When the adaptive balancer acts and when it keeps still, report by report and in a closed loop."""

from dataclasses import replace

import numpy as np
import pytest
from fluid_loop import FluidLoop, zipf

from dpa.balance.adaptive.demand import Demand
from dpa.balance.adaptive.policy import AdaptivePolicy
from dpa.balance.decision import Outcome
from dpa.balance.options import AdaptiveOptions
from dpa.errors import BalanceError
from dpa.measure.load import Load, TokenLoad
from dpa.routing.assignment import KeySplit
from dpa.routing.change import TableChange

EVEN = [1000.0] * 4


def balancer_of(reducers: int = 4) -> AdaptivePolicy:
    made = AdaptiveOptions().policy(reducers)
    assert isinstance(made, AdaptivePolicy)
    return made


def load_of(balancer: AdaptivePolicy, reducer: int, queue: int, *, version: int | None = None, **more: int) -> Load:
    """A queue that lies evenly on the reducer's tokens."""
    table = balancer.table
    tokens = table.positions[table.sole_owners == reducer]
    each = np.full(len(tokens), queue / len(tokens))
    measured = TokenLoad(tokens, each, np.zeros(len(tokens)))
    return Load(queue, table.version if version is None else version, 0.001, 1000.0, by_token=measured, **more)


def report_all(balancer: AdaptivePolicy, queues: list[int], now: float, **more: int) -> list[Outcome]:
    decisions = [
        balancer.report(reducer, load_of(balancer, reducer, queue, **more), now) for reducer, queue in enumerate(queues)
    ]
    return [decision.outcome for decision in decisions if decision is not None]


def test_it_looks_once_all_have_reported_under_the_newest_table() -> None:
    balancer = balancer_of()
    assert report_all(balancer, [4000, 0, 0], 0.0) == []
    assert report_all(balancer, [4000, 0, 0, 0], 1.0) == [Outcome.APPLIED]
    assert balancer.table.version == 1
    assert report_all(balancer, [4000, 0, 0, 0], 1.6, version=0) == []


def test_it_does_not_look_twice_within_the_check_time() -> None:
    balancer = balancer_of()
    assert report_all(balancer, [100] * 4, 0.0) == []
    assert report_all(balancer, [100] * 4, 0.6) == [Outcome.BELOW_THRESHOLD]
    assert report_all(balancer, [4000, 0, 0, 0], 0.8) == []


def test_records_between_two_reducers_are_waited_for() -> None:
    balancer = balancer_of()
    report_all(balancer, [100] * 4, 0.0)
    assert report_all(balancer, [4000, 0, 0, 0], 1.0, forwarded_out=400) == [Outcome.COOL_DOWN]


def test_a_reducer_that_does_not_report_is_given_nothing() -> None:
    """A reducer that had long said nothing, its code holding the interpreter, counted as idle and was given work."""
    balancer = balancer_of()
    before = balancer.table
    for now in (0.0, 1.0):
        report_all(balancer, [4000, 0, 0], now)
    assert report_all(balancer, [4000, 0, 0], 3.0) == [Outcome.APPLIED]
    gained = balancer.table.owners_of(before.positions - np.uint32(1)) != before.owners_of(
        before.positions - np.uint32(1)
    )
    assert gained.any()
    assert 3 not in balancer.table.owners_of(before.positions[gained] - np.uint32(1)).tolist()


@pytest.mark.parametrize(("known", "ends"), [(range(4), True), (range(3), False)])
def test_a_key_is_not_unsplit_while_one_of_its_reducers_does_not_report(known: range, ends: bool) -> None:
    """Its part was taken for next to nothing, and it could be given the rest."""
    balancer = balancer_of()
    split = KeySplit((3, 0), (0.9, 0.1), (1.0, 0.0), since=0)
    first = balancer.table
    change = TableChange.of(first, {int(first.positions[7]): split})
    balancer.table = replace(change.apply(first), version=0)
    for look in range(12):
        for reducer in known:
            load = load_of(balancer, reducer, 100)
            assert load.by_token is not None
            arriving = replace(load.by_token, rates=load.by_token.queued)
            balancer.report(reducer, replace(load, by_token=arriving), 3.0 * look)
    assert (not balancer.table.splits) is ends


def test_a_reducer_that_is_asked_to_be_relieved_is_brought_to_the_mean() -> None:
    balancer = balancer_of()
    report_all(balancer, [1000, 900, 900, 900], 0.0)
    decision = balancer.redistribute(0, 0.1)
    assert decision.outcome is Outcome.APPLIED
    assert decision.moved == pytest.approx(75 / 3700, abs=0.01)
    with pytest.raises(BalanceError, match="no reducer 4"):
        balancer.redistribute(4, 0.1)


def test_to_relieve_a_reducer_of_which_nothing_is_known_is_refused() -> None:
    decision = balancer_of().redistribute(0, 0.0)
    assert decision.outcome is Outcome.NO_TARGET
    assert "has not reported" in decision.reason


def test_the_demand_names_reducers_that_have_not_reported() -> None:
    balancer = balancer_of()
    assert Demand.of(balancer.table, {0: load_of(balancer, 0, 10)}, 1.0).unreported == {1, 2, 3}


# --- the closed loop


def hot(share: float, total: float = 3400, keys: int = 60) -> np.ndarray:
    rates = zipf(keys, 0.3, total * (1 - share))
    rates[0] += share * total
    return rates


def test_balanced_load_however_noisy_is_left_alone() -> None:
    rates = zipf(60, 0.0, 2000)
    assert FluidLoop(lambda now: rates, EVEN, noise=0.3).run(5).applied == []


def test_a_hot_key_is_split_once_and_then_all_is_still() -> None:
    rates = hot(0.6)
    loop = FluidLoop(lambda now: rates, EVEN).run(10)
    assert len(loop.applied) == 1
    assert 3 <= len(loop.owners_of(0)) <= 4
    assert max(loop.worst[-40:]) < 0.3


@pytest.mark.parametrize("total", [3400.0, 800.0])
def test_a_key_is_unsplit_once_it_is_below_the_threshold(total: float) -> None:
    """With hardly anything queued the balancer did not look at all, and the key stayed split for good."""
    first, then = hot(0.6), zipf(60, 0.3, total)
    loop = FluidLoop(lambda now: first if now < 3 else then, EVEN).run(12)
    assert len(loop.owners_of(0)) == 1
    assert loop.balancer.table.splits == {}


def test_a_key_with_everything_keeps_all_reducers_busy() -> None:
    rates = np.array([20_000.0])
    loop = FluidLoop(lambda now: rates, EVEN, limit=4000).run(10)
    assert loop.owners_of(0) != (0,)
    assert loop.done.sum() > 0.9 * 10 * sum(EVEN)
    assert len(loop.applied) <= 6


def test_unequal_reducers_get_what_they_can_do() -> None:
    rates = zipf(60, 1.0, 3600)
    loop = FluidLoop(lambda now: rates, [2000.0, 1000.0, 500.0, 500.0]).run(10)
    assert len(loop.applied) <= 4
    assert max(loop.worst[-40:]) < 0.4
