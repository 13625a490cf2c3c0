"""What tasks request of a real cluster of two nodes: kept for them, refused, waited for, and in placement groups.

The cluster and its jobs are one process, which is asked for everything at once: Ray starts once.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from programs_for_tests import ON_A_CLUSTER, PATIENCE

from dpa.errors import ConfigError

JOBS = """
import json, os, signal, sys
from pathlib import Path

from dpa import Job
from dpa.errors import DpaError
from dpa.telemetry.observers import Observer
from dpa.testing import LocalCluster

directory = Path(sys.argv[1])
KEYS, ROWS = 60, 6_000

class Looking(Observer):
    def __init__(self, look, warned=lambda: None):
        self.look, self.warned, self.seen, self.warnings = look, warned, [], []

    def update(self, snapshot):
        if (found := self.look(snapshot)) is not None:
            self.seen.append(found)
            (directory / "go").touch()

    def warn(self, message):
        self.warnings.append(message)
        self.warned()

def run(observer=None, **sections):
    (directory / "go").unlink(missing_ok=True)
    slow = {"use": "executors_for_tests:SlowSum", "args": {"seconds": 0.05, "until": str(directory / "go")}}
    found = {
        "name": "asking",
        "python_path": [sys.argv[2]],
        "input": {"format": "records", "records": [{"key": row % KEYS, "value": row} for row in range(ROWS)]},
        "key": "key",
        "value": "value",
        "reducer": slow if observer else "sum",
        "parallelism": {"mappers": 1, "reducers": 2},
        "balance": "none",
        "limits": {"split_records": 1_000, "batch_records": 20, "in_flight_records": 200, "quantum_records": 20},
        "recovery": {"backoff": 0},
        **sections,
    }
    print(sections, file=sys.stderr, flush=True)
    path = directory / "asking.yaml"
    path.write_text(json.dumps(found), encoding="utf-8")
    try:
        result = Job.from_file(path).run(observer)
    except DpaError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    rows = {row["key"]: row["value"] for row in result.table().to_pylist()}
    return {
        "is_right": rows == {key: sum(range(key, ROWS, KEYS)) for key in range(KEYS)},
        "nodes": [[task.node for task in stage.tasks] for stage in result.report.stages],
        "recoveries": len(result.report.recoveries),
        "warnings": observer.warnings if observer else [],
        "seen": observer.seen if observer else [],
    }

def late(*given):
    raise TimeoutError("the jobs of the cluster take too long")

signal.signal(signal.SIGALRM, late)
signal.alarm(200)  # the block is left, and the cluster ends
with LocalCluster({"one": 2, "two": 2}) as cluster:
    import ray
    from ray.util import placement_group_table

    ray.init(cluster.address, log_to_driver=False)

    def free():
        return ray.available_resources().get("CPU", 0.0)

    def states():
        return sorted(group["state"] for group in placement_group_table().values())

    def flows(snapshot):
        return snapshot.records.processed > 0

    def killed(snapshot):
        if not flows(snapshot):
            return None
        now = states()
        if "REMOVED" in now:
            return now
        for command in Path("/proc").glob("[0-9]*/cmdline"):
            if command.read_bytes().startswith(b"ray::asking reducer 1"):
                os.kill(int(command.parent.name), signal.SIGKILL)

    @ray.remote(num_cpus=2)
    class Holder:
        def here(self):
            return 0

    def freed():
        while holders:
            ray.kill(holders.pop())

    found = {}
    try:
        some = {"reducers": {"cpus": 1.5}}
        found["kept"] = run(Looking(lambda snapshot: free() if flows(snapshot) else None), resources=some)
        found["group"] = run(Looking(killed), placement={"group": "spread"})
        found["groups after"] = states()
        found["too large"] = run(resources={"cpus": 3})
        found["too many"] = run(resources={"cpus": 2})
        found["not there"] = run(resources={"custom": {"gold": 1}})
        found["strict"] = run(placement={"group": "strict_pack"})
        found["apart"] = run(placement={"group": "strict_spread"})
        found["of nothing"] = run(placement={"group": "pack"}, resources={"cpus": 0})
        found["pinned"] = run(placement={"allocator": "even", "nodes": {"one": {}}}, resources={"cpus": 1})
        holders = [Holder.remote() for _ in range(2)]
        ray.get([holder.here.remote() for holder in holders])
        waiting = Looking(lambda snapshot: True if flows(snapshot) else None, freed)
        found["waits"] = run(waiting, placement={"group": "pack"}, resources={"cpus": 0.5})
    finally:
        ray.shutdown()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the jobs of the cluster gave, by name."""
    directory = tmp_path_factory.mktemp("resources")
    done = subprocess.run(
        [sys.executable, "-c", JOBS, str(directory), str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        check=False,
        env=ON_A_CLUSTER,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return answers


def test_ray_keeps_what_tasks_request_as_long_as_they_run_and_nothing_by_default(found: dict[str, Any]) -> None:
    assert found["kept"]["is_right"]
    assert min(found["kept"]["seen"]) == 4 - 2 * 1.5, "and nothing for the mapper"


def test_a_placement_group_is_made_anew_for_each_generation_and_removed_with_it(found: dict[str, Any]) -> None:
    assert found["group"]["is_right"]
    assert found["group"]["recoveries"] == 1
    assert ["CREATED", "REMOVED"] in found["group"]["seen"]
    assert set(found["groups after"]) == {"REMOVED"}
    assert len(found["groups after"]) == 2
    assert len({node for stage in found["group"]["nodes"] for node in stage}) == 2


@pytest.mark.parametrize(
    ("job", "error"),
    [
        ("too large", "resources: each task of mapper requests 3 CPUs; the most that a node has is 2 CPUs"),
        ("too many", "resources: the tasks request 6 CPUs together; the nodes have 4 CPUs"),
        ("not there", "resources: each task of mapper requests 1 gold; the most that a node has is 0 gold"),
        ("strict", "resources: with `strict_pack` all tasks together request 3 CPUs; the most that a node has is 2"),
        ("apart", "placement.group: `strict_spread` needs a node for each task; there are 3 tasks and 2 nodes"),
        ("pinned", "resources: the tasks that are placed on one request 3 CPUs; the most that a node has is 2 CPUs"),
        ("of nothing", "placement.group: tasks of mapper request nothing, and a group is of requests"),
    ],
)
def test_a_request_that_is_never_met_is_an_error_before_anything_starts(
    found: dict[str, Any], job: str, error: str
) -> None:
    assert found[job]["error"].startswith(f"{ConfigError.__name__}: {error}")


def test_a_job_that_waits_for_resources_says_for_which_and_packs_its_tasks_once_it_has_them(
    found: dict[str, Any],
) -> None:
    assert found["waits"]["is_right"]
    words = (
        "tasks of mapper wait (1 of 1): each requests 0.5 CPUs, which no node has free; wait for other jobs, or lower"
    )
    assert any(warning.startswith(words) for warning in found["waits"]["warnings"]), found["waits"]["warnings"]
    assert len({node for stage in found["waits"]["nodes"] for node in stage}) == 1
