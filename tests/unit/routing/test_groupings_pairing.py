"""Consistent grouping beyond its choices: who gives virtual workers to whom, and in what shares they end."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpa.routing.groupings.base import CapacityRequest, Signal
from dpa.routing.groupings.bounded import PooledChoicesGrouping, RandomChoicesGrouping
from dpa.routing.groupings.by_capacity import ConsistentGrouping, PairingQueues, apportion, reassign

DECREASE, INCREASE, KEEP = CapacityRequest.DECREASE, CapacityRequest.INCREASE, CapacityRequest.KEEP
requests = st.sampled_from([DECREASE, INCREASE, KEEP])


class PlainQueues:
    """Two lists. A reducer is in one of them at most, and keeps its place for as long as it requests the same."""

    def __init__(self) -> None:
        self.busy: list[int] = []
        self.idle: list[int] = []

    def pair(self, reducer: int, request: CapacityRequest, held: list[int]) -> tuple[int, int] | None:
        for queue, same in ((self.busy, DECREASE), (self.idle, INCREASE)):
            if reducer in queue and request is not same:
                queue.remove(reducer)
        if request is DECREASE and held[reducer] > 1:
            if self.idle:
                if reducer in self.busy:
                    self.busy.remove(reducer)
                return reducer, self.idle.pop(0)
            self.busy += [reducer] * (reducer not in self.busy)
        elif request is DECREASE and reducer in self.busy:
            self.busy.remove(reducer)
        elif request is INCREASE:
            self.busy = [other for other in self.busy if held[other] > 1]
            if self.busy:
                if reducer in self.idle:
                    self.idle.remove(reducer)
                return self.busy.pop(0), reducer
            self.idle += [reducer] * (reducer not in self.idle)
        return None


@given(st.lists(st.tuples(st.integers(0, 4), requests), max_size=60), st.integers(1, 3))
def test_pairing_is_first_come_first_served_with_none_twice(
    asked: list[tuple[int, CapacityRequest]], each: int
) -> None:
    queues, plain, held = PairingQueues(), PlainQueues(), [each] * 5
    for reducer, request in asked:
        found = queues.pair(reducer, request, lambda giver: held[giver] > 1)
        assert found == plain.pair(reducer, request, held)
        assert not set(plain.busy) & set(plain.idle)
        if found is not None:
            giver, taker = found
            assert giver != taker
            held[giver] -= 1
            held[taker] += 1
        assert min(held) >= 1


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=12).filter(any), st.integers(0, 200))
@example([3.0, 1.0, 50.0, 7.0], 57)  # shares that fit already stay
def test_parts_are_apportioned_by_weight_at_least_one_each(weights: list[float], more: int) -> None:
    parts = len(weights) + more
    shares = apportion(np.array(weights), parts)
    assert shares.sum() == parts
    assert shares.min() >= 1
    by_weight = np.argsort(weights, kind="stable")
    assert (np.diff(shares[by_weight]) >= -1).all()
    exact = np.array(weights) / sum(weights) * parts
    if (exact >= 1).all():
        assert np.abs(shares - exact).max() < 1


@given(st.data())
def test_reassigning_moves_no_more_than_it_must_and_the_highest_numbers_first(data: st.DataObject) -> None:
    wanted = np.array(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=6)))
    owned, parts = st.integers(0, len(wanted) - 1), int(wanted.sum())
    before = np.array(data.draw(st.lists(owned, min_size=parts, max_size=parts)))
    after = before.copy()
    moved = reassign(after, wanted)
    assert np.bincount(after, minlength=len(wanted)).tolist() == wanted.tolist()
    changed = np.flatnonzero(before != after)
    assert sorted(moved.tolist()) == changed.tolist()
    surplus = np.bincount(before, minlength=len(wanted)) - wanted
    assert len(moved) == surplus[surplus > 0].sum()
    for reducer in range(len(wanted)):
        kept, gone = np.flatnonzero((before == reducer) & (after == reducer)), changed[before[changed] == reducer]
        assert not len(kept) or not len(gone) or kept.max() < gone.min()


def consistent(reducers: int, each: int, *, proportional: bool = False) -> ConsistentGrouping:
    return ConsistentGrouping(reducers, RandomChoicesGrouping(reducers * each), proportional=proportional)


@given(
    st.booleans(),
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(-1, 30), st.floats(0, 50), requests, st.integers(0, 10**9)),
        max_size=80,
    ),
    st.integers(1, 5),
)
def test_virtual_workers_are_conserved_and_everybody_keeps_one(
    proportional: bool, signals: list[tuple[int, int, float, CapacityRequest, int]], each: int
) -> None:
    grouping = consistent(4, each, proportional=proportional)
    for reducer, slot, utilisation, request, records in signals:
        before = grouping.virtual_workers
        moved = grouping.moved
        grouping.observe(reducer, Signal(slot, utilisation, request, records))
        assert sum(grouping.virtual_workers) == 4 * each
        assert min(grouping.virtual_workers) >= 1
        gains = sum(max(0, now - then) for now, then in zip(grouping.virtual_workers, before, strict=True))
        assert grouping.moved - moved == gains <= (4 * each if proportional else 1)


def test_the_virtual_worker_gained_last_goes_first() -> None:
    grouping = consistent(3, 2)
    assert grouping._owners.tolist() == [0, 0, 1, 1, 2, 2]
    for slot, giver, taker in ((1, 0, 1), (2, 2, 1), (3, 1, 0), (4, 1, 2)):
        grouping.observe(giver, Signal(slot, 1.0, DECREASE))
        grouping.observe(taker, Signal(slot, 0.1, INCREASE))
        grouping.observe(3 - giver - taker, Signal(slot, 0.8, KEEP))
    assert grouping._owners.tolist() == [0, 2, 1, 1, 2, 0]
    assert grouping.moved == 4


def utilisations(grouping: ConsistentGrouping, capacities: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """What each reducer would measure if every virtual worker brought the same work."""
    held = np.array(grouping.virtual_workers)
    return held / capacities * capacities.sum() / held.sum() * 0.8


def slot_passes(grouping: ConsistentGrouping, slot: int, measured: npt.NDArray[np.float64]) -> int:
    """The number of virtual workers that move when every reducer reports its measurement of a slot."""
    before = grouping.moved
    for reducer, utilisation in enumerate(measured.tolist()):
        request = DECREASE if utilisation > 0.9 else INCREASE if utilisation < 0.75 else KEEP
        grouping.observe(reducer, Signal(slot, utilisation, request, round(1_000 * grouping.virtual_workers[reducer])))
    return grouping.moved - before


@pytest.mark.parametrize(("fast", "speed"), [(3, 5), (5, 4), (2, 10)])
@pytest.mark.parametrize("each", [10, 100])
def test_one_step_gives_each_reducer_its_share_and_then_nothing_moves(fast: int, speed: int, each: int) -> None:
    capacities = np.array([speed] * fast + [1] * (10 - fast), dtype=float)
    grouping = consistent(10, each, proportional=True)
    slot_passes(grouping, 0, utilisations(grouping, capacities))
    due = capacities / capacities.sum() * 10 * each
    assert np.abs(np.array(grouping.virtual_workers) - due).max() < 1
    moved = grouping.moved
    assert moved == sum(held - each for held in grouping.virtual_workers if held > each)
    for slot in range(1, 51):
        slot_passes(grouping, slot, utilisations(grouping, capacities))
    assert grouping.moved == moved


@pytest.mark.parametrize("proportional", [True, False])
def test_pooled_virtual_workers_get_what_their_reducer_is_due_once_they_have_moved(proportional: bool) -> None:
    grouping = ConsistentGrouping(3, PooledChoicesGrouping(60), proportional=proportional)
    stream = np.random.default_rng(5).integers(0, 2**32, 30_000, dtype=np.uint32)
    assert np.bincount(grouping.choose(stream)).max() <= 10_000 * 1.01 + 1
    if proportional:
        slot_passes(grouping, 0, utilisations(grouping, np.array([4.0, 1.0, 1.0])))
    else:
        for slot in range(20):
            slot_passes(grouping, slot, np.array([0.5, 1.5, 0.8] if slot % 2 else [0.5, 0.8, 1.5]))
    assert grouping.virtual_workers == (40, 10, 10)
    found = np.bincount(grouping.choose(stream))
    assert np.all(found <= np.array([20_000, 5_000, 5_000]) * 1.01 + 0.01 * 3_000 + 1)


@pytest.mark.parametrize(("fast", "speed"), [(10, 1), (3, 5), (5, 4), (2, 10)])
@pytest.mark.parametrize("each", [10, 100])
def test_noise_in_what_is_measured_does_not_keep_virtual_workers_moving(fast: int, speed: int, each: int) -> None:
    capacities, random = np.array([speed] * fast + [1] * (10 - fast), dtype=float), np.random.default_rng(5)
    grouping = consistent(10, each, proportional=True)
    moves = [
        slot_passes(grouping, slot, utilisations(grouping, capacities) * random.normal(1, 0.01, 10))
        for slot in range(50)
    ]
    assert sum(moves[3:]) == 0
    due = capacities / capacities.sum() * 10 * each
    assert (np.abs(np.array(grouping.virtual_workers) - due) <= np.maximum(1, 0.05 * due)).all()


def test_virtual_workers_are_levelled_once_all_have_reported_a_new_slot_also_one_without_records() -> None:
    grouping = consistent(3, 20, proportional=True)
    for reducer, slot in ((0, 1), (1, 1), (0, 2), (1, 2)):
        grouping.observe(reducer, Signal(slot, (0.5, 1.0)[reducer], KEEP, 1_000))
        assert grouping.moved == 0
    grouping.observe(2, Signal(1, 1.0, KEEP, 1_000))
    assert grouping.virtual_workers == (30, 15, 15)
    grouping.observe(0, Signal(3, 1.0, KEEP, 1_000))
    assert grouping.virtual_workers == (30, 15, 15)
    # who had no records counts as able to do what others can
    grouping = consistent(3, 20, proportional=True)
    for reducer, (utilisation, records) in enumerate(((0.5, 1_000), (1.0, 1_000), (0.0, 0))):
        grouping.observe(reducer, Signal(1, utilisation, KEEP, records))
    assert grouping.virtual_workers == (27, 13, 20)


@pytest.mark.parametrize("least", [5e-324, 1e-300, 1e300])
def test_utilisations_at_the_end_of_the_numbers_do_no_harm_and_reducers_start_with_equally_many(least: float) -> None:
    grouping = consistent(2, 30, proportional=True)
    slot_passes(grouping, 0, np.array([2.0, 1.0]) * least)
    assert grouping.virtual_workers == (20, 40)
    with pytest.raises(ValueError, match="equal parts"):
        ConsistentGrouping(3, RandomChoicesGrouping(10))
