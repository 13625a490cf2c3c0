"""The job files with `stages:`, over small inputs, and their results in plain Python: what every backend and Spark are
held to."""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpa import Job
from dpa.driver.inputs import Inputs
from dpa.sources.generated import GeneratedTable
from dpa.sources.splits import Split
from jobs.bargains import Trades
from jobs.lines import Lines

CONFIGS = Path(__file__).parents[1] / "configs"

TRADES = GeneratedTable(Trades(symbols=30), 1_000, seed=2)
LINES = GeneratedTable(Lines(words=200), 600, seed=4)

Rows = list[dict[str, Any]]
Tables = Mapping[str, pa.Table]


@dataclass(frozen=True)
class Topology:
    """A job file with `stages:`.

    Attributes:
        name: of the file.
        result: the step whose rows are the result.
        edges: between its stages: what is left once steps are fused.
        settings: overrides that make the inputs small, below `stages`.
        expected: the result's rows, in any order, from the inputs by the name of the step that reads each.
        skewed: a step whose load is uneven, and can be redistributed; None: states cannot be merged.
    """

    name: str
    result: str
    edges: tuple[str, ...]
    settings: tuple[str, ...]
    expected: Callable[[Tables], Rows]
    skewed: str | None = None

    def job(self, *overrides: str) -> Job:
        """The job over small inputs, in blocks that are small as well."""
        small = [f"stages.{setting}" for setting in self.settings]
        limits = ["limits.batch_records=100", "limits.split_records=400"]
        return Job.from_file(CONFIGS / f"{self.name}.yaml", [*small, *limits, *overrides])

    def unchecked(self, *overrides: str) -> Job:
        """The job without its reference."""
        return self.job(f"stages.{self.result}.reference=null", *overrides)


def rows_of(table: GeneratedTable) -> pa.Table:
    """All rows of a generated table."""
    return _read(table.splits(1_000), table.schema)


def inputs_of(job: Job) -> Tables:
    """The rows of each input of a job that needs no Spark to read them, by the name of the step that reads it."""

    def no_spark() -> Any:
        raise AssertionError("Spark would have to read an input")

    with ExitStack() as stack:
        opened = Inputs(job.spec).open(stack, no_spark)
        return {name: _read(found.splits, found.schema) for name, found in opened.items()}


def in_order(rows: Rows) -> Rows:
    """Rows that are compared as a bag."""
    return sorted(rows, key=repr)


def _read(splits: Iterable[Split], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches((batch for split in splits for batch in split.batches(1_000)), schema)


def ranked(names: Iterable[str], column: str, k: int = 10) -> Rows:
    """The `k` names that come most often, the lesser name first among equals."""
    counts = sorted(Counter(names).items(), key=lambda item: (-item[1], item[0]))
    return [{"rank": rank, column: name, "count": count} for rank, (name, count) in enumerate(counts[:k], start=1)]


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


def bargains(trades: pa.Table, quotes: pa.Table) -> Rows:
    """The number of bargains of each symbol that has any, and the greatest saving."""
    averages = {symbol: notional / volume for symbol, (notional, volume) in vwap(trades).items()}
    savings: dict[str, list[float]] = {}
    for quote in quotes.to_pylist():
        average = averages.get(quote["symbol"], 0.0)
        if quote["price"] < 0.98 * average:
            savings.setdefault(quote["symbol"], []).append(quote["size"] * (average - quote["price"]))
    return [{"symbol": symbol, "bargains": len(found), "saving": max(found)} for symbol, found in savings.items()]


def revenue(orders: pa.Table, customers: pa.Table) -> Rows:
    """The amount of all orders of each segment."""
    segments = {row["customer"]: row["segment"] for row in customers.to_pylist()}
    sums: Counter[str] = Counter()
    for order in orders.to_pylist():
        if order["customer"] in segments:
            sums[segments[order["customer"]]] += order["amount"]
    return [{"segment": segment, "amount": amount} for segment, amount in sums.items()]


def pages(requests: pa.Table) -> Rows:
    """The bytes and the errors of each page, None for none."""
    sizes: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for request in requests.to_pylist():
        sizes[request["page"]] += request["bytes"]
        failed[request["page"]] += request["status"] == 500
    return [{"page": page, "bytes": size, "count": failed[page] or None} for page, size in sizes.items()]


def sessions(visits: pa.Table) -> Rows:
    """The visits of each user, cut where more than half an hour passes."""
    found = []
    for user in set(visits["user"].to_pylist()):
        times = sorted(row["time"] for row in visits.to_pylist() if row["user"] == user)
        starts = [place for place, time in enumerate(times) if place == 0 or time - times[place - 1] > 1_800]
        for first, end in zip(starts, [*starts[1:], len(times)], strict=True):
            found.append({"user": user, "began": times[first], "ended": times[end - 1], "visits": end - first})
    return found


def medians(readings: pa.Table) -> Rows:
    """The median of each sensor's values so far, for each reading."""
    values: defaultdict[int, list[int]] = defaultdict(list)
    found = []
    for reading in readings.to_pylist():
        values[reading["sensor"]].append(reading["value"])
        median = float(statistics.median(values[reading["sensor"]]))
        found.append({"sensor": reading["sensor"], "time": reading["time"], "median": median})
    return found


def window_of(time: datetime) -> dict[str, datetime]:
    """The ten seconds in which something happened."""
    start = time - timedelta(seconds=time.second % 10, microseconds=time.microsecond)
    return {"window_start": start, "window_end": start + timedelta(seconds=10)}


def by_window(rows: Iterable[tuple[datetime, str]]) -> dict[datetime, list[str]]:
    found: defaultdict[datetime, list[str]] = defaultdict(list)
    for time, name in rows:
        found[window_of(time)["window_start"]].append(name)
    return found


def trending_live(tweets: pa.Table) -> Rows:
    tags = ((row["time"], tag) for row in tweets.to_pylist() for tag in re.findall(r"#(\w+)", row["text"]))
    return [{**window_of(start), **row} for start, found in by_window(tags).items() for row in ranked(found, "tag")]


def campaigns(events: pa.Table) -> Rows:
    """The views of each campaign in each ten seconds."""
    views = (row for row in events.to_pylist() if row["kind"] == "view")
    named = by_window((row["time"], f"{chr(ord('a') + row['ad'] // 10 % 26)}{row['ad'] // 10}") for row in views)
    return [
        {"campaign": name, **window_of(start), "count": count}
        for start, found in named.items()
        for name, count in Counter(found).items()
    ]


TOPOLOGIES = {
    topology.name: topology
    for topology in (
        Topology(
            "trending",
            "ranking",
            ("tweets -> counts", "counts -> partial", "partial -> ranking"),
            ("tweets.read.rows=1500", "tweets.read.args={tags: 300, period: 500}"),
            lambda inputs: trending(inputs["tweets"]),
            "counts",
        ),
        Topology(
            "bargains",
            "alerts",
            ("trades -> averages", "quotes -> matched", "averages -> matched", "matched -> alerts"),
            (
                "trades.read.rows=1000",
                "trades.read.args={symbols: 30}",
                "quotes.read.rows=1500",
                "quotes.read.args={symbols: 30}",
            ),
            lambda inputs: bargains(inputs["trades"], inputs["quotes"]),
            "matched",
        ),
        Topology(
            "trending_live",
            "ranking",
            ("tweets -> counts", "counts -> ranking"),
            ("tweets.read.rows=1500", "tweets.read.rate=null", "tweets.read.args={per_second: 50, period: 500}"),
            lambda inputs: trending_live(inputs["tweets"]),
            "counts",
        ),
        Topology(
            "campaigns",
            "counts",
            ("events -> counts",),
            ("events.read.rows=6000", "events.read.rate=null", "events.read.args={per_second: 200}"),
            lambda inputs: campaigns(inputs["events"]),
            "counts",
        ),
        Topology(
            "top_pages",
            "ranking",
            ("requests -> counts", "counts -> ranking"),
            ("requests.read.rows=1500", "requests.read.args={pages: 100}"),
            lambda inputs: top_pages(inputs["requests"]),
            "counts",
        ),
        Topology(
            "orders",
            "revenue",
            ("orders -> revenue",),  # each task has all customers
            ("orders.read.rows=1500", "orders.read.args={customers: 400}", "customers.read.rows=350"),
            lambda inputs: revenue(inputs["orders"], inputs["customers"]),
            "placed",
        ),
        Topology(
            "orders_kafka",
            "revenue",
            ("orders -> revenue",),  # each task has all customers
            (
                "orders.read={format: generated, use: jobs.orders:Orders, args: {customers: 400}, rows: 1500, seed: 1}",
                "customers.read.rows=350",
            ),
            lambda inputs: revenue(inputs["orders"], inputs["customers"]),
            "placed",
        ),
        Topology(
            "pages",
            "pages",
            ("requests -> traffic", "requests -> failures", "traffic -> pages", "failures -> pages"),
            ("requests.read.rows=1500", "requests.read.args={pages: 100}"),
            lambda inputs: pages(inputs["requests"]),
            "traffic",
        ),
        Topology(
            "sessions",
            "sessions",
            ("visits -> sessions",),
            ("visits.read.rows=1500", "visits.read.args={users: 100, period: 100, step: 10, interval: 20}"),
            lambda inputs: sessions(inputs["visits"]),
        ),
        Topology(
            "medians",
            "medians",
            ("readings -> medians",),
            ("readings.read.rows=1500", "readings.read.args={sensors: 60}"),
            lambda inputs: medians(inputs["readings"]),
            "medians",
        ),
    )
}
"""By name: all that there are."""
