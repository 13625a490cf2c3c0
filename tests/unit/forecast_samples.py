"""Made-up forecasts for the tests of plans: the papers' topologies, a diamond, and the smallest graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from dpa.driver.forecast import EdgeForecast, Forecast, StageForecast
from dpa.driver.placing import AllocatorForecast, NodeForecast, PlacementForecast
from dpa.measure.skew import skew
from dpa.result import HotKey

SAMPLED = 100_000


def source(name: str, does: str, rows: int | None = 20_000_000, **changes: Any) -> StageForecast:
    """A source of two tasks."""
    return replace(StageForecast(name, "source", does, 2, rows, None, SAMPLED, None, None), **changes)


def operator(name: str, does: str, sampled: int, tasks: int = 2) -> StageForecast:
    """A stage that receives no records by key."""
    return StageForecast(name, "operator", does, tasks, None, None, sampled, None, None)


def keyed(
    name: str, does: str, loads: Sequence[int], key: Any = "tag0", hottest: int = 0, **changes: Any
) -> StageForecast:
    """A stage that receives so many records by key on each of its tasks, of which `hottest` have one key."""
    total, tasks = sum(loads), len(loads)
    made = StageForecast(
        name=name,
        kind="operator",
        does=does,
        tasks=tasks,
        rows=None,
        rate=None,
        sampled=total,
        grouping="ring",
        strategy="adaptive",
        tokens=(64,) * tasks,
        shares=(1 / tasks,) * tasks,
        loads=tuple(loads),
        skew=skew(loads),
        distinct=20_000,
        hot_keys=(HotKey(key, hottest, hottest / total, hottest, hottest),) if hottest else (),
    )
    return replace(made, **changes)


def forecast(stages: Sequence[StageForecast], *edges: tuple[str, str, Sequence[str], int]) -> Forecast:
    """A forecast of stages, and of edges as (source, target, operators, records)."""
    made = tuple(EdgeForecast(start, end, tuple(names), records) for start, end, names, records in edges)
    return Forecast({"name": "sample"}, tuple(stages), made)


def word_count(loads: Sequence[int] = (30_000, 45_000, 21_000, 24_000), **changes: Any) -> Forecast:
    """A mapper and a reducer; `changes` are those of the latter."""
    stages = (
        source("mapper", "read parquet"),
        keyed("reducer", "reduce Count by word", loads, **{"key": "the", "hottest": 9_300, **changes}),
    )
    return forecast(stages, ("mapper", "reducer", ["map words"], sum(loads)))


def placed(nodes: int = 3) -> Forecast:
    """A word count that is placed on nodes, of which one is too busy, and one has a long name."""
    names = ["a", "$x^2$ " + "b" * 60, *(f"c{number}" for number in range(nodes - 2))][:nodes]
    found = [
        NodeForecast(name, 4.0, {"mapper": 2, "reducer": 3}, busy=0.4 * (at + 1), sent=3e6 * at, received=1e9)
        for at, name in enumerate(names)
    ]
    others = (AllocatorForecast("even", 0.25, 5e6, 0.9, 0.8), AllocatorForecast("top_down_search", refusal="too large"))
    chosen = AllocatorForecast("top_down", 0.64, 2e6, 0.8, 1.0)
    return replace(word_count(), placement=PlacementForecast("declared", 1.2, chosen, tuple(found), others))


def trending(rate: float | None = 50_000.0) -> Forecast:
    """A chain of four stages, with a hot hashtag."""
    return forecast(
        [
            source("tweets", "read Tweets", rate=rate),
            keyed("counts", "reduce Count by tag", (12_400, 71_000, 14_300, 12_900), hottest=58_000),
            keyed("partial", "reduce Ranking by letter", (9_900, 8_400), key="t", hottest=2_000),
            keyed("ranking", "reduce Ranking", (260,)),
        ],
        ("tweets", "counts", ["flat_map hashtags", "key by tag"], 110_600),
        ("counts", "partial", ["map by_letter", "key by letter"], 18_300),
        ("partial", "ranking", ["flat_map entries"], 260),
    )


def bargains(rate: float | None = None) -> Forecast:
    """Two sources, a reduce, a join, and a reduce behind a filter."""
    hot = HotKey("symbol0", 31_000, 0.31, 31_000, 31_000)
    return forecast(
        [
            source("trades", "read Trades", 4_000_000, rate=rate),
            source("quotes", "read Quotes", 6_000_000, rate=rate),
            keyed("vwap", "reduce Vwap by symbol", (38_000, 24_000, 20_000, 18_000), "symbol0", 31_000),
            keyed(
                "matched", "inner join by symbol", (39_025, 24_025, 19_025, 18_025), hot_keys=(hot,), combinable=False
            ),
            keyed("alerts", "reduce Alerts by symbol", (2_400, 2_600), "symbol7", 400),
        ],
        ("trades", "vwap", ["key by symbol"], 100_000),
        ("quotes", "matched", ["key by symbol"], 100_000),
        ("vwap", "matched", ["key by symbol"], 100),
        ("matched", "alerts", ["filter is_bargain", "map savings", "key by symbol"], 5_000),
    )


def diamond() -> Forecast:
    """A fan-out and a fan-in of stages of their own, and an edge that passes a layer."""
    return forecast(
        [
            source("requests", "read Requests", None),
            operator("errors", "map with_code", 8_000),
            operator("pages", "map by_page", 92_000, tasks=4),
            keyed("totals", "reduce Totals by page", (90_000, 56_000, 54_000), "/home", 33_000),
        ],
        ("requests", "errors", ["filter is_error"], 8_000),
        ("requests", "pages", ["filter is_page"], 92_000),
        ("errors", "totals", ["key by page"], 8_000),
        ("pages", "totals", ["key by page"], 92_000),
        ("requests", "totals", ["map bytes_sent", "key by page"], 100_000),
    )


def six_stages() -> Forecast:
    """Two sources, fan-out, two fan-ins, long names and many operators on an edge."""
    long = "audited_orders_of_the_day_by_customer_and_region"
    return forecast(
        [
            source("orders", "read Orders from s3://bucket/a/long/path/orders/2026/*.parquet", rate=12_500.0),
            source("customers", "read Customers", 350, sampled=350),
            keyed("enriched", "left join by id", (*(30_000,) * 7, 30_350), "c17", 4_100, strategy="none"),
            keyed(
                long,
                "process Audit by customer, region",
                (60_000, 9_000),
                "c17",
                50_000,
                mergeable=False,
                combinable=False,
            ),
            keyed("revenue", "reduce Sum by segment", (99_000, 8_000, 300), "retail", 90_000, strategy="halving"),
            keyed("report", "top 10 by amount, of each segment", (7, 3), grouping="key", strategy="none"),
        ],
        ("orders", "enriched", ["filter is_paid", "flat_map lines_of_order", "map in_euro", "key by id"], 240_000),
        ("customers", "enriched", ["key by id"], 350),
        ("orders", long, ["key by customer, region"], 69_000),
        ("enriched", "revenue", ["key by segment"], 107_300),
        ("revenue", "report", [], 7),
        (long, "report", ["filter is_suspicious"], 3),
    )


SAMPLES = {
    "mapper and reducer": word_count,
    "trending": trending,
    "bargains": bargains,
    "diamond": diamond,
    "six stages": six_stages,
}
"""Forecasts by what they are of."""


def chain(length: int) -> Forecast:
    """A source, and as many stages one after the other as make `length` with it."""
    names = [f"stage{place}" for place in range(length)]
    stages = [source(names[0], "read Rows"), *(operator(name, "map something", 10) for name in names[1:])]
    return forecast(stages, *((one, other, ["key by a"], 10) for one, other in pairwise(names)))
