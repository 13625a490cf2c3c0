"""Small inputs of the papers' topologies, and their results in plain Python: what executors and Spark are held to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from dpa.sources.generated import GeneratedTable
from jobs.bargains import Quotes, Trades
from jobs.lines import Lines
from jobs.orders import Customers, Orders
from jobs.trending import Tweets
from jobs.weblog import Requests

TWEETS = GeneratedTable(Tweets(tags=300, period=1_000), 5_000, seed=1)
TRADES = GeneratedTable(Trades(symbols=30), 4_000, seed=2)
QUOTES = GeneratedTable(Quotes(symbols=30), 6_000, seed=3)
LINES = GeneratedTable(Lines(words=200), 3_000, seed=4)
ORDERS = GeneratedTable(Orders(customers=400), 5_000, seed=5)
CUSTOMERS = GeneratedTable(Customers(segments=7), 350, seed=6)
REQUESTS = GeneratedTable(Requests(pages=100), 5_000, seed=7)

Rows = list[dict[str, Any]]


def rows_of(table: GeneratedTable) -> pa.Table:
    """All rows of a generated table."""
    batches = (batch for split in table.splits(1_000) for batch in split.batches(1_000))
    return pa.Table.from_batches(batches, table.schema)


def ranked(names: Iterable[str], column: str, k: int = 10) -> Rows:
    """The `k` names that come most often, the lesser name first among equals."""
    counts = sorted(Counter(names).items(), key=lambda item: (-item[1], item[0]))
    return [{column: name, "count": count} for name, count in counts[:k]]


def trending(tweets: pa.Table) -> Rows:
    return ranked((tag for text in tweets["text"].to_pylist() for tag in re.findall(r"#(\w+)", text)), "tag")


def top_pages(requests: pa.Table) -> Rows:
    return ranked(requests["page"].to_pylist(), "page")


def words(lines: pa.Table) -> dict[str, int]:
    return Counter(word for line in lines["value"].to_pylist() for word in line.split(" "))


def vwap(trades: pa.Table) -> dict[str, tuple[int, int]]:
    """The notional and the volume of each symbol."""
    sums: dict[str, tuple[int, int]] = {}
    for trade in trades.to_pylist():
        notional, volume = sums.get(trade["symbol"], (0, 0))
        sums[trade["symbol"]] = notional + trade["price"] * trade["volume"], volume + trade["volume"]
    return sums


def bargains(trades: pa.Table, quotes: pa.Table) -> dict[str, tuple[int, float]]:
    """The number of bargains of each symbol, and the greatest saving."""
    averages, found = vwap(trades), {}
    for quote in quotes.to_pylist():
        symbol, price = quote["symbol"], quote["price"]
        if symbol in averages and price / (averages[symbol][0] / averages[symbol][1]) < 0.98:
            saving = quote["size"] * (averages[symbol][0] / averages[symbol][1] - price)
            number, most = found.get(symbol, (0, 0.0))
            found[symbol] = number + 1, max(most, saving)
    return found


def revenue(orders: pa.Table, customers: pa.Table) -> dict[str, int]:
    """The amount of all orders of each segment."""
    segments = {row["customer"]: row["segment"] for row in customers.to_pylist()}
    sums: Counter[str] = Counter()
    for order in orders.to_pylist():
        if order["customer"] in segments:
            sums[segments[order["customer"]]] += order["amount"]
    return dict(sums)


def errors(requests: pa.Table) -> dict[str, tuple[int, int | None]]:
    """The bytes and the errors of each page, None for none."""
    sizes: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for request in requests.to_pylist():
        sizes[request["page"]] += request["bytes"]
        failed[request["page"]] += request["status"] == 500
    return {page: (size, failed[page] or None) for page, size in sizes.items()}
