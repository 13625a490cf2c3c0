"""Jobs in threads of one process, which share one Ray and one Spark, and end with it: in programs of their own."""

import signal
import time
from pathlib import Path

from programs_for_tests import PATIENCE, begun, printed

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
    results = {"short": {"a": 2, "b": 2}, "long": {"a": 1, "c": 10}}
    assert printed(begun(PROGRAM, tmp_path)) == {"results": results, "running": False, "children": []}


INTERRUPTED = """
import atexit, threading
from dpa import Job
from executors_for_tests import SlowSum, children

atexit.register(lambda: print("children", children()))

class Streams:
    def phase(self, name, detail=""):
        if name == "stream":
            print("stream", flush=True)
    def update(self, snapshot):
        pass
    def warn(self, message):
        pass

records = [{"key": "a", "value": 1}] * 100
job = Job(input=records, reducer=SlowSum(2.0), parallelism={"mappers": 1, "reducers": 1})
thread = threading.Thread(target=job.run, args=(Streams(),))
thread.start()
thread.join()
"""


def test_ctrl_c_ends_a_job_in_another_thread_of_the_program_soon_and_leaves_nothing(tmp_path: Path) -> None:
    program = begun(INTERRUPTED, tmp_path)
    assert program.stdout is not None
    assert program.stdout.readline() == "stream\n"
    program.send_signal(signal.SIGINT)
    interrupted = time.monotonic()
    output, errors = program.communicate(timeout=PATIENCE)
    assert time.monotonic() - interrupted < 60  # the job would take 200 s
    assert output == "children []\n", errors
    assert "KeyboardInterrupt" in errors
