"""How much of the input the records of a sample stand for: laws that hold for every graph, and the cases by name."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import forecast_samples as samples
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa.driver.forecast import Basis, EdgeForecast, Estimate, Forecast, StageForecast
from dpa.result import HotKey


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


@given(graphs())
def test_a_stage_receives_the_sum_of_what_its_edges_carry(forecast: Forecast) -> None:
    for stage in forecast.stages:
        carried = [forecast.edge_estimates[number] for number in forecast.into(stage.name)]
        estimate = forecast.estimates[stage.name]
        if carried and {each.basis for each in carried} == {estimate.basis}:
            assert estimate.amount == pytest.approx(sum(each.amount for each in carried))


@given(graphs(is_keyed=False))
def test_records_come_per_second_where_all_sources_upstream_are_paced_and_nowhere_else(forecast: Forecast) -> None:
    for stage in forecast.stages:
        sources = [each for each in [*upstream(forecast, stage.name), stage] if each.kind == "source"]
        is_paced = all(source.rate is not None for source in sources)
        assert (forecast.estimates[stage.name].basis is Basis.PER_SECOND) == is_paced


@given(graphs(is_keyed=False))
def test_a_stage_with_one_source_receives_its_rate_or_rows_by_the_share_of_the_sample(forecast: Forecast) -> None:
    for stage in forecast.stages:
        sources = [each for each in upstream(forecast, stage.name) if each.kind == "source"]
        if len(sources) != 1:
            continue
        whole = sources[0].rows if sources[0].rate is None else sources[0].rate
        expected = stage.sampled if whole is None else whole * stage.sampled / sources[0].sampled
        assert forecast.estimates[stage.name].amount == pytest.approx(expected)


@given(graphs(), st.floats(1.5, 100))
def test_rates_scale_what_comes_per_second_and_nothing_else(forecast: Forecast, factor: float) -> None:
    faster = tuple(
        stage if stage.rate is None else replace(stage, rate=stage.rate * factor) for stage in forecast.stages
    )
    after = replace(forecast, stages=faster).estimates
    for name, before in forecast.estimates.items():
        times = factor if before.basis is Basis.PER_SECOND else 1
        assert after[name] == replace(before, amount=pytest.approx(before.amount * times))


@given(graphs())
def test_nothing_is_scaled_behind_a_stage_that_receives_by_key(forecast: Forecast) -> None:
    for stage in forecast.stages:
        if any(each.grouping is not None for each in upstream(forecast, stage.name)):
            assert forecast.estimates[stage.name].amount == stage.sampled


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
    stage = samples.keyed("counts", "", (600, 400), hot_keys=keys)
    assert [key.key for key in stage.hot] == ["a"]
