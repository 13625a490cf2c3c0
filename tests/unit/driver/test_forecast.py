"""A forecast of Parquet and of tables in memory: no Spark, no JVM, which the guard of these tests sees to. Of an input
that is its own sample it is what a run comes to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import forecast_samples as samples
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa import Flow, Job, Process
from dpa.aggregates import Sum
from dpa.driver._graph_walk import MAX_JOINED, thinned
from dpa.driver.forecast import SAMPLE_ROWS, Basis, EdgeForecast, Estimate, Forecast, StageForecast
from dpa.errors import ConfigError, ExecutorError
from dpa.execution.block import Block
from dpa.report import plan_json
from dpa.result import HotKey
from dpa.testing import LocalBackend

ROOT = Path(__file__).parents[3]
ROWS = 2 * SAMPLE_ROWS
WORDS = pa.table({"word": ["the" if row % 2 else f"word {row % 1_000}" for row in range(ROWS)], "line": range(ROWS)})


def by_word(record: dict) -> list:
    return [(record["word"], record["line"])]


def test_parquet_is_sampled_and_validated_without_spark(tmp_path: Path) -> None:
    pq.write_table(WORDS, tmp_path / "words.parquet", row_group_size=10_000)
    read = {"format": "parquet", "path": str(tmp_path / "words.parquet")}
    mapper, reducer = Job(input=read, key="word", value=[], reducer="count").forecast().stages
    assert (mapper.rows, mapper.sampled, reducer.sampled) == (ROWS, SAMPLE_ROWS, SAMPLE_ROWS)
    assert reducer.distinct == 501
    assert [key.key for key in reducer.hot] == ["the"]
    assert reducer.hot[0].share == pytest.approx(0.5, abs=0.01)
    found = Job(input=read, mapper=by_word, key="word", reducer="count").forecast()
    assert found.stages[1].distinct == 501
    assert found.edges == (EdgeForecast("mapper", "reducer", ("map by_word", "combine if that pays"), SAMPLE_ROWS),)
    with pytest.raises(ConfigError, match="reads the column 'value'"):
        Job(input=read, key="word", reducer="sum").forecast()


def test_a_plan_is_json_without_secrets() -> None:
    job = Job(input=[{"key": b"\xff"}, {"key": b"a"}], reducer="count", spark={"conf": {"password": "x"}})
    plan = json.loads(plan_json(job.forecast()))
    source, reducer = plan["stages"]
    assert source["rows"] == 2
    assert sorted(key["key"] for key in reducer["hot_keys"]) == ["b'\\xff'", "b'a'"]
    assert plan["config"]["spark"]["conf"]["password"] == "***"


def orders(rows: int = 3_000) -> pa.Table:
    """Orders of ten customers, the first of whom has half of them."""
    return pa.table({"customer": [row % 10 * (row % 2) for row in range(rows)], "amount": range(rows)})


class Threes(Process[int, int]):
    """Emits every third record of a key, and at the end how many came."""

    def zero(self) -> int:
        return 0

    def process(self, key: Any, state: int, value: Any) -> tuple[int, Iterable[dict[str, Any]]]:
        return state + 1, [{"customer": key, "seen": state}] if state % 3 == 2 else []

    def finish(self, key: Any, state: int) -> Iterable[dict[str, Any]]:
        return [{"customer": key, "seen": state}]


def is_large(order: dict[str, Any]) -> bool:
    return order["amount"] > 1_000


def with_tax(order: dict[str, Any]) -> dict[str, Any]:
    return {**order, "tax": order["amount"] // 5}


def chain() -> Flow:
    flow = Flow("chain")
    rows = flow.read(orders(), name="orders").flat_map(lambda order: [order, order]).key_by("customer")
    counts = rows.reduce("count", name="counts", combiner=False)
    counts.key_by("count").reduce(Sum("customer"), name="by_count").key_by(None).reduce(Sum("customer"), name="all")
    return flow


def fan_out_and_in() -> Flow:
    flow = Flow("fan")
    read = flow.read(orders(), name="orders")
    both = read.union(read.filter(is_large).map(with_tax, name="taxed", parallelism=3))
    both.key_by("customer", value="amount").reduce(Sum("amount"), name="sums", grouping="key", balance="none")
    return flow


def joined() -> Flow:
    flow = Flow("joined")
    customers = flow.read(pa.table({"id": range(8), "name": list("abcdefgh")}), name="customers").key_by("id")
    rows = flow.read(orders(), name="orders").key_by("customer")
    rows.join(customers, "left", name="both", broadcast_mb=0).key_by("name").reduce("count", name="names")
    return flow


def processed() -> Flow:
    flow = Flow("processed")
    seen = flow.read(orders(), name="orders").key_by("customer").process(Threes(), name="seen")
    seen.key_by("seen", "customer").reduce("count", name="pairs")
    return flow


@pytest.mark.parametrize("made", [chain, fan_out_and_in, joined, processed])
def test_of_the_whole_input_records_and_skews_are_those_of_a_run(made: Callable[[], Flow]) -> None:
    report, forecast = made().run(backend=LocalBackend()).report, made().job().forecast()
    for foreseen, edge in zip(forecast.edges, report.edges, strict=True):
        assert (foreseen.source, foreseen.target, foreseen.records) == (edge.source, edge.target, edge.records)
    for stage in forecast.stages:
        ran = report[stage.name]
        # in one process a single task reads
        assert (stage.kind, 1 if stage.kind == "source" else stage.tasks) == (ran.kind, len(ran.tasks))
        assert stage.sampled == (ran.records.read if stage.kind == "source" else ran.records.processed)
        assert forecast.estimates[stage.name].exact
        if stage.grouping == "ring" and ran.skew is not None:
            assert stage.skew == pytest.approx(ran.skew.static)
        if stage.grouping is not None:
            assert [key.records for key in stage.hot_keys] == [key.records for key in ran.hot_keys]


def operators(flow: Flow) -> dict[tuple[str, str], tuple[str, ...]]:
    return {(edge.source, edge.target): edge.operators for edge in flow.job().forecast().edges}


def test_a_graph_says_what_its_stages_and_edges_do() -> None:
    stages = fan_out_and_in().job().forecast().stages
    assert [(stage.name, stage.kind, stage.does, stage.grouping, stage.tasks) for stage in stages] == [
        ("orders", "source", "read a table", None, 2),
        ("taxed", "operator", "map with_tax", None, 3),
        ("sums", "operator", "reduce Sum by customer", "key", 4),
    ]
    assert operators(fan_out_and_in()) == {
        ("orders", "taxed"): ("filter is_large",),
        ("orders", "sums"): ("key by customer",),
        ("taxed", "sums"): ("key by customer",),
    }
    of_join = operators(joined())
    assert of_join["orders", "both"] == ("key by customer",)
    assert of_join["customers", "both"] == ("key by id",)
    flow = Flow("lengths")
    flow.read(orders(), name="orders").key_by(is_large).reduce("count", name="lengths", combiner=True)
    assert operators(flow) == {("orders", "lengths"): ("key by is_large", "combine")}


def test_a_combiner_makes_loads_smaller_and_leaves_the_records_that_count() -> None:
    def never(left: Any, right: Any) -> Any:
        raise AssertionError("the result of the last stage is not needed")

    job = Job(input=orders(), key="customer", value=[], reducer="count", combiner=True)
    _, reducer = job.forecast().stages
    assert reducer.sampled == 3_000
    assert sum(reducer.loads) == reducer.distinct == 6
    assert Job(input=orders(), key="customer", value=["amount"], reducer=never).forecast().stages[1].sampled == 3_000


def test_a_process_cannot_be_split_and_a_join_not_combined() -> None:
    for flow, expected in (
        (processed(), {"seen": (False, False), "pairs": (True, True)}),
        (joined(), {"both": (True, False), "names": (True, True)}),
    ):
        stages = flow.job().forecast().stages
        assert {stage.name: (stage.mergeable, stage.combinable) for stage in stages if stage.grouping} == expected


def test_the_keys_of_both_sides_of_a_join_are_counted_as_one_whatever_their_columns_are_called() -> None:
    flow = Flow("composite")
    left = flow.read([{"a": 1, "b": "x"}] * 3, name="left").key_by("a", "b")
    left.join(
        flow.read([{"c": 1, "d": "x"}, {"c": 2, "d": "y"}], name="right").key_by("c", "d"), name="both", broadcast_mb=0
    )
    both = flow.job().forecast().stages[-1]
    assert both.distinct == 2
    assert [(key.key, key.records) for key in both.hot_keys] == [((1, "x"), 4), ((2, "y"), 1)]


def test_the_rate_of_a_paced_source_carries_over_to_what_it_feeds() -> None:
    flow = Flow("paced", python_path=[str(ROOT)])
    read = flow.read({"format": "generated", "use": "jobs.trending:Tweets", "rows": 5_000, "rate": 1_000})
    read.filter(lambda tweet: len(tweet["text"]) < 20).key_by("text").reduce("count", name="counts")
    forecast = flow.job().forecast()
    source, counts = forecast.stages
    assert (source.does, source.rate) == ("read Tweets", 1_000)
    assert forecast.estimates["counts"].basis is Basis.PER_SECOND
    assert forecast.estimates["counts"].amount == pytest.approx(1_000 * counts.sampled / 5_000)
    assert 0 < counts.sampled < 5_000


def test_an_input_without_rows_has_a_forecast_and_what_user_code_raises_on_the_sample_is_named() -> None:
    flow = Flow("empty")
    rows = flow.read(orders().slice(0, 0), name="orders").key_by("customer").reduce("count", name="counts")
    rows.key_by("count").top_k(1, by="customer", name="by_count", parallelism=4)
    for stage in flow.job().forecast().stages[1:]:
        assert (stage.sampled, stage.loads, stage.skew, stage.hot_keys) == (0, (0, 0, 0, 0), 0.0, ())
    flow = Flow("broken")
    flow.read([{"a": 1}]).map(lambda record: {"b": record["c"]}).key_by("b").reduce("count")
    with pytest.raises(ExecutorError, match="KeyError"):
        flow.job().forecast()


def test_a_join_of_samples_that_share_a_frequent_key_stays_small() -> None:
    flow = Flow("explosion")
    many = pa.table({"key": [0] * 20_000 + list(range(1, 1_001)), "at": range(21_000)})
    left, right = (flow.read(many, name=name).key_by("key") for name in ("left", "right"))
    left.join(right, name="both").key_by("key").reduce("count", name="counts")
    forecast = flow.job().forecast()
    assert [edge.records for edge in forecast.edges[:2]] == [21_000, 21_000]
    assert 0.5 * MAX_JOINED < forecast.edges[2].records < 2 * MAX_JOINED


@given(
    st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=300), min_size=1, max_size=4),
    st.lists(st.integers(0, 5), min_size=1, max_size=300),
    st.integers(1, 5_000),
)
def test_thinning_drops_no_row_of_the_right_side_and_none_at_all_while_pairs_are_few(
    lefts: list[list[int]], right: list[int], most: int
) -> None:
    blocks = [*(Block.of(pa.array(left), None, 0) for left in lefts), Block.of(pa.array(right), None, 0, side=1)]
    pairs = sum(right.count(key) for left in lefts for key in left)
    kept = list(thinned(blocks, most))
    rows = [sum(block.rows for block in kept if block.side == side) for side in (0, 1)]
    assert rows[1] == len(right)
    expected = sum(map(len, lefts)) * min(1, most / max(pairs, 1))
    if pairs <= most:
        assert kept == blocks
    assert expected / 2 - 1 <= rows[0] <= 2 * expected + 100 * len(lefts)


@st.composite
def graphs(draw: st.DrawFn, *, is_keyed: bool = True, is_whole: bool = False) -> Forecast:
    """Up to six stages with edges from earlier to later ones. A stage that no edge enters is a source, paced or not;
    some others receive records by key. The sample may be the whole input."""
    names = [f"stage {place}" for place in range(draw(st.integers(1, 6)))]
    pairs = [pair for pair in combinations(names, 2) if draw(st.booleans())]
    edges = tuple(EdgeForecast(source, target, (), draw(st.integers(0, 1_000))) for source, target in pairs)
    stages = []
    for name in names:
        records = [edge.records for edge in edges if edge.target == name]
        if records:
            made = samples.operator(name, "", sum(records))
            stages.append(replace(made, grouping="ring") if is_keyed and draw(st.booleans()) else made)
        else:
            rows = draw(st.integers(1, 1_000_000))
            rate = None if is_whole else draw(st.none() | st.floats(0.5, 1e6))
            known = rows if is_whole else draw(st.sampled_from([rows, None]))
            sampled = rows if is_whole else draw(st.integers(1, rows))
            stages.append(samples.source(name, "", known, rate=rate, sampled=sampled))
    return Forecast({}, tuple(stages), edges)


def upstream(forecast: Forecast, name: str) -> list[StageForecast]:
    """All stages whose records, or what became of them, a stage receives."""
    found: set[str] = set()
    for stage in reversed(forecast.stages):
        if stage.name == name or stage.name in found:
            found |= {forecast.edges[number].source for number in forecast.into(stage.name)}
    return [stage for stage in forecast.stages if stage.name in found]


@given(graphs(), st.floats(1.5, 100))
def test_a_stage_receives_the_sum_of_its_edges_scaled_by_rates_but_not_behind_a_key(
    forecast: Forecast, factor: float
) -> None:
    faster = tuple(
        stage if stage.rate is None else replace(stage, rate=stage.rate * factor) for stage in forecast.stages
    )
    after = replace(forecast, stages=faster).estimates
    for stage in forecast.stages:
        carried = [forecast.edge_estimates[number] for number in forecast.into(stage.name)]
        estimate = forecast.estimates[stage.name]
        if carried and {each.basis for each in carried} == {estimate.basis}:
            assert estimate.amount == pytest.approx(sum(each.amount for each in carried))
        times = factor if estimate.basis is Basis.PER_SECOND else 1
        assert after[stage.name] == replace(estimate, amount=pytest.approx(estimate.amount * times))
        if any(each.grouping is not None for each in upstream(forecast, stage.name)):
            assert estimate.amount == stage.sampled


@given(graphs(is_keyed=False))
def test_records_come_per_second_where_all_sources_upstream_are_paced_and_by_the_share_of_the_sample(
    forecast: Forecast,
) -> None:
    for stage in forecast.stages:
        before, estimate = upstream(forecast, stage.name), forecast.estimates[stage.name]
        sources = [each for each in [*before, stage] if each.kind == "source"]
        assert (estimate.basis is Basis.PER_SECOND) == all(source.rate is not None for source in sources)
        if len(sources) == 1 and sources != [stage]:
            whole = sources[0].rows if sources[0].rate is None else sources[0].rate
            expected = stage.sampled if whole is None else whole * stage.sampled / sources[0].sampled
            assert estimate.amount == pytest.approx(expected)


@given(graphs(is_whole=True))
def test_of_a_sample_that_is_the_whole_input_all_is_known(forecast: Forecast) -> None:
    for stage in forecast.stages:
        assert forecast.estimates[stage.name] == Estimate(stage.sampled, Basis.INPUT, exact=True)
    assert all(estimate.exact for estimate in forecast.edge_estimates)


@pytest.mark.parametrize(
    ("changes", "read", "received"),
    [
        ({}, Estimate(20_000_000, Basis.INPUT, True), Estimate(24_000_000, Basis.INPUT, False)),
        ({"rate": 500.0}, Estimate(500, Basis.PER_SECOND, True), Estimate(600, Basis.PER_SECOND, False)),
        ({"rows": None}, Estimate(100_000, Basis.SAMPLE, True), Estimate(120_000, Basis.SAMPLE, True)),
        ({"rows": 100_000}, Estimate(100_000, Basis.INPUT, True), Estimate(120_000, Basis.INPUT, True)),
        ({"sampled": 0}, Estimate(20_000_000, Basis.INPUT, True), Estimate(120_000, Basis.SAMPLE, True)),
        ({"sampled": 0, "rate": 500.0}, Estimate(500, Basis.PER_SECOND, True), Estimate(120_000, Basis.SAMPLE, True)),
        ({"sampled": 0, "rows": 0}, Estimate(0, Basis.INPUT, True), Estimate(120_000, Basis.INPUT, True)),
    ],
    ids=["rows", "paced", "rows not counted", "whole", "nothing sampled", "nothing sampled, paced", "no rows"],
)
def test_a_source_with(changes: dict, read: Estimate, received: Estimate) -> None:
    made = samples.word_count()
    forecast = replace(made, stages=(replace(made.stages[0], **changes), made.stages[1]))
    assert forecast.estimates == {"mapper": read, "reducer": received}


def test_what_a_paced_source_feeds_beside_one_that_is_not_is_scaled_by_rows() -> None:
    found = samples.six_stages().estimates["enriched"]
    assert found == Estimate(pytest.approx(240_000 * 200 + 350), Basis.INPUT, exact=False)


def test_hot_keys_are_those_that_make_a_task_uneven() -> None:
    keys = tuple(HotKey(key, records, records / 1_000, records, records) for key, records in (("a", 400), ("b", 2)))
    assert [key.key for key in samples.keyed("counts", "", (600, 400), hot_keys=keys).hot] == ["a"]
