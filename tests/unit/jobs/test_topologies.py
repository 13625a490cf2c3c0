"""The papers' topologies stage by stage in this process: each stage's table is the next one's input."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from inspect import isfunction
from typing import Any, get_type_hints

import numpy as np
import pyarrow as pa
import pytest
import topologies as oracle
from topologies import CUSTOMERS, LINES, ORDERS, QUOTES, REQUESTS, TRADES, TWEETS, rows_of

import jobs.paced
from dpa.aggregates import Count, Sum
from dpa.execution.row_operators import call_on_batch
from dpa.executors import Record
from dpa.operators import RowKind, RowOperator, as_row_operator
from dpa.testing import check_reducer_laws, run_local
from jobs.bargains import Alerts, Vwap, is_bargain, prices, savings
from jobs.costs import Cost, Costly
from jobs.orders import Orders
from jobs.ranking import Ranking, entries
from jobs.trending import Tweets, by_letter, hashtags
from jobs.weblog import is_error
from jobs.wordcount import words


def pairs_of(rows_of: Callable[[Record], Iterator[Record]], key: str) -> Any:
    """A `flat_map` function and the key of the edge behind it, as a mapper."""

    def pairs(record: Record) -> Iterator[tuple[Any, Any]]:
        for row in rows_of(record):
            yield row[key], {name: value for name, value in row.items() if name != key} or None

    return pairs


def filtered(table: pa.Table, keep: Callable[[pa.RecordBatch], pa.BooleanArray]) -> pa.Table:
    return after(as_row_operator(RowKind.FILTER, keep), table)


def mapped(table: pa.Table, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> pa.Table:
    return after(as_row_operator(RowKind.MAP, change), table)


def after(operator: RowOperator, table: pa.Table) -> pa.Table:
    """The rows that an operator on batches makes of a table's."""
    made = (call_on_batch(operator, batch) for batch in table.to_batches())
    return pa.concat_tables(pa.table(rows) for rows in made)


def final_ranking(rows: pa.Table, name: str) -> list[Record]:
    """The last stage, whose key is one for all rows."""
    with_key = rows.append_column("all", pa.array(["all"] * rows.num_rows))
    return run_local(None, Ranking(name), with_key, key="all", value=[name, "count"])["ranking"].to_pylist()[0]


# --- functions on batches


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


# --- the topologies


def test_trending_topics_are_ranked_by_letter_and_then_together() -> None:
    tweets = rows_of(TWEETS)
    counts = run_local(pairs_of(hashtags, "tag"), Count(), tweets, key="tag")
    by_letters = mapped(counts, by_letter)
    partial = run_local(None, Ranking("tag"), by_letters, key="letter", value=["tag", "count"])
    assert partial.num_rows == 26
    rows = [row for record in partial.to_pylist() for row in entries(record)]
    assert final_ranking(pa.Table.from_pylist(rows), "tag") == oracle.trending(tweets)


def test_bargains_are_quotes_below_the_volume_weighted_average() -> None:
    trades, quotes = rows_of(TRADES), rows_of(QUOTES)
    averages = run_local(None, Vwap(), trades, key="symbol")
    expected = oracle.vwap(trades)
    found = {row["symbol"]: (row["notional"], row["volume"]) for row in averages.to_pylist()}
    assert found == expected
    assert averages["vwap"].to_pylist() == [expected[symbol][0] / expected[symbol][1] for symbol in sorted(expected)]
    matched = quotes.join(averages, "symbol", join_type="inner")
    alerts = run_local(None, Alerts(), mapped(filtered(matched, is_bargain), savings), key="symbol")
    of_symbol = {row["symbol"]: (row["bargains"], row["saving"]) for row in alerts.to_pylist()}
    assert of_symbol == oracle.bargains(trades, quotes)
    assert 0.02 < sum(number for number, _ in of_symbol.values()) / quotes.num_rows < 0.6


def test_generated_words_are_counted() -> None:
    lines = rows_of(LINES)
    counts = run_local(words, Count(), lines, key="word")
    assert dict(zip(*counts.to_pydict().values(), strict=True)) == oracle.words(lines)


def test_top_pages_are_ranked_from_counts() -> None:
    requests = rows_of(REQUESTS)
    counts = run_local(None, Count(), requests, key="page", value=[])
    assert final_ranking(counts, "page") == oracle.top_pages(requests)


def test_revenue_is_summed_over_joined_orders() -> None:
    orders, customers = rows_of(ORDERS), rows_of(CUSTOMERS)
    placed = orders.join(customers, "customer", join_type="inner")
    assert placed.num_rows < orders.num_rows
    found = run_local(None, Sum("amount"), placed, key="segment", value=["amount"])
    assert dict(zip(*found.to_pydict().values(), strict=True)) == oracle.revenue(orders, customers)


def test_the_diamond_joins_each_pages_traffic_with_its_errors() -> None:
    requests = rows_of(REQUESTS)
    traffic = run_local(None, Sum("bytes"), requests, key="page", value=["bytes"])
    failures = run_local(None, Count(), filtered(requests, is_error), key="page", value=[])
    pages = traffic.join(failures, "page", join_type="left outer").to_pylist()
    expected = oracle.errors(requests)
    assert {row["page"]: (row["bytes"], row["count"]) for row in pages} == expected
    assert {None} < {count for _, count in expected.values()}


@pytest.mark.parametrize(
    ("reducer", "values"),
    [
        (
            Ranking("tag", 3),
            [{"tag": tag, "count": count} for tag, count in (("a", 3), ("b", 1), ("c", 3), ("d", 9))],
        ),
        (Vwap(), [{"price": 100, "volume": 3}, {"price": 250, "volume": 5}, {"price": 70, "volume": 1}]),
        (Alerts(), [{"saving": 2.5}, {"saving": 1.0}, {"saving": 7.25}]),
    ],
    ids=["ranking", "vwap", "alerts"],
)
def test_reducers_keep_the_laws_that_balancing_relies_on(reducer: Any, values: Any) -> None:
    check_reducer_laws(reducer, values)


# --- the inputs


def test_topics_drift() -> None:
    tweets = [Tweets(tags=300, period=1_000).batch(start, 1_000, np.random.default_rng(1)) for start in (0, 1_000)]
    first, second = (oracle.trending(pa.Table.from_batches([batch])) for batch in tweets)
    assert (first[0]["tag"], second[0]["tag"]) == ("a0", "h7")


def test_the_most_frequent_customer_has_the_share_that_zipf_gives_it() -> None:
    customer = Orders(customers=200_000).batch(0, 50_000, np.random.default_rng(0)).column("customer").to_numpy()
    expected = 1 / (np.arange(1, 200_001) ** -1.2).sum()
    assert np.mean(customer == 0) == pytest.approx(expected, rel=0.05)
    assert customer.max() < 200_000


def test_prices_move_little_from_one_moment_to_the_next_and_stay_near_their_level() -> None:
    walk = prices(np.array([3]), np.arange(0, 2_000_000, 10))
    assert walk.min() > 0
    assert np.abs(np.diff(walk)).max() <= 0.001 * walk.mean()
    assert 1.05 < walk.max() / walk.min() < 1.3


# --- costs


class Clock:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_cost_takes_time_for_each_record_and_sets_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(jobs.paced, "time", clock)
    batch = pa.record_batch({"n": list(range(1_000))})
    wide = Cost(micros=50, padding=16).map_batch(batch)
    assert wide.column("padding").to_pylist() == [bytes(16)] * 1_000
    assert Cost().map_batch(wide) is wide
    assert Cost(padding=0).map_batch(wide).equals(batch)
    assert clock.now == pytest.approx(0.05)


def test_a_costly_reducer_gives_what_the_other_gives_later(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(jobs.paced, "time", clock)
    trades = rows_of(TRADES)
    costly = run_local(None, Costly(Vwap(), micros=100), trades, key="symbol")
    assert costly.equals(run_local(None, Vwap(), trades, key="symbol"))
    assert clock.now == pytest.approx(0.4)
