"""A real Prometheus scrapes a running job by the configuration that `dpa init --monitoring` writes, and its alert rules
and the dashboard find series there."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka_broker import kafka_broker, make_topic, produce
from prometheus_server import free_port, prometheus

from dpa import Flow, tumbling
from dpa._init import init

pytestmark = pytest.mark.usefixtures("ray")

TOKEN = "a-token-of-sixteen-characters-or-more"
PAGES = [f'{{"page": "p{number % 5}"}}'.encode() for number in range(50)]

FIRE = {"DpaRecordsLeftOut"}
"""Alerts of this job."""

MAY_LACK = {"dpa_job_bottleneck", "changes(dpa_job_restarts_total"}
"""What a healthy job has no series of."""


class Watched:
    """A job in a thread, with all that has metrics: a topic, windows, keys of unequal frequency, checkpoints, and
    records that are left out."""

    def __init__(self, directory: Path, servers: str, door: Mapping[str, Any]) -> None:
        self.done = threading.Event()
        self.flow = flow = Flow(
            "watched",
            until={"seconds": 200},
            checkpoint={"path": str(directory / "checkpoints"), "every": "500ms"},
            door=door,
        )
        kafka = {"servers": servers, "topic": "pages", "value": "json", "columns": {"page": "string"}}
        pages = flow.read({"format": "kafka", "kafka": kafka}, name="pages", parallelism=1)
        pages.key_by("page").reduce("count", name="views", parallelism=1)

        def known(visit: dict[str, Any]) -> dict[str, Any]:
            if visit["user"] == 13:
                raise ValueError("thirteen is unknown")
            return visit

        users = {"users": 50, "exponent": 1.5, "period": 1_000_000}
        read = {"format": "generated", "use": "jobs.sessions:Visits", "args": users, "rows": None, "rate": 5_000}
        visits = flow.read(read, name="visits", time={"column": "time", "unit": "s"}, parallelism=1)
        rows = visits.map(known, on_error="skip").window(tumbling("60s"))
        rows.key_by("user").reduce("count", name="counts", parallelism=2)

    def run(self) -> None:
        self.flow.run(closes=self.done.is_set)

    def __enter__(self) -> Watched:
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.done.set()
        self.thread.join()


def expressions(dashboard: Mapping[str, Any]) -> list[str]:
    """The queries of all panels and of the notes on them, with what Grafana puts in place of the variables."""
    given = {"$job": "watched", "$stage": ".*", "$__rate_interval": "10s"}
    targets = [target for panel in dashboard["panels"] for target in panel.get("targets", ())]
    queries = [each["expr"] for each in (*targets, *dashboard["annotations"]["list"])]
    return [re.sub(r"\$\w+", lambda name: given[name[0]], query) for query in queries]


def test_prometheus_scrapes_a_job_and_finds_series_for_alerts_and_the_dashboard(tmp_path: Path) -> None:
    ops = tmp_path / "monitoring"
    init(ops, monitoring=True)
    (ops / "token").write_text(f"{TOKEN}\n", encoding="utf-8")
    dashboard = json.loads((ops / "dpa-dashboard.json").read_text(encoding="utf-8"))
    [group] = yaml.safe_load((ops / "dpa-alerts.yml").read_text(encoding="utf-8"))["groups"]
    door = {"port": free_port(), "token_file": str(ops / "token")}
    with kafka_broker() as servers:
        make_topic(servers, "pages", partitions=2)
        produce(servers, "pages", PAGES)
        with (
            Watched(tmp_path, servers, door),
            prometheus(tmp_path, ops / "prometheus.yml", [f"127.0.0.1:{door['port']}"]) as server,
        ):
            server.wait_for('dpa_checkpoints_written_total{job="watched"} > 2')
            for query in expressions(dashboard):
                if not any(name in query for name in MAY_LACK):
                    server.wait_for(query)
            for rule in group["rules"]:
                for series in re.findall(r"\b(?:dpa_\w+|up)(?:{[^}]*})?", rule["expr"]):
                    server.wait_for(series)
                if rule["alert"] not in FIRE:
                    server.wait_for_none(rule["expr"])
            [alert] = server.wait_for('ALERTS{alertstate="firing"}')
            assert alert["metric"]["alertname"] == "DpaRecordsLeftOut" and alert["metric"]["job"] == "watched"
            [target] = server.targets()
            assert (target["health"], target["lastError"]) == ("up", "")
            # Only OpenMetrics has units.
            assert server.metadata()["dpa_checkpoint_age_seconds"][0]["unit"] == "seconds"
            [read] = server.query('dpa_rows_read_total{job="watched", stage="pages"}')
            assert read["value"][1] == str(len(PAGES))
