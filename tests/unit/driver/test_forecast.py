"""A forecast of Parquet and of tables in memory: no Spark, no JVM, which the guard of these tests sees to. Of an input
that is its own sample it is what a run comes to."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa import Flow, Job, Process
from dpa.aggregates import Sum
from dpa.driver._graph_walk import MAX_JOINED, thinned
from dpa.driver.forecast import SAMPLE_ROWS, Basis, EdgeForecast
from dpa.errors import ConfigError, ExecutorError
from dpa.execution.block import Block
from dpa.report import plan_json
from dpa.testing import LocalBackend

ROOT = Path(__file__).parents[3]
ROWS = 2 * SAMPLE_ROWS
WORDS = pa.table({"word": ["the" if row % 2 else f"word {row % 1_000}" for row in range(ROWS)], "line": range(ROWS)})


def by_word(record: dict) -> list:
    return [(record["word"], record["line"])]


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("forecast") / "words.parquet"
    pq.write_table(WORDS, path, row_group_size=10_000)
    return path


def test_parquet_is_sampled_without_spark(words: Path) -> None:
    job = Job(input={"format": "parquet", "path": str(words)}, key="word", value=[], reducer="count")
    mapper, reducer = job.forecast().stages
    assert (mapper.rows, mapper.sampled, reducer.sampled) == (ROWS, SAMPLE_ROWS, SAMPLE_ROWS)
    assert reducer.distinct == 501
    assert [key.key for key in reducer.hot] == ["the"]
    assert reducer.hot[0].share == pytest.approx(0.5, abs=0.01)


def test_so_is_it_for_a_mapper(words: Path) -> None:
    job = Job(input={"format": "parquet", "path": str(words)}, mapper=by_word, key="word", reducer="count")
    found = job.forecast()
    assert found.stages[1].distinct == 501
    assert found.edges == (EdgeForecast("mapper", "reducer", ("map by_word", "combine if that pays"), SAMPLE_ROWS),)


def test_parquet_is_validated_without_spark(words: Path) -> None:
    job = Job(input={"format": "parquet", "path": str(words)}, key="word", reducer="sum")
    with pytest.raises(ConfigError, match="reads the column 'value'"):
        job.forecast()


def test_a_plan_is_json_without_secrets() -> None:
    records = [{"key": b"\xff"}, {"key": b"a"}]
    job = Job(input=records, reducer="count", spark={"conf": {"password": "x"}})
    plan = json.loads(plan_json(job.forecast()))
    source, reducer = plan["stages"]
    assert plan["schema"] == "dpa-plan-2"
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


def twice(order: dict[str, Any]) -> list[dict[str, Any]]:
    return [order, order]


def is_large(order: dict[str, Any]) -> bool:
    return order["amount"] > 1_000


def with_tax(order: dict[str, Any]) -> dict[str, Any]:
    return {**order, "tax": order["amount"] // 5}


def chain() -> Flow:
    flow = Flow("chain")
    totals = (
        flow.read(orders(), name="orders")
        .flat_map(twice)
        .key_by("customer")
        .reduce("count", name="counts", combiner=False)
    )
    counted = totals.key_by("count").reduce(Sum("customer"), name="by_count")
    counted.key_by(None).reduce(Sum("customer"), name="all")
    return flow


def fan_out_and_in() -> Flow:
    flow = Flow("fan")
    read = flow.read(orders(), name="orders")
    taxed = read.filter(is_large).map(with_tax, name="taxed", parallelism=3)
    read.union(taxed).key_by("customer", value="amount").reduce(
        Sum("amount"), name="sums", grouping="key", balance="none"
    )
    return flow


def joined() -> Flow:
    flow = Flow("joined")
    customers = flow.read(pa.table({"id": range(8), "name": list("abcdefgh")}), name="customers")
    both = (
        flow.read(orders(), name="orders")
        .key_by("customer")
        .join(customers.key_by("id"), "left", name="both", broadcast_mb=0)
    )
    both.key_by("name").reduce("count", name="names")
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


def test_a_graph_says_what_its_stages_and_edges_do() -> None:
    forecast = fan_out_and_in().job().forecast()
    assert [(stage.name, stage.kind, stage.does, stage.grouping, stage.tasks) for stage in forecast.stages] == [
        ("orders", "source", "read a table", None, 2),
        ("taxed", "operator", "map with_tax", None, 3),
        ("sums", "operator", "reduce Sum by customer", "key", 4),
    ]
    assert {(edge.source, edge.target): edge.operators for edge in forecast.edges} == {
        ("orders", "taxed"): ("filter is_large",),
        ("orders", "sums"): ("key by customer",),
        ("taxed", "sums"): ("key by customer",),
    }
    of_join = {(edge.source, edge.target): edge.operators for edge in joined().job().forecast().edges}
    assert of_join["orders", "both"] == ("key by customer",)
    assert of_join["customers", "both"] == ("key by id",)


def test_a_function_of_the_key_is_named_and_so_is_a_combiner() -> None:
    flow = Flow("lengths")
    flow.read(orders(), name="orders").key_by(is_large).reduce("count", combiner=True)
    [edge] = flow.job().forecast().edges
    assert edge.operators == ("key by is_large", "combine")


def test_a_combiner_makes_loads_smaller_and_leaves_the_records_that_count() -> None:
    job = Job(input=orders(), key="customer", value=[], reducer="count", combiner=True)
    _, reducer = job.forecast().stages
    assert reducer.sampled == 3_000
    assert sum(reducer.loads) == reducer.distinct == 6


def test_a_process_cannot_be_split_and_a_join_not_combined() -> None:
    def found(flow: Flow) -> dict[str, tuple[bool, bool]]:
        stages = flow.job().forecast().stages
        return {stage.name: (stage.mergeable, stage.combinable) for stage in stages if stage.grouping}

    assert found(processed()) == {"seen": (False, False), "pairs": (True, True)}
    assert found(joined()) == {"both": (True, False), "names": (True, True)}


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
    read.filter(is_short).key_by("text").reduce("count", name="counts")
    forecast = flow.job().forecast()
    source, counts = forecast.stages
    assert (source.does, source.rate) == ("read Tweets", 1_000)
    assert forecast.estimates["counts"].basis is Basis.PER_SECOND
    assert forecast.estimates["counts"].amount == pytest.approx(1_000 * counts.sampled / 5_000)
    assert 0 < counts.sampled < 5_000


def is_short(tweet: dict[str, Any]) -> bool:
    return len(tweet["text"]) < 20


def test_an_input_without_rows_has_a_forecast() -> None:
    flow = Flow("empty")
    rows = flow.read(orders().slice(0, 0), name="orders").key_by("customer").reduce("count", name="counts")
    rows.key_by("count").top_k(1, by="customer", name="by_count", parallelism=4)
    for stage in flow.job().forecast().stages[1:]:
        assert (stage.sampled, stage.loads, stage.skew, stage.hot_keys) == (0, (0, 0, 0, 0), 0.0, ())


def test_the_last_stage_is_not_run() -> None:
    def never(left: Any, right: Any) -> Any:
        raise AssertionError("the result is not needed")

    assert Job(input=orders(), key="customer", value=["amount"], reducer=never).forecast().stages[1].sampled == 3_000


def test_what_user_code_raises_on_the_sample_is_named() -> None:
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
