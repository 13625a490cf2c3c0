"""Arcs that several reducers share: what a table says of them, how records are dealt, and that few move."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from builders import seeds, spreads, tables
from hypothesis import given
from hypothesis import strategies as st

from dpa.routing.spreader import Spreader
from dpa.routing.table import RoutingTable, Spread

LAST = 2**32 - 1
SPREAD = Spread((2, 0), (0.25, 0.75), (1.0, 0.0), since=1)
BOUND = 2
"""How far what a reducer was dealt is from its weight of all: fewer records than this, whatever the batches."""


def hashes(*some: int) -> np.ndarray:
    return np.array(some, dtype=np.uint32)


def one_hash_spread(hashed: int) -> RoutingTable:
    """Reducer 1 has all of the circle but one hash, which is spread."""
    of_token = {hashed: 1, (hashed + 1) % 2**32: 3}
    places = np.array([of_token[position] for position in sorted(of_token)], dtype=np.int32)
    return RoutingTable(1, hashes(*sorted(of_token)), places, 3, 0, (SPREAD,))


# --- tables


@pytest.mark.parametrize("hashed", [0, 1, 2**16 - 1, 2**16, 2**31, LAST - 1, LAST])
@pytest.mark.parametrize("copies", [1, 2_000], ids=["few", "many"])
def test_an_arc_may_be_of_a_single_hash(hashed: int, copies: int) -> None:
    table = pickle.loads(pickle.dumps(one_hash_spread(hashed)))
    around = np.tile(hashes((hashed - 1) % 2**32, hashed, (hashed + 1) % 2**32), copies)
    assert table.places_of(around).tolist() == [1, 3, 1] * copies
    assert table.owners_of(around).tolist() == [1, 2, 1] * copies
    assert [table.may_process(reducer, around)[:3].tolist() for reducer in range(3)] == [
        [False, True, False],
        [True, False, True],
        [False, True, False],
    ]


@given(tables(), st.lists(seeds, max_size=20))
def test_a_large_column_has_the_places_of_its_hashes_one_by_one(table: RoutingTable, some: list[int]) -> None:
    edges = [*table.positions.tolist(), *some, 0, LAST]
    around = hashes(*((edge + step) % 2**32 for edge in edges for step in (-1, 0, 1)))
    large = np.resize(around, 4_096)
    assert np.array_equal(table.places_of(large), np.resize(table.places_of(around), 4_096))


@given(tables(), st.lists(seeds, max_size=20))
def test_the_first_reducer_of_a_spread_owns_it_and_each_of_them_may_process_it(table, some: list[int]) -> None:
    wanted = hashes(*some, *table.positions.tolist())
    allowed = [table.may_process(reducer, wanted) for reducer in range(table.reducers)]
    for index, (place, owner) in enumerate(zip(table.places_of(wanted), table.owners_of(wanted), strict=True)):
        spread = table.spread_at(int(place))
        sharing = spread.reducers if spread else (int(place),)
        assert owner == sharing[0]
        assert [reducer for reducer in range(table.reducers) if allowed[reducer][index]] == sorted(sharing)


# --- spreads


@pytest.mark.parametrize(
    ("reducers", "weights", "before"),
    [
        ((0,), (1.0,), (1.0,)),
        ((0, 0), (0.5, 0.5), (1.0, 0.0)),
        ((0, 1), (1.0, 0.0), (1.0, 0.0)),
        ((0, 1), (0.5, 0.6), (1.0, 0.0)),
        ((0, 1), (1.0,), (1.0, 0.0)),
        ((0, 1), (float("nan"), 0.5), (1.0, 0.0)),
        ((0, 1), (0.5, 0.5), (1.0,)),
        ((0, 1), (0.5, 0.5), (1.5, -0.5)),
        ((0, 1), (0.5, 0.5), (1.0, 1.0)),
    ],
)
def test_a_spread_that_makes_no_sense_is_refused(reducers, weights, before) -> None:
    with pytest.raises(ValueError, match="a spread needs"):
        Spread(reducers, weights, before, since=1)


@given(spreads(5), st.integers(0, 5))
def test_records_that_are_dealt_anew_go_to_those_that_gain_and_no_more_of_them_than_must(spread, at: int) -> None:
    dealt = spread.weights_at(at)
    assert sum(dealt) == pytest.approx(1)
    assert min(dealt) >= 0
    if at not in spread.reducers:
        assert dealt == spread.weights
        return
    own = spread.reducers.index(at)
    old, new = spread.before[own], spread.weights[own]
    assert dealt[own] == pytest.approx(min(1, new / old) if old else 1)
    for index, share in enumerate(dealt):
        assert share == 0 or index == own or spread.weights[index] > spread.before[index]


@given(spreads(5))
def test_after_dealing_anew_each_reducer_has_its_new_share_of_what_was_there(spread: Spread) -> None:
    if sum(spread.before) < 1 - 1e-9:
        return  # others had some of it, whose deals are their own
    after = np.zeros(len(spread.reducers))
    for reducer, share in zip(spread.reducers, spread.before, strict=True):
        after += share * np.array(spread.weights_at(reducer))
    assert after.tolist() == pytest.approx(spread.weights)


def test_a_share_that_shrinks_by_rounding_alone_moves_nothing() -> None:
    spread = Spread((0, 1), (0.3, 0.7), (0.3, 0.7000000000000001), since=2)
    assert spread.weights_at(1) == (0.0, 1.0)


# --- dealing

batches = st.lists(st.one_of(st.integers(0, 3), st.integers(0, 10**6)), max_size=60)


@given(spreads(6), st.one_of(st.none(), st.integers(0, 6)), batches, st.integers(0, 99))
def test_over_any_batches_each_reducer_is_dealt_its_weight_of_the_records_give_or_take_two(
    spread: Spread, at: int | None, sizes: list[int], seed: int
) -> None:
    weights = np.array(spread.weights if at is None else spread.weights_at(at))
    spreader, total = Spreader(seed), np.zeros(len(weights))
    for records in sizes:
        dealt = spreader.deal(spread, records, at)
        assert dealt.sum() == records and dealt.min() >= 0
        assert not dealt[weights == 0].any()
        total += dealt
    assert np.abs(total - weights * sum(sizes)).max() < BOUND


def test_weights_that_add_up_to_almost_one_stay_right_over_a_billion_records() -> None:
    """What they lacked or had too much was carried from deal to deal, and given back record by record."""
    weights = np.array([0.1, 0.2, 0.7])
    for error in (-9e-7, 9e-7):
        spread = Spread((0, 1, 2), tuple(weights * (1 + error)), (1.0, 0.0, 0.0), 1)
        spreader, total = Spreader(), np.zeros(3)
        for _ in range(1_000):
            total += spreader.deal(spread, 10**6)
        assert np.abs(total - weights * 10**9).max() < BOUND


@pytest.mark.parametrize("reducers", [2, 17, 100])
def test_senders_of_single_records_spread_them_evenly_too(reducers: int) -> None:
    random = np.random.default_rng(reducers)
    weights = random.dirichlet(np.full(reducers, 0.3)) + 1e-6
    weights /= weights.sum()
    spread = Spread(tuple(range(reducers)), tuple(weights), (1.0, *[0.0] * (reducers - 1)), 1)
    spreader, total = Spreader(), np.zeros(reducers)
    for sent in range(1, 1_001):
        total += spreader.deal(spread, 1)
        assert np.abs(total - weights * sent).max() < BOUND


def dealt_singly(seed: int, records: int = 8) -> list[int]:
    spread = Spread((0, 1, 2, 3), (0.25,) * 4, (1.0, 0.0, 0.0, 0.0), since=1)
    spreader = Spreader(seed)
    return [int(spreader.deal(spread, 1).argmax()) for _ in range(records)]


def test_one_sender_deals_the_same_in_every_run_and_senders_start_differently() -> None:
    assert dealt_singly(3) == dealt_singly(3)
    assert {dealt_singly(seed)[0] for seed in range(20)} == {0, 1, 2, 3}


def test_a_deal_of_a_spread_that_is_gone_is_forgotten_and_one_that_stays_goes_on() -> None:
    going, staying = SPREAD, Spread((0, 1), (0.5, 0.5), (1.0, 0.0), since=1)
    forgetful, mindful = Spreader(5), Spreader(5)
    for spreader in (forgetful, mindful):
        spreader.deal(going, 1)
        spreader.deal(staying, 1)
    forgetful.forget((staying,))
    assert forgetful.deal(staying, 1).tolist() == mindful.deal(staying, 1).tolist()
    assert forgetful.deal(going, 1).tolist() == Spreader(5).deal(going, 1).tolist()
