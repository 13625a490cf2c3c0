"""What jobs of a session share, and what none of them sees of another."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import executors_for_tests as executors
import pytest
from programs_for_tests import PATIENCE, begun, has_ended, printed, wait_until

import dpa
from dpa import Job, RunningJob
from dpa.errors import ConfigError, JobFailedError
from dpa.runtime._processes import Spares
from dpa.sessions import Session

FEW = {"mappers": 1, "reducers": 1}


@pytest.fixture(scope="module")
def _session(ray: None) -> Iterator[None]:
    """A session whose second job begins with this one's first test: on the Ray of all tests, of this process."""
    with dpa.session():
        asked(lambda: None)
        yield


in_session = pytest.mark.usefixtures("_session")


def asked(question: Callable[[], Any]) -> Any:
    """What the task of a mapper says, in a job of its own."""

    def tell(record: dict[str, int]) -> Iterator[tuple[str, int]]:
        yield json.dumps([question(), os.getpid()]), 1

    result = Job(input=[{"n": 1}], mapper=tell, reducer="count", key="word", parallelism=FEW).run()
    [said] = result.table()["word"].to_pylist()
    answer, pid = json.loads(said)
    wait_until(lambda: has_ended(pid))  # a process that was a task ends with its job
    return answer


def what_is_seen() -> list[Any]:
    """Of another job's doings, in a task."""
    import psutil  # Ray brings it

    leaked = getattr(executors, "leaked", None)
    files = [each.path for each in psutil.Process().open_files() if "left-open" in each.path]
    threads = [thread.name for thread in threading.enumerate() if thread.name == "left"]
    memory = psutil.Process().memory_info().rss > 800 * 2**20
    return [leaked, os.environ.get("LEFT"), "left-directory" in str(Path.cwd()), files, threads, memory]


@in_session
def test_what_a_job_leaves_in_its_tasks_is_not_seen_by_the_next(tmp_path: Path) -> None:
    place = tmp_path / "left-directory"
    place.mkdir()

    def leave() -> list[Any]:
        executors.leaked = len(executors.__name__)  # type: ignore[attr-defined]
        os.environ["LEFT"] = "here"
        os.chdir(place)
        executors.kept = os.open("left-open", os.O_CREAT | os.O_WRONLY), b"x" * 900 * 2**20  # type: ignore[attr-defined]
        threading.Thread(target=time.sleep, args=(600,), name="left", daemon=True).start()
        return what_is_seen()

    clean = [None, None, False, [], [], False]
    assert asked(what_is_seen) == clean
    assert asked(leave) == [len(executors.__name__), "here", True, [str(place / "left-open")], ["left"], True]
    assert asked(what_is_seen) == clean


@in_session
def test_code_that_has_changed_on_disk_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = tmp_path / "job.yaml"
    job.write_text(
        "{name: versions, input: {format: records, records: [{n: 1}]}, mapper: 'of_this_job:words', key: word, "
        "reducer: count, parallelism: {mappers: 1, reducers: 1}}"
    )
    for version in ("old", "newer"):
        (tmp_path / "of_this_job.py").write_text(f"def words(record):\n    yield {version!r}, 1\n")
        assert Job.from_file(job).run().table()["word"].to_pylist() == [version]
    sys.modules.pop("of_this_job")


@in_session
def test_tasks_have_the_environment_directory_and_path_that_the_driver_has_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen() -> list[Any]:
        paths = [path for path in sys.path if Path(path).name in ("first", "second")]
        return [os.environ.get("SET"), str(Path.cwd()), [Path(path).name for path in paths]]

    before = str(Path.cwd())
    monkeypatch.setenv("SET", "then")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "second"))
    monkeypatch.syspath_prepend(str(tmp_path / "first"))
    assert asked(seen) == ["then", str(tmp_path), ["first", "second"]]
    monkeypatch.undo()
    assert asked(seen) == [None, before, []]


@in_session
def test_a_task_that_dies_takes_a_process_that_is_up_and_leaves_the_next_job_alone(tmp_path: Path) -> None:
    given = [{"key": "k", "value": number} for number in (1, 13, 13)]
    job = Job(input=given, reducer=executors.die_on_thirteen, parallelism=FEW, recovery={"attempts": 1, "backoff": 0})
    with pytest.raises(JobFailedError, match=r"^reducer 0 died: .*; so it was in each of 2 generations$"):
        job.run()
    assert asked(lambda: 6 * 7) == 42


@in_session
def test_a_job_whose_coordinator_was_up_before_it_is_found_by_its_name(tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = Job(input=[{"key": "k", "value": 1}] * 10, reducer=executors.Waiting(str(go)), parallelism=FEW, name="found")
    running = threading.Thread(target=job.run)
    running.start()
    name = f"found-{os.getpid()}"
    wait_until(lambda: name in names() and RunningJob.find("found").status() is not None)
    assert RunningJob.find("found").name == name
    go.touch()
    running.join()
    assert name not in names()


def names() -> list[str]:
    """Those of the jobs that run on this machine, of other tests too."""
    return [job.name for job in RunningJob.all()]


@in_session
def test_jobs_in_threads_share_a_session_and_sessions_may_be_nested() -> None:
    found: list[Any] = []

    def run(number: int) -> None:
        with dpa.session():
            found.append(asked(lambda: number))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 1]
    assert asked(lambda: "goes on") == "goes on"


def test_closing_twice_does_no_harm_and_a_session_can_be_opened_again() -> None:
    session = Session()
    with session:
        session.close()
    with session.open(), pytest.raises(ConfigError, match=r"this is dpa\.session\(\)"):
        dpa.Flow("windows").read([{"at": 1}]).window(session)


@pytest.mark.usefixtures("ray")
def test_spares_that_have_died_are_not_taken() -> None:
    from dpa.runtime._processes import StageActor

    with closing(Spares(lambda: True)) as spares:
        spares.leave({(StageActor, None): 2}, tasks=2)
        pids = [ray_get(spare.handle.reset.remote(0)).pid for spare in spares._free]
        os.kill(pids[0], signal.SIGKILL)
        wait_until(lambda: spares.check() or len(spares._free) < 2)
        left = spares.take(StageActor)
        assert left is not None and ray_get(left.handle.reset.remote(0)).pid == pids[1]
        assert spares.take(StageActor) is None
        spares.leave({(StageActor, None): 500}, tasks=500)
        assert len(spares._free) == max(8, 2 * (os.cpu_count() or 1)), "a session keeps so many at most"


def ray_get(call: Any) -> Any:
    import ray

    return ray.get(call, timeout=PATIENCE)


def test_the_python_blocks_run_of_the_page_on_sessions(ray: None) -> None:
    page = (Path(__file__).parents[2] / "docs" / "sessions.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "page"}
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "sessions.md", "exec"), names)


MANY = """
import atexit, gc, json, time
import dpa
from executors_for_tests import children

atexit.register(lambda: print("children", children(), ray.is_initialized()))

def job():
    made = dpa.Job(input=[{"key": "k", "value": 1}] * 10, reducer="count", parallelism={"mappers": 1, "reducers": 1})
    [row] = made.run().table().to_pylist()
    assert 10 in row.values()

def size():
    import psutil
    this = psutil.Process()
    gc.collect()
    classes = sum(isinstance(each, type) for each in gc.get_objects())  # Ray keeps those of actors
    return this.memory_info().rss / 2**20, this.num_fds(), this.num_threads(), classes

def at_rest():
    # when processes of the last job have ended, and those for the next one have connected
    before, now = None, size()
    while before is None or now[1:] != before[1:]:
        time.sleep(0.5)
        before, now = now, size()
    return now

with dpa.session():
    for _ in range(4):
        job()
    before = at_rest()
    for _ in range(8):
        job()
    after, until = at_rest(), time.monotonic() + 300
    while time.monotonic() < until and any(found > most + 2 for most, found in zip(before[1:], after[1:])):
        after = at_rest()
    import ray
    nodes = [ray.get_runtime_context().get_node_id()]
    for name in ("raylet", "gcs_server"):
        [info] = ray._private.worker._global_node.all_processes[name]
        info.process.kill()
        info.process.wait()
        while name == "gcs_server" and ray.is_initialized():
            time.sleep(0.1)  # a minute later Ray would end this process
        job()
        nodes.append(ray.get_runtime_context().get_node_id())
    print(json.dumps([before, after, len(set(nodes))]), flush=True)
    time.sleep(600)
"""


def test_a_dozen_jobs_leave_nothing_nor_does_ctrl_c_in_the_block_and_a_ray_that_has_died_is_replaced(
    tmp_path: Path,
) -> None:
    with begun(MANY, tmp_path) as program:
        assert program.stdout is not None
        before, after, rays = json.loads(program.stdout.readline())
        program.send_signal(signal.SIGINT)
        output, errors = program.communicate(timeout=PATIENCE)
    assert after[0] - before[0] < 11, "MiB"
    assert all(found <= most + 2 for most, found in zip(before[1:], after[1:], strict=True))
    assert rays == 3
    assert output == "children [] False\n", errors
    assert errors.startswith("Traceback") and errors.endswith("KeyboardInterrupt\n"), errors


SPARK = """
import json, os, signal
import dpa
from dpa.spark import spark_session
from executors_for_tests import children

found = []
with dpa.session():
    for conf in ({}, {}, {"spark.sql.shuffle.partitions": "3"}, {"spark.sql.shuffle.partitions": "3"}):
        with spark_session("job", "local[1]", conf) as spark:
            assert spark.range(3).count() == 3
            found.append([spark.sparkContext._gateway.proc.pid, spark.conf.get("spark.sql.shuffle.partitions")])
        if len(found) == 3:
            os.killpg(found[-1][0], signal.SIGKILL)
            spark.sparkContext._gateway.proc.wait()
print(json.dumps([found, children()]))
"""


def test_spark_stays_for_a_job_that_would_start_the_same(tmp_path: Path) -> None:
    [(first, _), (second, given), (third, changed), (fourth, _)], left = printed(begun(SPARK, tmp_path))
    assert first == second != third != fourth and left == []
    assert (given, changed) == ("200", "3")


ELSEWHERE = """
import atexit, sys
import ray
import dpa
from executors_for_tests import children
from programs_for_tests import wait_until

atexit.register(lambda: print(children()))

def run_jobs():
    for line in sys.stdin:
        dpa.Job(input=[{"key": "k", "value": 1}], reducer="count", parallelism={"mappers": 1, "reducers": 1}).run()
        print("done", flush=True)

if sys.argv[1] == "its own":
    dpa.session().open()
    run_jobs()
else:
    ray.init(address="local", num_cpus=1, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    with dpa.session():
        run_jobs()
    from ray._private.state import actors
    wait_until(lambda: all(actor["State"] == "DEAD" for actor in actors().values()))
    ray.shutdown()
"""


def test_two_sessions_of_two_processes_know_nothing_of_each_other(tmp_path: Path) -> None:
    """One leaves its caller's Ray; the other, which is never closed, ends with its process."""
    programs = [begun(ELSEWHERE, tmp_path, whose) for whose in ("caller's", "its own")]
    for _ in range(2):
        for program in programs:
            assert program.stdin is not None and program.stdout is not None
            program.stdin.write("go\n")
            program.stdin.flush()
        assert [program.stdout.readline() for program in programs if program.stdout] == ["done\n"] * 2
    for program in programs:
        output, errors = program.communicate(timeout=PATIENCE)
        assert (program.returncode, output, errors) == (0, "[]\n", "")
