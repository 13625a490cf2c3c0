"""Every compiled grouping chooses, record by record, what a plain and slow reading of its paper would choose."""

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa.routing.groupings._loops import count, salted
from dpa.routing.groupings.base import CapacityRequest, Signal
from dpa.routing.groupings.bounded import PooledChoicesGrouping, RandomChoicesGrouping
from dpa.routing.groupings.by_capacity import SLACK, SLOTS, WeightedWChoicesGrouping, apportion, reassign
from dpa.routing.groupings.choices import PartialKeyGrouping, SpaceSaving, WChoicesGrouping
from dpa.routing.hashing import Hashes

Choose = Callable[[int], int]
"""The reducer of one record, given its key's hash; what has been sent is remembered."""

RECORDS = 3_000
KEYS = 600
ENDS = [0, 1, 2**14, 2**31, 2**32 - 2, 2**32 - 1]
"""Some share a place in the memo of random choices."""


def _streams() -> dict[str, Hashes]:
    random = np.random.default_rng(7)
    hashes = random.integers(0, 2**32, KEYS, dtype=np.uint32)
    ranks = np.arange(1.0, KEYS + 1)
    streams = {
        f"zipf {skew}": hashes[random.choice(KEYS, RECORDS, p=ranks**-skew / (ranks**-skew).sum())]
        for skew in (0.5, 1.2, 2.0)
    }
    streams["even"] = hashes[random.integers(0, KEYS, RECORDS)]
    streams["one key"] = np.full(RECORDS, 123_456_789, np.uint32)
    streams["ends of the hash"] = random.choice(np.array(ENDS, np.uint32), RECORDS)
    streams["drift"] = hashes[(np.arange(RECORDS) // 8 + random.geometric(0.3, RECORDS)) % KEYS]
    return streams


STREAMS = _streams()
every_stream = pytest.mark.parametrize("name", STREAMS)
several_reducers = pytest.mark.parametrize("reducers", [1, 2, 5, 64])
several_epsilons = pytest.mark.parametrize("epsilon", [0.0, 1e-12, 0.01, 0.5, 3.0])

_MASK = 2**64 - 1


def mixed(key: int, salt: int) -> int:
    """SplitMix64 of the pair, upper half."""
    state = ((key << 32 | salt) + 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return (state ^ (state >> 31)) >> 32


def place(key: int, salt: int, reducers: int) -> int:
    """H(key, salt) mod reducers; number 0 is the key's hash itself."""
    return mixed(key, salt) * reducers >> 32 if salt else key % reducers


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_the_salted_hash_is_that_of_split_mix(key: int, salt: int) -> None:
    assert int(salted(key, salt)) == mixed(key, salt)


def plain_partial_key(reducers: int, each: int = 0) -> Choose:
    loads = [each] * reducers

    def choose(key: int) -> int:
        chosen = min(place(key, 0, reducers), place(key, 1, reducers), key=loads.__getitem__)
        loads[chosen] += 1
        return chosen

    return choose


def plain_random_choices(reducers: int, epsilon: float, each: int = 0) -> Choose:
    loads, last = [each] * reducers, 0

    def choose(key: int) -> int:
        nonlocal last
        capacity = (1 + epsilon) * (sum(loads) + 1) / reducers
        probed = (place(key, salt, reducers) for salt in range(4 * reducers + 1))
        chosen = next((other for other in probed if loads[other] < capacity), None)
        if chosen is None:  # of equally loaded ones the next after that of the last time
            chosen = last = min(range(reducers), key=lambda other: (loads[other], (other - last) % reducers))
        loads[chosen] += 1
        return chosen

    return choose


class PlainPooledChoices:
    """A virtual worker is full when its reducer is; loads are level when owners change."""

    def __init__(self, epsilon: float) -> None:
        self.epsilon, self.sent = epsilon, 0

    def regroup(self, reducers: Sequence[int]) -> None:
        each = math.ceil(1_000 * len(set(reducers)) / len(reducers)) if self.sent else 0
        self.reducers, self.sent = list(reducers), each * len(reducers)
        self.has = Counter(reducers)
        self.loads = {reducer: each * self.has[reducer] for reducer in self.has}

    def __call__(self, key: int) -> int:
        reducers = len(self.reducers)
        self.sent += 1
        capacity = (1 + self.epsilon) * self.sent / reducers
        probed = (place(key, salt, reducers) for salt in range(4 * len(self.loads) + 1))
        rooms = {reducer: capacity * self.has[reducer] - self.loads[reducer] for reducer in self.has}
        chosen = next((other for other in probed if rooms[self.reducers[other]] > 0), None)
        if chosen is None:
            least = min(sorted(self.loads), key=lambda reducer: self.loads[reducer] / self.has[reducer])
            chosen = self.reducers.index(least)
        self.loads[self.reducers[chosen]] += 1
        return chosen


class PlainHeadTail:
    """D- and W-Choices: d choices of a hot key, or all reducers. The sketch has a test of its own."""

    def __init__(self, reducers: int) -> None:
        self.reducers, self.sent, self.changed_at, self.slack = reducers, 0, 0, 0.0
        self.choices = reducers
        self.reach = [0.0] * reducers
        self.loads, self.work = [0.0] * reducers, [1.0] * reducers
        self.slot_owners = list(range(reducers))
        self.sketch = SpaceSaving.empty(max(256, 20 * reducers))

    def after(self, reducer: int) -> float:
        return self.loads[reducer] + self.work[reducer]

    def go_by(self, capacities: npt.NDArray[np.float64]) -> None:
        """New capacities count if any differs by more than a tenth."""
        if (abs(capacities * np.array(self.work) - 1) > 0.1).any():
            self.work, self.changed_at = (1 / capacities).tolist(), self.sent
            owners = np.array(self.slot_owners)
            reassign(owners, apportion(capacities, len(owners)))
            self.slot_owners = owners.tolist()

    def spills(self, key: int, reducer: int) -> bool:
        """W-Choices by capacity: whether a tail key may leave its reducer, as far as that reaches."""
        sent = self.sent - self.changed_at
        each = sent / self.reducers
        allowed = max(self.slack * sent, 0.2 * each**0.5)
        ahead = self.loads[reducer] - self.loads[min(range(self.reducers), key=self.after)]
        if ahead > 2 * allowed:
            self.reach[reducer] = min(1.0, self.reach[reducer] + 4 / each)
        elif ahead < allowed:
            self.reach[reducer] = max(0.0, self.reach[reducer] - 0.5 / each)
        return ahead > allowed and mixed(key, 2) < self.reach[reducer] * 2**32

    def __call__(self, key: int) -> int:
        self.sent += 1
        counted, error = self.sketch.counters[count(self.sketch, key), 1:].tolist()
        chosen, second, *more = (
            self.slot_owners[place(key, salt, len(self.slot_owners))] for salt in range(max(2, self.choices))
        )
        if counted - error > self.sent / (5 * self.reducers):
            others = [second, *more] if self.choices < self.reducers else range(self.reducers)
            chosen = min(chosen, *others, key=self.after)
        elif self.after(second) < self.after(chosen) and (not self.slack or self.spills(key, chosen)):
            chosen = second
        self.loads[chosen] += self.work[chosen]
        return chosen


def agree(found: list[int], key_stream: Hashes, choose: Choose) -> None:
    for number, (given_to, key) in enumerate(zip(found, key_stream.tolist(), strict=True)):
        expected = choose(key)
        assert given_to == expected, f"record {number}, key {key}: reducer {given_to} instead of {expected}"


@every_stream
@several_reducers
def test_a_key_goes_to_the_less_loaded_of_two_and_with_w_choices_a_hot_one_of_all(name: str, reducers: int) -> None:
    stream = STREAMS[name]
    agree(PartialKeyGrouping(reducers).choose(stream).tolist(), stream, plain_partial_key(reducers))
    agree(WChoicesGrouping(reducers).choose(stream).tolist(), stream, PlainHeadTail(reducers))


@every_stream
@several_reducers
@several_epsilons
def test_random_choices_take_the_first_of_the_sequence_with_room(name: str, reducers: int, epsilon: float) -> None:
    stream = STREAMS[name][:1_000]
    found = RandomChoicesGrouping(reducers, epsilon).choose(stream).tolist()
    agree(found, stream, plain_random_choices(reducers, epsilon))


@every_stream
@pytest.mark.parametrize("epsilon", [1e-3, 0.0123, 0.3])
@pytest.mark.parametrize("owners", [[0, 0, 0], [0, 0, 0, 1, 1, 1], [2, 0, 1, 1, 0, 0, 2, 0, 2, 1, 1, 1]])
def test_pooled_choices_take_the_first_whose_reducer_has_room(name: str, epsilon: float, owners: list[int]) -> None:
    choices, plain = PooledChoicesGrouping(len(owners), epsilon), PlainPooledChoices(epsilon)
    for reducers, stream in ((owners, STREAMS[name][:500]), (owners[::-1], STREAMS[name][500:1_000])):
        choices.regroup(np.array(reducers))
        plain.regroup(reducers)
        agree(choices.choose(stream).tolist(), stream, plain)


@every_stream
@several_reducers
def test_weighted_choices_go_by_load_per_capacity_also_after_capacities_change(name: str, reducers: int) -> None:
    grouping, plain = WeightedWChoicesGrouping(reducers), PlainHeadTail(reducers)
    plain.slack = SLACK
    plain.slot_owners = np.repeat(np.arange(reducers), SLOTS).tolist()
    stream, random = STREAMS[name], np.random.default_rng(reducers)
    seconds = np.zeros(reducers)
    for slot, part in enumerate(np.array_split(stream, 4)):
        agree(grouping.choose(part).tolist(), part, plain)
        for reducer in range(reducers):
            seconds[reducer] = random.choice([0.001, 0.002, 0.02])
            grouping.observe(reducer, Signal(slot, 1.0, CapacityRequest.KEEP, 1, float(seconds[reducer])))
        speeds = seconds.min() / seconds
        plain.go_by(np.maximum(speeds / speeds.mean(), 0.01))


@every_stream
@pytest.mark.parametrize("reducers", [5, 64])
@pytest.mark.parametrize("epsilon", [1e-15, 1e-12, 1e-6])
@pytest.mark.parametrize("each", [2**31 - 100, 2**40, 2**50 // 64])
def test_after_a_long_stream_loads_are_bounded_exactly(name: str, reducers: int, epsilon: float, each: int) -> None:
    stream = STREAMS[name][:300]
    choices = RandomChoicesGrouping(reducers, epsilon)
    choices._loads[:], choices._counters[0] = each, each * reducers
    agree(choices.choose(stream).tolist(), stream, plain_random_choices(reducers, epsilon, each))


@every_stream
@pytest.mark.parametrize("each", [2**31 - 100, 2**40])
def test_after_a_long_stream_the_least_loaded_are_still_told_exactly(name: str, each: int) -> None:
    stream, reducers = STREAMS[name][:1_000], 7
    partial, hot, plain = PartialKeyGrouping(reducers), WChoicesGrouping(reducers), PlainHeadTail(reducers)
    partial._loads[:], hot._loads[:], hot._sent[0] = each, each, each * reducers
    hot._rely_on(np.ones(reducers))  # ranks the new loads
    plain.loads, plain.sent = [float(each)] * reducers, each * reducers
    for sketch in (hot._sketch, plain.sketch):  # a key that has been hot all the time
        count(sketch, int(stream[0]))
        sketch.counters[0, 1] = each
    agree(partial.choose(stream).tolist(), stream, plain_partial_key(reducers, each))
    agree(hot.choose(stream).tolist(), stream, plain)


@given(st.lists(st.integers(0, 12), max_size=200), st.integers(1, 8))
def test_the_sketch_counts_as_a_dict_would_and_evicts_a_key_of_the_least_count(keys: list[int], most: int) -> None:
    sketch, plain, true = SpaceSaving.empty(most), {}, Counter[int]()
    for key in keys:
        true[key] += 1
        counter = count(sketch, key)
        if key in plain:
            plain[key] = (plain[key][0] + 1, plain[key][1])
        elif len(plain) < most:
            plain[key] = (1, 0)
        else:
            held = set(sketch.counters[:, 0].tolist())
            [evicted] = [other for other in plain if other not in held]
            least = plain.pop(evicted)[0]
            assert least <= min((counted for counted, _ in plain.values()), default=least)
            plain[key] = (least + 1, least)
        used = int(sketch.state[0])
        assert sketch.counters[counter, 0] == key
        assert {one[0]: (one[1], one[2]) for one in sketch.counters[:used].tolist()} == plain
        assert all(counted - error <= true[other] <= counted for other, (counted, error) in plain.items())
    check_sketch(sketch)


def check_sketch(sketch: SpaceSaving) -> None:
    """The table finds each key in use, from its home on without a gap."""
    used = int(sketch.state[0])
    assert sorted(sketch.table[sketch.table >= 0].tolist()) == list(range(used))
    before = sketch.counters.copy()
    for key in before[:used, 0].tolist():
        counter = count(sketch, key)
        assert sketch.counters[counter, 0] == key
    assert (sketch.counters[:used, 1] == before[:used, 1] + 1).all()
    sketch.counters[:] = before


def test_a_large_sketch_keeps_its_order_through_many_evictions() -> None:
    random = np.random.default_rng(2)
    sketch = SpaceSaving.empty(256)
    for key in (random.zipf(1.3, 20_000) % 2**32).tolist():
        count(sketch, key)
    check_sketch(sketch)
    assert sketch.counters[:, 1].sum() == 20_000
