"""Keys that are split over several reducers: what a table says of them, how records are distributed, and that few
move."""

import pickle

import numpy as np
import pytest
from builders import assignments_of, key_splits, seeds, tables
from hypothesis import example, given
from hypothesis import strategies as st

from dpa.routing.assignment import Assignment, Distributor, KeySplit, Single
from dpa.routing.table import RoutingTable

LAST = 2**32 - 1
SPLIT = KeySplit((2, 0), (0.25, 0.75), (1.0, 0.0), since=1)
BOUND = 2
"""The records of a reducer differ from its weight of all by fewer than this, whatever the batches."""


def hashes(*some: int) -> np.ndarray:
    return np.array(some, dtype=np.uint32)


def one_hash_split(hashed: int) -> RoutingTable:
    """Reducer 1 has all of the circle but one hash, which is split."""
    of_token = {hashed: 0, (hashed + 1) % 2**32: 1}
    assigned = np.array([of_token[position] for position in sorted(of_token)], dtype=np.int32)
    return RoutingTable(1, hashes(*sorted(of_token)), assigned, (Single(1), SPLIT), 3)


@pytest.mark.parametrize("hashed", [0, 1, 2**16 - 1, 2**16, 2**31, LAST - 1, LAST])
@pytest.mark.parametrize("copies", [1, 2_000], ids=["few", "many"])
def test_an_arc_may_be_of_a_single_hash(hashed: int, copies: int) -> None:
    table = pickle.loads(pickle.dumps(one_hash_split(hashed)))
    around = np.tile(hashes((hashed - 1) % 2**32, hashed, (hashed + 1) % 2**32), copies)
    assert [table.assignment_of(one) for one in around[:3].tolist()] == [Single(1), SPLIT, Single(1)]
    owners, [(split, rows)] = table.resolve(around)
    assert (owners.tolist(), split, rows.tolist()) == ([1, 2, 1] * copies, SPLIT, list(range(1, 3 * copies, 3)))
    assert table.owners_of(around).tolist() == owners.tolist()
    assert [table.may_process(reducer, around)[:3].tolist() for reducer in range(3)] == [
        [False, True, False],
        [True, False, True],
        [False, True, False],
    ]


@given(tables(), st.lists(seeds, max_size=20))
def test_a_large_column_is_resolved_as_its_hashes_one_by_one(table: RoutingTable, some: list[int]) -> None:
    edges = [*table.positions.tolist(), *some, 0, LAST]
    around = hashes(*((edge + step) % 2**32 for edge in edges for step in (-1, 0, 1)))
    large = np.resize(around, 4_096)
    assert resolved(table, large) == [table.assignment_of(one) for one in large.tolist()]


def resolved(table: RoutingTable, some: np.ndarray) -> list[Assignment]:
    """The assignment of each hash as `resolve` gives it."""
    owners, splits = table.resolve(some)
    found: list[Assignment] = [Single(owner) for owner in owners.tolist()]
    for split, rows in splits:
        assert set(owners[rows].tolist()) == {split.reducers[0]}
        for row in rows.tolist():
            found[row] = split
    return found


@given(tables(), st.lists(seeds, max_size=20))
def test_of_a_split_token_the_first_is_the_owner_and_all_may_process_it(table: RoutingTable, some: list[int]) -> None:
    for token, (assignment, sole) in enumerate(zip(assignments_of(table), table.sole_owners.tolist(), strict=True)):
        assert table.splits.get(token) == (assignment if isinstance(assignment, KeySplit) else None)
        assert sole < 0 if token in table.splits else assignment == Single(sole)
    wanted = hashes(*some, *table.positions.tolist())
    allowed = [table.may_process(reducer, wanted) for reducer in range(table.reducers)]
    for index, (hashed, owner) in enumerate(zip(wanted.tolist(), table.owners_of(wanted).tolist(), strict=True)):
        sharing = table.assignment_of(hashed).reducers
        assert owner == sharing[0]
        assert [reducer for reducer in range(table.reducers) if allowed[reducer][index]] == sorted(sharing)


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
def test_a_split_that_makes_no_sense_is_refused(reducers, weights, before) -> None:
    with pytest.raises(ValueError, match="a key split needs"):
        KeySplit(reducers, weights, before, since=1)


@given(key_splits(5))
@example(KeySplit((0, 1), (0.3, 0.7), (0.3, 0.7000000000000001), since=2))  # it shrinks by rounding alone
def test_records_that_are_distributed_anew_are_no_more_than_must_and_go_to_who_gains(split: KeySplit) -> None:
    after = np.zeros(len(split.reducers))
    for own, at in enumerate(split.reducers):
        given, old, new = split.weights_at(at), split.before[own], split.weights[own]
        assert sum(given) == pytest.approx(1)
        assert min(given) >= 0
        assert given[own] == pytest.approx(min(1, new / old) if old else 1)
        for index, share in enumerate(given):
            assert share == 0 or index == own or split.weights[index] > split.before[index]
        after += old * np.array(given)
    if sum(split.before) >= 1 - 1e-9:  # else others had some of it, and distribute that themselves
        assert after.tolist() == pytest.approx(split.weights)
    for at in {*range(6)} - {*split.reducers}:
        assert split.weights_at(at) == split.weights


batches = st.lists(st.one_of(st.integers(0, 3), st.integers(0, 10**6)), max_size=60)


@given(key_splits(6), st.one_of(st.none(), st.integers(0, 6)), batches, st.integers(0, 99))
def test_over_any_batches_each_gets_its_weight_of_the_records(
    split: KeySplit, at: int | None, sizes: list[int], seed: int
) -> None:
    weights = np.array(split.weights if at is None else split.weights_at(at))
    distributor, total = Distributor(seed), np.zeros(len(weights))
    for records in sizes:
        given = distributor.distribute(split, records, at)
        assert given.sum() == records and given.min() >= 0
        assert not given[weights == 0].any()
        total += given
    assert np.abs(total - weights * sum(sizes)).max() < BOUND


def test_weights_that_add_up_to_almost_one_stay_right_over_a_billion_records() -> None:
    """The error was carried from batch to batch, and given back record by record."""
    weights = np.array([0.1, 0.2, 0.7])
    for error in (-9e-7, 9e-7):
        split = KeySplit((0, 1, 2), tuple(weights * (1 + error)), (1.0, 0.0, 0.0), 1)
        distributor, total = Distributor(), np.zeros(3)
        for _ in range(1_000):
            total += distributor.distribute(split, 10**6)
        assert np.abs(total - weights * 10**9).max() < BOUND


def test_one_sender_distributes_alike_in_every_run_and_senders_start_differently() -> None:
    split = KeySplit((0, 1, 2, 3), (0.25,) * 4, (1.0, 0.0, 0.0, 0.0), since=1)
    one, again, *others = (Distributor(seed) for seed in (3, 3, *range(20)))
    for _ in range(8):
        assert one.distribute(split, 1).tolist() == again.distribute(split, 1).tolist()
    assert {int(other.distribute(split, 1).argmax()) for other in others} == {0, 1, 2, 3}


def test_the_credit_of_a_split_that_is_gone_is_forgotten_and_that_of_one_that_stays_is_kept() -> None:
    going, staying = SPLIT, KeySplit((0, 1), (0.5, 0.5), (1.0, 0.0), since=1)
    forgetful, mindful = Distributor(5), Distributor(5)
    for distributor in (forgetful, mindful):
        distributor.distribute(going, 1)
        distributor.distribute(staying, 1)
    forgetful.retain((staying,))
    assert forgetful.distribute(staying, 1).tolist() == mindful.distribute(staying, 1).tolist()
    assert forgetful.distribute(going, 1).tolist() == Distributor(5).distribute(going, 1).tolist()
