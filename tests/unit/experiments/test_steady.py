"""The scenarios of `experiments.steady`, their ideal, and what is asked of their runs."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.steady import streams
from experiments.steady.ideal import Capacity, Slowdown, ideal_seconds
from experiments.steady.outcome import Outcome, Outcomes
from experiments.steady.real import SHARED_CORES, SLOW, pieces
from experiments.steady.scenarios import REDUCERS, SERVICE_SECONDS, VIRTUAL, Scenario, load_of
from experiments.steady.shared import SHARED
from experiments.steady.targets import targets

RUN = Outcome(SLOW, "even", "adaptive", 8.0, 7.0, 0.01, (1.0, 2.5), 0.02, 0.1, 0.4, 3.0)
SCENARIOS = {scenario.name: scenario for scenario in VIRTUAL}


# --- the ideal


def test_a_reducer_that_is_slowed_for_a_while_adds_less_meanwhile() -> None:
    capacity = Capacity(2, (Slowdown(1, 5.0, 4.0, 9.0),))
    assert [capacity.rate(now) for now in (0.0, 4.0, 8.9, 9.0)] == pytest.approx([2.0, 1.2, 1.2, 2.0])
    assert capacity.seconds_for(8.0) == pytest.approx(4.0)
    assert capacity.seconds_for(11.0) == pytest.approx(6.5)
    assert capacity.seconds_for(16.0) == pytest.approx(10.0)


@given(
    st.lists(st.tuples(st.floats(0, 20), st.floats(0.01, 3)), min_size=1, max_size=20),
    st.integers(1, 5),
    st.floats(1, 10),
    st.floats(0, 10),
    st.floats(0, 10),
)
def test_no_queue_is_faster_than_the_ideal_and_a_work_conserving_one_reaches_it(
    records: list[tuple[float, float]], reducers: int, factor: float, begin: float, length: float
) -> None:
    """Worked off one after another by all reducers together, as a fluid."""
    capacity = Capacity(reducers, (Slowdown(0, factor, begin, begin + length),))
    arrivals, work = np.array(sorted(records)).T
    ended = 0.0
    for at, amount in zip(arrivals, work, strict=True):
        done = float(capacity.done_by(np.array([max(at, ended)]))[0])
        ended = capacity.seconds_for(done + amount)
    assert ideal_seconds(arrivals, work, capacity) == pytest.approx(ended)


# --- streams and scenarios


def drawn(scenario: Scenario, *, paced: bool = False, seconds: float = 10.0) -> list[str]:
    return load_of(scenario, seconds, 0, paced=paced).table["key"].to_pylist()


def share(keys: list[str], key: str) -> float:
    return keys.count(key) / len(keys)


def test_a_hot_key_has_its_share() -> None:
    assert share(drawn(SCENARIOS["hot 40 %"]), "hot 0") == pytest.approx(0.4, abs=0.02)


def test_a_drifting_key_is_another_one_after_every_two_seconds_of_work() -> None:
    keys = drawn(SCENARIOS["drifting"])
    each = round(2.0 * REDUCERS / SERVICE_SECONDS)
    for number in range(5):
        assert share(keys[number * each : (number + 1) * each], f"hot {number}") == pytest.approx(0.6, abs=0.03)
    assert "hot 5" not in keys


def test_two_keys_alternate() -> None:
    keys = drawn(SCENARIOS["alternating"])
    each = round(REDUCERS / SERVICE_SECONDS)
    hot = [next(key for key in keys[second * each :] if key.startswith("hot")) for second in range(4)]
    assert hot == ["hot 0", "hot 1", "hot 0", "hot 1"]


def test_a_late_key_comes_in_the_last_tenth() -> None:
    keys = drawn(SCENARIOS["late hot key"])
    before, after = keys[: len(keys) * 9 // 10], keys[len(keys) * 9 // 10 :]
    assert "hot 0" not in before and share(after, "hot 0") == pytest.approx(0.6, abs=0.05)


def test_sorted_keys_come_once_each_in_runs_of_equal_length() -> None:
    keys = drawn(SCENARIOS["sorted"])
    assert len(set(keys)) == streams.SORTED_KEYS
    assert sum(one != other for one, other in itertools.pairwise(keys)) == streams.SORTED_KEYS - 1


def test_a_dear_key_costs_ten_times_as_much_and_counts_in_the_ideal() -> None:
    load = load_of(SCENARIOS["dear key"], 10.0, 0, paced=False)
    costs = dict(zip(load.table["key"].to_pylist(), load.table["cost"].to_pylist(), strict=True))
    assert costs["hot 0"] == 10.0 and {cost for key, cost in costs.items() if key != "hot 0"} == {1.0}
    assert load.ideal == pytest.approx(10.0, rel=0.05)


@pytest.mark.parametrize("scenario", VIRTUAL, ids=lambda scenario: scenario.name)
def test_every_scenario_has_about_the_work_that_is_asked_for_and_the_same_keys_for_a_seed(scenario: Scenario) -> None:
    closed, paced = (load_of(scenario, 8.0, 3, paced=paced) for paced in (False, True))
    assert closed.ideal == pytest.approx(8.0, rel=0.25)
    assert paced.ideal >= closed.ideal and paced.rate is not None
    assert closed.table.equals(load_of(scenario, 8.0, 3, paced=False).table)


@pytest.mark.parametrize("records", [400, 1_200])
def test_cheap_records_are_read_from_ten_files_in_order_however_often_each(records: int) -> None:
    shared = next(shared for shared in SHARED if shared.changes)
    with pieces(shared, records, 40, seed=0) as source:
        files = sorted(Path(source["input"]["path"]).iterdir())
        found = [pq.read_table(file)["key"].to_pylist() for file in files]
    assert sum(map(len, found)) == records
    hot = [next(key for key in keys if key.startswith("hot")) for keys in found]
    assert hot == [f"hot {number * 10 // len(files)}" for number in range(len(files))]


def test_records_that_no_pieces_make_are_refused() -> None:
    with pytest.raises(ValueError, match="1,000 records cannot be cut"), pieces(SHARED[0], 1_000, 40, seed=0):
        pass


# --- outcomes


def test_targets_are_those_of_the_scenarios_that_were_run() -> None:
    found = {target.name: target for target in targets(Outcomes((RUN, replace(RUN, seconds=9.0, forwarded=0.3))))}
    assert set(found) == {
        f"{SLOW}, stationary: most redistributions",
        f"{SLOW}, stationary: last redistribution, s",
        f"{SLOW}, stationary: most forwarded",
        f"{SLOW}, stationary: greatest S",
        f"{SLOW}, even: to the ideal",
        f"{SLOW}, even: most redistributions",
    }
    assert found[f"{SLOW}, even: to the ideal"].reached == pytest.approx(8.5 / 7.0)
    assert [name for name, target in found.items() if not target.met] == [
        f"{SLOW}, stationary: most forwarded",
        f"{SLOW}, even: to the ideal",
    ]
    assert not targets(Outcomes((replace(RUN, method="none"),)))


def test_cheap_records_are_compared_with_none() -> None:
    name = next(shared.name for shared in SHARED if shared.keys == "even" and shared.shape.mappers == 2)
    cheap = replace(RUN, part=SHARED_CORES, scenario=name, ideal=math.nan)
    ratio, steps = targets(Outcomes((cheap, replace(cheap, method="none", seconds=7.9))))
    assert ratio.reached == pytest.approx(8.0 / 7.9) and ratio.met
    assert steps.reached == 2 and steps.met
