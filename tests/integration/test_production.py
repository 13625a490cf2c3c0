"""docs/production.md on a local cluster, whose head has one processor and whose autoscaler starts nodes of two.

The nodes are Ray's own fake ones. `ray.cluster_utils.AutoscalingCluster` needs a file that Ray's wheel does not have,
and ends all Rays of the machine, so the head is started here.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from programs_for_tests import PATIENCE, wait_until
from ray._private.services import get_node_ip_address

PAGE = (Path(__file__).parents[2] / "docs" / "production.md").read_text(encoding="utf-8")
PROGRAMS = Path(sys.executable).parent
PAUSE = 2  # seconds: what is asked may be a command, whose process takes a second of a processor
HEAD_NODE = f"{0:056x}".replace("0", "f", 51)
"""By which Ray's fake provider knows the head."""

LISTS = (
    *("initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands"),
    *("head_start_ray_commands", "worker_start_ray_commands", "rsync_exclude", "rsync_filter"),
)
FAKE: dict[str, Any] = {
    "cluster_name": "fake",
    "max_workers": 3,
    "upscaling_speed": 3.0,
    "idle_timeout_minutes": 5,
    "head_node_type": "ray.head.default",
    "available_node_types": {
        "ray.head.default": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0},
        "worker": {
            "resources": {"CPU": 2, "object_store_memory": 80_000_000},
            "node_config": {},
            "min_workers": 0,
            "max_workers": 3,
        },
    },
    "auth": {"ssh_user": "nobody"},
    "docker": {},
    "file_mounts": {},
    "file_mounts_sync_continuously": False,
    "cluster_synced_files": [],
    **{name: [] for name in LISTS},
}


class Growing:
    """The cluster, in a directory where its commands run.

    Attributes:
        address: of Ray.
        page: of its dashboard.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with ExitStack() as stack:
            ports = []
            for _ in range(3):
                found = stack.enter_context(socket.socket())
                found.bind(("", 0))
                ports.append(found.getsockname()[1])
        port, page, self._client = ports
        self.address, self.page = f"{get_node_ip_address()}:{port}", f"http://127.0.0.1:{page}"
        self._ports = port, page
        own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
        programs = directory / "bin"
        programs.mkdir()
        command = programs / "dpa"  # as the package installs it
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m dpa "$@"\n', encoding="utf-8")
        command.chmod(0o755)
        self.environment = {**os.environ, **own, "PATH": f"{programs}:{PROGRAMS}:{os.environ['PATH']}"}

    def __enter__(self) -> Growing:
        provider = {
            "type": "fake_multinode",
            "head_node_id": HEAD_NODE,
            "gcs_address": self.address,
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
        }
        config = self.directory / "nodes.json"
        config.write_text(json.dumps({**FAKE, "provider": provider}), encoding="utf-8")
        names = {"RAY_FAKE_CLUSTER": "1", "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_NODE}
        port, page = self._ports
        command = ["ray", "start", "--head", "--block", f"--port={port}", "--num-cpus=1"]
        command += [f"--dashboard-port={page}", "--dashboard-agent-listen-port=0", f"--autoscaling-config={config}"]
        command += [f"--ray-client-server-port={self._client}", "--object-store-memory=100000000"]
        self._head = subprocess.Popen(
            command,
            cwd=self.directory,
            env={**self.environment, **names, "RAY_NODE_TYPE_NAME": "head", "AUTOSCALER_UPDATE_INTERVAL_S": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until(lambda: self.run("ray", "job", "list", "--address", self.page).returncode == 0, PAUSE)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        head = psutil.Process(self._head.pid)
        for process in [head, *head.children(recursive=True)]:
            process.kill()
        self._head.wait()

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Growing]:
    """For all tests of the file."""
    with Growing(tmp_path_factory.mktemp("production")) as found:
        yield found


def test_a_stream_is_submitted_scaled_stopped_and_continued_as_the_page_says(cluster: Growing) -> None:
    job = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]
    (cluster.directory / "visits.yaml").write_text(job, encoding="utf-8")
    (cluster.directory / "visits").mkdir()
    rows = [{"page": f"page {number % 7}", "seconds": number} for number in range(1_000)]
    (cluster.directory / "visits" / "one.json").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    for block in re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            words = shlex.split(line.replace("HEAD:6379", cluster.address).replace("http://HEAD:8265", cluster.page))

            def is_done(line: str = line, words: list[str] = words) -> bool:
                done = cluster.run(*words)
                print(line, done.stdout, done.stderr, sep="\n")
                return done.returncode == 0 and ("list" not in words or "stream" in done.stdout)

            if "control" in words:  # the job may not be that far yet
                wait_until(is_done, PAUSE)
            else:
                assert is_done()
    report = cluster.directory / "report" / "report.json"
    wait_until(report.exists, PAUSE)
    found = json.loads(report.read_text(encoding="utf-8"))
    assert found["status"] == "ok"
    nodes = {task["node"] for stage in found["stages"] for task in stage["tasks"]}
    assert len(nodes) > 1, "three tasks of one processor do not fit on the head"
    sums = {row["page"]: row["seconds"] for row in pq.read_table(cluster.directory / "out").to_pylist()}
    assert sums == {f"page {number}": sum(range(number, 1_000, 7)) for number in range(7)}


ELASTIC = """
import json, sys
from pathlib import Path

from dpa import Job
from dpa.telemetry.observers import Observer

class Growing(Observer):
    def update(self, snapshot):
        if len(snapshot["reducer"].present) > 1:
            Path("go").touch()

rows = [{"key": row % 40, "value": row} for row in range(20_000)]
job = {
    "name": "growing",
    "python_path": [sys.argv[2]],
    "input": {"format": "records", "records": rows},
    "key": "key",
    "value": "value",
    "reducer": {"use": "executors_for_tests:SlowSum", "args": {"seconds": 0.02, "until": str(Path("go").absolute())}},
    "parallelism": {"mappers": 1, "reducers": 1},
    "resources": {"cpus": 0, "reducers": {"cpus": 1}},
    "elastic": {"max_tasks": 3},
    "limits": {"batch_records": 20, "in_flight_records": 200, "quantum_records": 20},
}
Path("growing.json").write_text(json.dumps(job), encoding="utf-8")
report = Job.from_file("growing.json").run(Growing(), address=sys.argv[1]).report
[stage] = [stage for stage in report.stages if stage.name == "reducer"]
print(json.dumps([[task.node for task in stage.tasks], [change.reason for change in stage.changes]]))
"""


def test_an_elastic_stage_uses_the_nodes_that_the_autoscaler_starts_for_it(cluster: Growing) -> None:
    done = cluster.run(sys.executable, "-c", ELASTIC, cluster.address, str(Path(__file__).parent))
    assert done.returncode == 0, done.stderr
    nodes, reasons = json.loads(done.stdout.splitlines()[-1])
    assert len(set(nodes)) > 1
    assert reasons
