"""`dpa up`, jobs of other processes, and `dpa down`, each in a process of its own, as in a shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray  # noqa: F401 - brings psutil
from programs_for_tests import PATIENCE, wait_until

import psutil  # isort: skip

from dpa.runtime.standing import SWITCH

ROOT = Path(__file__).parents[2]

MODULE = """
import os

def look(row):
    return {"which": "WHICH", "at": os.getcwd(), "word": os.environ.get("WORD"), "left": os.environ.get("LEFT")}
"""

JOB = """
import json
import dpa
import looking

flow = dpa.Flow("looks")
flow.read([{"n": n} for n in range(9)]).map(looking.look).key_by("which").agg(
    at="max(at)", word="max(word)", left="max(left)", n="count(*)"
)
print(json.dumps(flow.run(backend="ray").table().to_pylist()))
"""

LONG = """
import os, sys, time
from pathlib import Path
import dpa
from dpa.errors import JobFailedError

begun, driver = Path("begun"), os.getpid()

def slow(row):
    if os.getpid() != driver:  # which runs it on a sample
        begun.touch()
    time.sleep(0.1)
    return row

flow = dpa.Flow("long")
flow.read([{"n": n} for n in range(100_000)]).map(slow).key_by("n").agg(count="count(*)")
try:
    flow.run(backend="ray")
except JobFailedError as error:
    sys.exit(f"failed: {error}")
"""

SPARK = """
import dpa

source = {"format": "csv", "path": "words.csv", "options": {"header": "true"}}
few = {"mappers": 1, "reducers": 1}
job = dpa.Job(input=source, key="word", reducer="count", parallelism=few, spark={"master": "local[2]"})
print(job.run(backend="ray").table().num_rows)
"""

USING = "using the session that `dpa up` started\n"


class Shell:
    """A user's shell with a temporary directory of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.begun: list[subprocess.Popen[str]] = []
        self.sessions = place / f"dpa-{os.getuid()}"
        paths = [str(ROOT), *(path for path in sys.path if path)]
        self.environment = {**os.environ, "TMPDIR": str(place), "DPA_PROGRESS": "none"}
        self.environment["PYTHONPATH"] = os.pathsep.join(paths)
        self.environment.pop(SWITCH, None)

    def begin(self, *words: str, cwd: Path | None = None, **variables: str) -> subprocess.Popen[str]:
        made = subprocess.Popen(
            [sys.executable, *words],
            cwd=cwd or self.place,
            env={**self.environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.begun.append(made)
        return made

    def run(self, *words: str, cwd: Path | None = None, **variables: str) -> tuple[int, str, str]:
        process = self.begin(*words, cwd=cwd, **variables)
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out, err

    def dpa(self, *words: str, **variables: str) -> tuple[int, str, str]:
        return self.run("-m", "dpa", *words, **variables)

    def keepers(self) -> list[psutil.Process]:
        offers = self.sessions.glob("session-*/offer.json")
        pids = [json.loads(offer.read_text())["pid"] for offer in offers]
        return [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    for process in [*made.begun, *made.keepers()]:
        process.kill()


def all_ended(processes: list[psutil.Process]) -> bool:
    return not [each for each in processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]


def test_jobs_of_two_directories_share_a_session_and_a_jvm_and_see_their_own_modules_and_variables(
    shell: Shell,
) -> None:
    status, out, _ = shell.dpa("up", WORD="zero", LEFT="over")
    assert status == 0 and out.startswith("the session is ready after "), out
    assert "; the first job that needs Spark starts it, which takes some seconds" in out, out
    [keeper] = shell.keepers()
    processes = [keeper, *keeper.children(recursive=True)]
    [logs] = Path(f"/tmp/dpa-{os.getuid()}/ray").glob(f"session_*_{keeper.pid}")

    def looked(which: str, word: str) -> list[dict[str, object]]:
        place = shell.place / which[0]
        place.mkdir(exist_ok=True)
        (place / "looking.py").write_text(MODULE.replace("WHICH", which))
        (place / "job.py").write_text(JOB)
        status, out, err = shell.run("job.py", cwd=place, WORD=word)
        assert (status, err) == (0, USING)
        found: list[dict[str, object]] = json.loads(out)
        return found

    for which, word in [("a", "one"), ("b", "two"), ("a, edited", "three")]:
        at = str(shell.place / which[0])
        assert looked(which, word) == [{"which": which, "at": at, "word": word, "left": None, "n": 9}]

    status, out, _ = shell.dpa("status")
    assert status == 0 and out.startswith("a session runs: ends in 30 min if unused, process ")
    status, out, _ = shell.dpa("up")
    assert status == 0 and out.startswith("there is a session already: ")
    assert shell.keepers() == [keeper]

    (shell.place / "words.csv").write_text("word\na\nb\na\n")
    (shell.place / "uses_spark.py").write_text(SPARK)
    jvms = []
    for _ in range(2):
        assert shell.run("uses_spark.py") == (0, "2\n", USING)
        jvms.append(int(shell.dpa("status")[1].rpartition(", Spark in process ")[2]))
    jvm = psutil.Process(jvms[0])
    assert jvms == [jvm.pid] * 2 and jvm.ppid() == keeper.pid

    processes += [jvm, *keeper.children(recursive=True)]
    assert shell.dpa("down") == (0, "the session has ended\n", "")
    wait_until(lambda: all_ended(processes))
    assert [*shell.sessions.iterdir()] == []
    assert not logs.exists()
    assert shell.dpa("down") == (0, "there is no session\n", "")
    assert shell.dpa("status") == (1, "there is no session; to start one: dpa up\n", "")


def test_a_session_that_is_not_used_ends(shell: Shell) -> None:
    assert shell.dpa("up", "--idle", "0.01")[0] == 0
    wait_until(lambda: not any(shell.sessions.iterdir()))


@pytest.mark.parametrize("how", ["killed", "ended by force"])
def test_a_session_that_ends_during_a_job_fails_it_and_the_next_job_does_without(shell: Shell, how: str) -> None:
    assert shell.dpa("up")[0] == 0
    (shell.place / "long.py").write_text(LONG)
    long = shell.begin("long.py")
    wait_until((shell.place / "begun").exists)
    [keeper] = shell.keepers()
    processes = [keeper, *keeper.children(recursive=True)]
    status, _, err = shell.dpa("down")
    assert status == 1
    assert err == "error: the session stays: 1 process uses it; to end it all the same: dpa down --force\n"
    if how == "killed":
        keeper.kill()
    else:
        assert shell.dpa("down", "--force")[0] == 0
    _, err = long.communicate(timeout=PATIENCE)
    said = "failed: the session that `dpa up` started has ended, and Ray with it: run the job again\n"
    assert (long.returncode, err) == (1, USING + said)
    wait_until(lambda: all_ended(processes))
    if how == "ended by force":
        wait_until(lambda: not any(shell.sessions.iterdir()))
        return
    (shell.place / "looking.py").write_text(MODULE)
    (shell.place / "job.py").write_text(JOB)
    status, out, err = shell.run("job.py")
    assert (status, err) == (0, "")
    assert json.loads(out)[0]["n"] == 9
    assert not [*shell.sessions.glob("session-*")], "what the killed one left is removed"
