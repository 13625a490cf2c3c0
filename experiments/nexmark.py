"""Queries 1 to 8 of the Nexmark benchmark, each as a flow over generated persons, auctions and bids; Spark computes the
same from the same rows, and every result must equal its.

Query 4 takes the greatest bid of each auction that came while it was open, and query 6 the ten of each seller that were
closed last. Windows are of the time at which an event happened.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from dpa import Job
from dpa.runtime.cluster import ray_session
from dpa.spark import spark_session
from experiments.harness import Findings, Target, main, markdown_table, progress
from jobs.nexmark import AUCTIONS, BIDS, PERSONS

ROUNDS, QUICK_ROUNDS = 40_000, 1_000
"""Rounds of fifty events."""

QUICK = ("4 closing prices", "5 hot items")
"""The queries of the quick form: a join and two steps by key, and windows."""

TASKS = 2

_IN_TIME = """
SELECT auction, first(seller) AS seller, first(category) AS category, max(price) AS price, first(expires) AS expires
FROM bids JOIN auctions ON auction = id
WHERE bids.time BETWEEN opened AND expires
GROUP BY auction
"""

_OPEN_BIDS: dict[str, Any] = {
    "matched": {
        "from": "bids",
        "key_by": "auction",
        "join": {"with": "auctions", "key_by": "id", "value": ["seller", "category", "opened", "expires"]},
    },
    "in_time": {"from": "matched", "filter": "jobs.nexmark:is_in_time"},
}

Steps = Mapping[str, dict[str, Any]]

QUERIES: dict[str, tuple[str, Steps, str]] = {
    "1 currency": (
        "bids in another currency",
        {"result": {"from": "bids", "map": "jobs.nexmark:in_euros"}},
        "SELECT auction, bidder, price * 908 div 1000 AS price, time FROM bids",
    ),
    "2 selection": (
        "the bids for some auctions",
        {"result": {"from": "bids", "filter": "jobs.nexmark:is_chosen"}},
        "SELECT * FROM bids WHERE auction % 123 = 0",
    ),
    "3 local items": (
        "who sells what, in three states",
        {
            "near": {"from": "persons", "filter": "jobs.nexmark:is_near"},
            "items": {"from": "auctions", "filter": "jobs.nexmark:is_of_category_10"},
            "result": {
                "from": "items",
                "key_by": "seller",
                "value": ["id"],
                "join": {"with": "near", "key_by": "id", "value": ["name", "city", "state"]},
            },
        },
        """SELECT seller, auctions.id, name, city, state FROM auctions JOIN persons ON seller = persons.id
        WHERE category = 10 AND state IN ('OR', 'ID', 'CA')""",
    ),
    "4 closing prices": (
        "the mean of the closing prices of each category",
        {
            **_OPEN_BIDS,
            "closed": {
                "from": "in_time",
                "key_by": ["auction", "category"],
                "reduce": {"use": "max", "args": {"column": "price"}},
            },
            "result": {"from": "closed", "key_by": "category", "reduce": {"use": "mean", "args": {"column": "price"}}},
        },
        f"SELECT category, avg(price) AS price FROM ({_IN_TIME}) GROUP BY category",
    ),
    "5 hot items": (
        "the auction with most bids of each 10 s, every 2 s",
        {
            "windows": {"from": "bids", "window": {"size": "10s", "every": "2s"}},
            "counts": {"from": "windows", "key_by": "auction", "reduce": "count"},
            "result": {"from": "counts", "top_k": {"k": 1, "by": "count"}, "value": ["auction", "count"]},
        },
        """SELECT window_start, window_end, CAST(1 AS BIGINT) AS rank, auction, count FROM (
          SELECT window.start AS window_start, window.end AS window_end, auction, count(*) AS count,
            row_number() OVER (PARTITION BY window ORDER BY count(*) DESC, auction) AS number
          FROM bids GROUP BY window(time, '10 seconds', '2 seconds'), auction
        ) WHERE number = 1""",
    ),
    "6 sellers": (
        "the mean price of the last ten auctions of each seller",
        {
            **_OPEN_BIDS,
            "closed": {
                "from": "in_time",
                "key_by": ["seller", "auction", "expires"],
                "reduce": {"use": "max", "args": {"column": "price"}},
            },
            "last": {
                "from": "closed",
                "key_by": "seller",
                "value": ["expires", "auction", "price"],
                "top_k": {"k": 10, "by": "expires"},
            },
            "result": {"from": "last", "key_by": "seller", "reduce": {"use": "mean", "args": {"column": "price"}}},
        },
        f"""SELECT seller, avg(price) AS price FROM (
          SELECT *, row_number() OVER (PARTITION BY seller ORDER BY expires DESC, auction) AS number FROM ({_IN_TIME})
        ) WHERE number <= 10 GROUP BY seller""",
    ),
    "7 highest bid": (
        "the highest bid of each 10 s",
        {
            "windows": {"from": "bids", "window": "10s"},
            "result": {
                "from": "windows",
                "value": ["auction", "bidder", "price"],
                "top_k": {"k": 1, "by": "price"},
            },
        },
        """SELECT window_start, window_end, CAST(1 AS BIGINT) AS rank, auction, bidder, price FROM (
          SELECT window.start AS window_start, window.end AS window_end, auction, bidder, price,
            row_number() OVER (PARTITION BY window ORDER BY price DESC, auction, bidder) AS number
          FROM (SELECT window(time, '10 seconds') AS window, auction, bidder, price FROM bids)
        ) WHERE number = 1""",
    ),
    "8 new users": (
        "who came and opened an auction in the same 10 s",
        {
            "came": {"from": "persons", "window": "10s"},
            "opened": {"from": "auctions", "window": "10s"},
            "result": {
                "from": "came",
                "key_by": "id",
                "value": ["name"],
                "join": {"with": "opened", "key_by": "seller", "how": "semi"},
            },
        },
        """SELECT window.start AS window_start, window.end AS window_end, id, name
        FROM (SELECT window(time, '10 seconds') AS window, id, name FROM persons)
        LEFT SEMI JOIN (SELECT window(opened, '10 seconds') AS opened, seller FROM auctions)
        ON seller = id AND opened = window""",
    ),
}
"""Of each query: what it asks for, its steps behind those that read, and what Spark computes."""


def measure(options: argparse.Namespace) -> Findings:
    """Run every query once."""
    rounds = QUICK_ROUNDS if options.quick else options.rounds
    rows = []
    with spark_session("nexmark"), ray_session(None, actors=16, object_store_mb=512):
        for name in QUICK if options.quick else QUERIES:
            what, steps, sql = QUERIES[name]
            report = _job(name, steps, sql, rounds, options.seed).run(check=False).report
            if report.error is not None or report.reference.matches is None:
                raise RuntimeError(f"query {name} failed: {report.error or report.reference.why_not}")
            found = {
                "query": name,
                "what": what,
                "equal": report.reference.matches,
                "rows": report.records.read,
                "result": report.reference.rows,
                "seconds": report.seconds.stream + report.seconds.merge,
                "differences": [str(difference) for difference in report.reference.differences[:3]],
            }
            rows.append(found)
            progress(", ".join(f"{key} {value}" for key, value in found.items() if key != "what"))
    equal = sum(row["equal"] for row in rows)
    wanted = f"{len(rows)} of {len(rows)}"
    target = Target("queries whose result equals Spark's", wanted, f"{equal} of {len(rows)}", equal == len(rows))
    return Findings(data={"rounds": rounds, "queries": rows}, targets=[target], text=_text(rows))


def _job(name: str, steps: Steps, sql: str, rounds: int, seed: int) -> Job:
    """A query over as many rounds of events."""
    stages: dict[str, dict[str, Any]] = {}
    for source, kind, count, column in (
        ("persons", "Persons", PERSONS, "time"),
        ("auctions", "Auctions", AUCTIONS, "opened"),
        ("bids", "Bids", BIDS, "time"),
    ):
        if any(source in (step["from"], step.get("join", {}).get("with")) for step in steps.values()):
            read = {"format": "generated", "use": f"jobs.nexmark:{kind}", "rows": rounds * count, "seed": seed}
            windowed = any("window" in step for step in steps.values())
            stages[source] = {"read": {**read, **({"time": column} if windowed else {})}, "parallelism": TASKS}
    keyed = {name: {"parallelism": TASKS} if "key_by" in step else {} for name, step in steps.items()}
    stages |= {name: {**step, **keyed[name]} for name, step in steps.items()}
    stages["result"]["reference"] = {"sql": sql}
    return Job(name=f"nexmark_{name.split(maxsplit=1)[0]}", stages=stages)


def _text(rows: list[dict[str, Any]]) -> str:
    head = ("query", "result", "rows read", "rows of the result", "seconds", "equals Spark's")
    body = [
        (
            row["query"],
            row["what"],
            f"{row['rows']:,}",
            f"{row['result']:,}",
            f"{row['seconds']:.1f}",
            "yes" if row["equal"] else "no",
        )
        for row in rows
    ]
    return f"Every step by key has {TASKS} tasks. The seconds are those of stream and merge.\n\n" + markdown_table(
        head, body
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of fifty events")
    main("nexmark", parser, measure)
