"""The job files with `stages:` on every backend that needs neither Ray nor Spark, against plain Python; and their
executors and inputs."""

import importlib
import pkgutil
from collections.abc import Callable
from functools import reduce
from inspect import isfunction
from typing import Any, get_type_hints

import numpy as np
import pyarrow as pa
import pytest
import topologies as oracle
import yaml
from topologies import CONFIGS, LINES, TOPOLOGIES, TRADES, Topology, in_order, inputs_of, rows_of

import jobs.costs
import jobs.paced
from dpa import Flow, Job
from dpa.aggregates import Count
from dpa.operators import RowKind, as_row_operator
from dpa.testing import LocalBackend, check_reducer_laws, run_local
from experiments.simulation.backend import SimulatedBackend
from experiments.simulation.job import Network
from jobs.bargains import Alerts, Vwap, prices
from jobs.clicks import Clicks, Profiles
from jobs.costs import BusyCount, Cost, Costly
from jobs.orders import Orders
from jobs.paced import Work
from jobs.sessions import Session, Sessions
from jobs.trending import Tweets
from jobs.wordcount import words

_EAGER = "{strategy: adaptive, measure_seconds: 0.05, check_seconds: 0, min_delay: 0, min_gain: 0}"
"""A balance that moves keys for whatever gain there is."""

every_topology = pytest.mark.parametrize("topology", TOPOLOGIES.values(), ids=TOPOLOGIES)


def test_every_job_file_with_stages_is_held_to_plain_python() -> None:
    files = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in CONFIGS.glob("*.yaml")}
    assert {name for name, document in files.items() if "stages" in document} == set(TOPOLOGIES)
    assert all(document["name"] == name for name, document in files.items())


@every_topology
def test_a_job_file_is_valid_as_it_is_and_has_a_reference(topology: Topology) -> None:
    job = Job.from_file(CONFIGS / f"{topology.name}.yaml")
    job.check()
    [result] = job.spec.results
    assert result.name == topology.result
    assert result.config.reference is not None
    assert result.config.reference.tolerance == 0


@every_topology
def test_a_job_file_run_in_this_process_gives_what_plain_python_gives(topology: Topology) -> None:
    job = topology.unchecked()
    result = job.run(backend=LocalBackend())
    expected = topology.expected(inputs_of(job))
    assert in_order(result.table(topology.result).to_pylist()) == in_order(expected)
    assert {f"{edge.source} -> {edge.target}" for edge in result.report.edges} == set(topology.edges)


@pytest.mark.parametrize("seed", [1, 2, 3])
@every_topology
def test_no_interleaving_and_no_redistribution_changes_the_result_of_a_job_file(topology: Topology, seed: int) -> None:
    eager = [f"stages.{topology.skewed}.balance={_EAGER}"] if topology.skewed else []
    job = topology.unchecked(*eager)
    result = job.run(backend=SimulatedBackend(seed, network=Network(duplicates=0.05)))
    expected = topology.expected(inputs_of(job))
    assert in_order(result.table(topology.result).to_pylist()) == in_order(expected)
    if topology.skewed:
        assert result.report[topology.skewed].redistributions
        assert result.report[topology.skewed].records.forwarded > 0


def test_the_small_inputs_have_the_rare_cases() -> None:
    inputs = {name: inputs_of(topology.unchecked()) for name, topology in TOPOLOGIES.items()}
    rows = {name: topology.expected(inputs[name]) for name, topology in TOPOLOGIES.items()}
    assert 0.02 < sum(row["bargains"] for row in rows["bargains"]) / inputs["bargains"]["quotes"].num_rows < 0.6
    customers, orders = (set(inputs["orders"][step]["customer"].to_pylist()) for step in ("customers", "orders"))
    assert orders - customers, "orders without a customer"
    assert {None} < {row["count"] for row in rows["pages"]}, "pages without errors, and with some"
    assert len({row["user"] for row in rows["sessions"]}) < len(rows["sessions"]), "users with several sessions"


def on_batches() -> list[Callable[[pa.RecordBatch], Any]]:
    """All functions of `jobs` that are marked as batch mappers or batch filters."""
    modules = [importlib.import_module(f"jobs.{module.name}") for module in pkgutil.iter_modules(jobs.__path__)]
    functions = {function for module in modules for function in vars(module).values() if isfunction(function)}
    marked = [function for function in functions if {"dpa_batch_mapper", "dpa_batch_filter"} & vars(function).keys()]
    return sorted(marked, key=lambda function: (function.__module__, function.__name__))


@pytest.mark.parametrize("function", on_batches(), ids=lambda function: f"{function.__module__}.{function.__name__}")
def test_a_function_on_batches_is_marked_for_what_it_returns(function: Callable[[pa.RecordBatch], Any]) -> None:
    returned = get_type_hints(function)["return"]
    assert returned in (pa.RecordBatch, pa.BooleanArray)
    assert as_row_operator(RowKind.FILTER if returned is pa.BooleanArray else RowKind.MAP, function).on_batches


def test_words_are_counted_averages_weighted_by_volume_and_reducers_keep_the_laws_of_balancing() -> None:
    trades = rows_of(TRADES)
    averages = run_local(None, Vwap(), trades, key="symbol").to_pylist()
    expected = oracle.vwap(trades)
    assert {row["symbol"]: (row["notional"], row["volume"]) for row in averages} == expected
    assert all(row["vwap"] == row["notional"] / row["volume"] for row in averages)
    check_reducer_laws(Vwap(), [{"price": 100, "volume": 3}, {"price": 250, "volume": 5}, {"price": 70, "volume": 1}])
    check_reducer_laws(Alerts(), [{"saving": 2.5}, {"saving": 1.0}, {"saving": 7.25}])
    lines = rows_of(LINES)
    counts = run_local(words, Count(), lines, key="word")
    assert dict(zip(*counts.to_pydict().values(), strict=True)) == oracle.words(lines)


def test_a_session_lasts_through_a_gap_and_ends_after_a_longer_one() -> None:
    sessions = Sessions(gap=60)
    state, emitted = sessions.zero(), []
    for time in (100, 160, 160, 221, 300):
        state, rows = sessions.process(7, state, time)
        emitted += rows
    assert emitted == [
        {"user": 7, "began": 100, "ended": 160, "visits": 3},
        {"user": 7, "began": 221, "ended": 221, "visits": 1},
    ]
    assert sessions.finish(7, state) == [{"user": 7, "began": 300, "ended": 300, "visits": 1}]
    assert sessions.finish(7, sessions.zero()) == []
    with pytest.raises(ValueError, match="the visit at 99 comes after one at 100: visits must be sorted by time"):
        sessions.process(7, Session(100, 100, 1), 99)


def test_topics_drift_customers_are_as_frequent_as_zipf_says_and_prices_stay_near_their_level() -> None:
    tweets = [Tweets(tags=300, period=1_000).batch(start, 1_000, np.random.default_rng(1)) for start in (0, 1_000)]
    first, second = (oracle.trending(pa.Table.from_batches([batch])) for batch in tweets)
    assert (first[0]["tag"], second[0]["tag"]) == ("a0", "h7")
    customer = Orders(customers=200_000).batch(0, 50_000, np.random.default_rng(0)).column("customer").to_numpy()
    expected = 1 / (np.arange(1, 200_001) ** -1.2).sum()
    assert np.mean(customer == 0) == pytest.approx(expected, rel=0.05)
    assert customer.max() < 200_000
    walk = prices(np.array([3]), np.arange(0, 2_000_000, 10))
    assert walk.min() > 0
    assert np.abs(np.diff(walk)).max() <= 0.001 * walk.mean()
    assert 1.05 < walk.max() / walk.min() < 1.3


class Clock:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time that work at a cost takes."""
    made = Clock()
    monkeypatch.setattr(jobs.paced, "time", made)
    return made


def test_a_step_of_a_job_file_has_a_cost_for_each_record(clock: Clock) -> None:
    flow = Flow("costly")
    numbers = flow.read([{"n": number} for number in range(1_000)], name="numbers")
    numbers.map({"use": "jobs.costs:Cost", "args": {"micros": 50, "padding": 16}}, name="costly")
    found = run_local(flow)["costly"]
    assert sorted(found["n"].to_pylist()) == list(range(1_000))
    assert set(found["padding"].to_pylist()) == {bytes(16)}
    assert clock.now == pytest.approx(0.05)
    assert Cost().map_batch(found) is found
    assert Cost(padding=0).map_batch(found).column_names == ["n"]


def test_a_costly_reducer_gives_what_the_other_gives_later(clock: Clock) -> None:
    trades = rows_of(TRADES)
    costly = run_local(None, Costly(Vwap(), micros=100), trades, key="symbol")
    assert costly.equals(run_local(None, Vwap(), trades, key="symbol"))
    assert clock.now == pytest.approx(0.1)


SHOES = "https://shop.example/shoes/17?from=mail&price=250&size=42%C2%BD"
TOYS = "https://shop.example/toys/4?from=ad&price=1000"


def test_a_profile_counts_clicks_mails_prices_and_sections_and_keeps_the_laws_of_reducers() -> None:
    profiles = Profiles()
    found = profiles.finish(reduce(profiles.reduce, [SHOES, TOYS, SHOES], profiles.zero()))
    assert found == {"clicks": 3, "mail": 2, "cents": 1500, "sections": 2}
    urls = Clicks().batch(0, 40, np.random.default_rng(0))["url"].to_pylist()
    check_reducer_laws(profiles, urls)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_one_user_has_a_share_of_the_clicks_and_every_address_can_be_read(share: float) -> None:
    batch = Clicks(users=50, share=share).batch(0, 4_000, np.random.default_rng(1))
    users = batch["user"].to_pylist()
    assert users.count(0) / len(users) == pytest.approx(share, abs=0.03)
    assert set(users) <= set(range(51))
    profiles = Profiles()
    found = profiles.finish(reduce(profiles.reduce, batch["url"].to_pylist(), profiles.zero()))
    assert (found["clicks"], found["sections"]) == (4_000, 8)
    assert found["mail"] / 4_000 == pytest.approx(0.25, abs=0.03)


class SlowClock:
    """Stands for the module `time`; every sleep lasts a little too long."""

    def __init__(self, too_long: float = 0.0) -> None:
        self.now = 100.0
        self._too_long = too_long

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        self.now += 1e-6
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds + self._too_long


@pytest.mark.parametrize("block_seconds", [0.0002, 0.003, 0.05])
@pytest.mark.parametrize("factor", [1.0, 10 / 3])
def test_work_that_is_slowed_down_takes_so_many_times_as_long(
    block_seconds: float, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SlowClock()
    monkeypatch.setattr(jobs.paced, "time", clock)
    work, began = Work(), clock.now
    for _ in range(100):
        before = clock.now
        work.spend(block_seconds)
        clock.now += (factor - 1) * (clock.now - before)  # as `dpa.runtime.actors._task` does
    assert clock.now - began == pytest.approx(100 * block_seconds * factor)


def test_a_sleep_that_lasts_too_long_shortens_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SlowClock(too_long=0.0007)
    monkeypatch.setattr(jobs.paced, "time", clock)
    work, began = Work(), clock.now
    for _ in range(1_000):
        work.spend(0.0005)
    assert clock.now - began == pytest.approx(0.5, abs=0.002)


def test_a_busy_count_spends_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SlowClock()
    monkeypatch.setattr(jobs.costs, "time", clock)
    counted, began = BusyCount(20.0), clock.now
    assert counted.finish(counted.reduce(counted.reduce(counted.zero(), None), None)) == {"count": 2}
    assert clock.now - began == pytest.approx(2 * 20e-6, abs=5e-6)
    check_reducer_laws(BusyCount(0.0), [1, 2])
