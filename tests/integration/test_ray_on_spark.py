"""The script of docs/cluster.md that runs a job on a Ray on Spark, on a standalone cluster of Spark of this machine: a
master and a worker, of the classes that PySpark's wheel brings."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark
import pytest

from dpa.spark._java import java_home

ROOT = Path(__file__).parents[2]
[SCRIPT] = re.findall(
    r"^### Ray on Spark\n.*?^```python\n(.*?)^```", (ROOT / "docs/cluster.md").read_text(), re.M | re.S
)
SMALL = "memory_worker_node=2**29, memory_head_node=2**29, object_store_memory_worker_node=10**8, "
SMALL += "object_store_memory_head_node=10**8, head_node_options={'include_dashboard': False}, ray_temp_root_dir="
JOB = """
name: visits
python_path: ["{root}"]
input: {{path: visits.csv}}
key: page
value: seconds
reducer: {{use: sum, args: {{column: seconds}}}}
parallelism: {{mappers: 1, reducers: 2}}
reference: auto
output: {{path: out}}
"""


@contextmanager
def standalone(directory: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The master's address, and the environment of programs that use it."""
    # A token that only some of the processes know, as Spark passes no variables on, would keep them apart. Without a
    # mode, Ray's head takes one of `~/.ray` that the script does not use.
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")},
        "RAY_AUTH_MODE": "disabled",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "JAVA_HOME": str(java_home(directory)),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(directory / "work"),
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str, says: str) -> str:
        log = directory / f"{name.lower()}.log"
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        command = [
            program,
            f"org.apache.spark.deploy.{name.lower()}.{name}",
            "--host",
            "127.0.0.1",
            "--webui-port",
            "0",
        ]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, *arguments], env=variables, stdout=output, stderr=output, start_new_session=True
            )
        started.append(process)
        while not (said := re.search(says, log.read_text(errors="replace"))):
            assert process.poll() is None, log.read_text(errors="replace")
            time.sleep(0.1)
        return said[1]

    try:
        master = start("Master", "--port", "0", says=r"Starting Spark master at (spark://\S+)")
        start("Worker", "--cores", "2", "--memory", "2g", master, says="(Successfully registered with master)")
        yield master, variables
    finally:
        for process in reversed(started):
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


@pytest.mark.slow
def test_a_job_on_a_ray_on_spark_gives_what_its_reference_does(tmp_path: Path) -> None:
    rows = "".join(f"page{number % 7},{number}\n" for number in range(3_000))
    (tmp_path / "visits.csv").write_text(f"page,seconds\n{rows}", encoding="utf-8")
    (tmp_path / "visits.yaml").write_text(JOB.format(root=ROOT), encoding="utf-8")
    # Paths of Ray's sockets are short.
    with TemporaryDirectory(prefix="ros", dir="/tmp") as short, standalone(tmp_path) as (master, variables):
        script = SCRIPT.replace("spark://MASTER:7077", master)
        script = script.replace(
            "max_worker_nodes=4, num_cpus_worker_node=2", "max_worker_nodes=1, num_cpus_worker_node=1"
        )
        script = script.replace("num_gpus_worker_node=0", f"num_gpus_worker_node=0, {SMALL}{short!r}")
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^  status +ok", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^  reference +match", done.stdout, re.MULTILINE), done.stdout
    assert list((tmp_path / "out").iterdir())
