"""What is known of a job on Ray while it runs: hot keys, lag, checkpoints, latency, deaths, and what its tasks use."""

from pathlib import Path
from typing import Any

import pytest
from observers_for_tests import Killing

from dpa import Job
from dpa.door.view import RunView
from dpa.telemetry.tracker import TrackedSnapshot

pytestmark = pytest.mark.usefixtures("ray")


class Looking(Killing, RunView):
    """Keeps what it has seen of each fact; kills a task once there is a checkpoint, and then waits for all facts."""

    def __init__(self) -> None:
        Killing.__init__(self, "facts", "mapper 0")
        RunView.__init__(self, {"name": "facts"}, 0.0)
        self.found: dict[str, Any] = {}
        self.has_seen_all = False

    def update(self, snapshot: TrackedSnapshot) -> None:
        RunView.update(self, snapshot)
        view = self.document
        if self.kill_next(snapshot) or snapshot.generation == 0:
            return
        source, stage = view["stages"]["mapper"], view["stages"]["reducer"]
        new = {
            "hot": next(iter(stage["hot_keys"] or ()), None),
            "lag": source["lag"].get("numbers"),
            "latency": stage["latency"],
            "tries": view["checkpoints"]["tries"],
            "epoch": view["epochs"]["open"],
            "recovery": next((each for each in view["recoveries"].values() if each["seconds"]), None),
            "cpu": [task["cpu_seconds"] for task in stage["tasks"].values() if task["cpu_seconds"]],
            "refusal": next((each for each in view["decisions"].values() if each["outcome"] != "applied"), None),
        }
        self.found |= {name: fact for name, fact in new.items() if fact}
        self.has_seen_all = self.found.keys() == new.keys()


def test_a_running_job_tells_what_limits_it_and_what_it_costs(tmp_path: Path) -> None:
    looking = Looking()
    Job(
        name="facts",
        input={"format": "feed", "use": "executors_for_tests:OftenZero"},
        key="key",
        reducer="count",
        combiner=False,
        until={"seconds": 60},
        parallelism={"mappers": 2, "reducers": 2},
        checkpoint={"path": str(tmp_path / "checkpoints"), "every": "300ms"},
        recovery={"backoff": "100ms"},
        python_path=[str(Path(__file__).parent)],
    ).run(looking, closes=lambda: looking.has_seen_all)
    found = looking.found
    assert looking.has_seen_all, found
    assert found["hot"]["key"] == "0" and found["hot"]["low"] <= 0.7 <= found["hot"]["high"]
    assert found["lag"]["records"] >= 0 and found["lag"]["seconds"] >= 0
    assert 0 < found["latency"]["p50"] <= found["latency"]["p95"] <= found["latency"]["p99"]
    assert all(each["size"] > 0 and each["seconds"] > 0 for each in found["tries"].values())
    assert found["epoch"]["number"] > 1
    assert found["recovery"]["task"] == "mapper 0" and found["recovery"]["generation"] == 0
    assert found["refusal"]["reason"]
