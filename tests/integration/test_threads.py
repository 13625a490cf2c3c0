"""Two jobs at once, in threads of one process, which share one Ray and one Spark: in a program of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import json, threading, time
import ray, pyspark
from dpa import Job
from executors_for_tests import SlowSum, children, words

results = {}

def run(name, seconds):
    result = Job(
        input={"format": "csv", "path": name + ".csv", "options": {"header": "true"}},
        key="word",
        mapper=words,
        reducer=SlowSum(seconds),
        parallelism={"mappers": 1, "reducers": 1},
        reference={"sql": "SELECT value AS word, count(*) AS value FROM input GROUP BY value"},
    ).run()
    results[name] = dict(zip(*result.table().to_pydict().values(), strict=True))

# The job that starts Ray ends first, and its thread with it.
threads = [threading.Thread(target=run, args=arguments) for arguments in (("short", 0.0), ("long", 0.2))]
threads[0].start()
while not ray.is_initialized():
    time.sleep(0.01)
threads[1].start()
for thread in threads:
    thread.join()
running = ray.is_initialized() or pyspark.SparkContext._active_spark_context is not None
print(json.dumps({"results": results, "running": running, "children": children()}))
"""


def test_jobs_in_two_threads_share_one_ray_and_one_spark_and_leave_nothing(tmp_path: Path) -> None:
    for name, lines in {"short": "abab", "long": "c" * 10 + "a"}.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(["value", *lines, ""]))
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    results = {"short": {"a": 2, "b": 2}, "long": {"a": 1, "c": 10}}
    assert json.loads(done.stdout) == {"results": results, "running": False, "children": []}
