"""Tasks on the nodes of a real Ray: pinned where the allocator says, measured, and refused where that cannot be.

Cluster and jobs are processes of their own, as a process has one Ray at a time.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from programs_for_tests import ON_A_CLUSTER, PATIENCE

from experiments.otd.methods import METHODS, OTD

NODES = {"one": 2.0, "two": 2.0, "three": 2.0}

CLUSTER = f"""
import sys
from dpa.testing import LocalCluster
with LocalCluster({NODES}) as cluster:
    print(cluster.address, flush=True)
    for line in sys.stdin:
        what, name = line.split()
        getattr(cluster, what)(name)
        print("done", flush=True)
"""

JOB = """
name: placed
input: {format: generated, use: "jobs.lines:Lines", rows: 5000}
mapper: jobs.wordcount:words
key: word
reducer: count
parallelism: {mappers: 3, reducers: 3}
balance: none
placement:
  allocator: top_down
  tolerance: 1.05
  costs: {mapper: 1.0, reducer: 1.0}
  traffic: {mapper: {reducer: 50.0}}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[subprocess.Popen[str]]:
    """The process of a cluster of three nodes, which reads what to do with one, such as `remove two`, and says when it
    has."""
    with subprocess.Popen(
        [sys.executable, "-c", CLUSTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ON_A_CLUSTER
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=PATIENCE)


@pytest.fixture(scope="module")
def address(cluster: subprocess.Popen[str]) -> str:
    """Of the cluster."""
    assert cluster.stdout is not None
    return cluster.stdout.readline().strip()


@pytest.fixture(scope="module")
def job_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("placement") / "placed.yaml"
    path.write_text(JOB, encoding="utf-8")
    return path


def order(cluster: subprocess.Popen[str], what: str) -> None:
    """Have something done with a node of the cluster, whose address has been read."""
    assert cluster.stdin is not None and cluster.stdout is not None
    print(what, file=cluster.stdin, flush=True)
    assert cluster.stdout.readline() == "done\n"


def started(*arguments: str, answer: Path) -> subprocess.Popen[str]:
    """The command with these arguments, which goes on. What it prints at its end comes into a file: a pipe that nobody
    reads meanwhile would hold it up."""
    with answer.open("w", encoding="utf-8") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "dpa.run", *arguments],
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            env=ON_A_CLUSTER,
        )


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command with these arguments."""
    return subprocess.run(
        [sys.executable, "-m", "dpa.run", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
        env=ON_A_CLUSTER,
        timeout=PATIENCE,
    )


def answer(*arguments: str) -> dict[str, Any]:
    """What the command prints as JSON."""
    done = run(*arguments, "--json", "--progress", "none")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_tasks_are_where_the_plan_says_and_their_report_is_the_next_runs_profile(address: str, job_file: Path) -> None:
    foreseen = answer(str(job_file), "--address", address, "--plan")["placement"]
    assert sorted(node["name"] for node in foreseen["nodes"]) == sorted(NODES)
    assert [node["tasks"] for node in foreseen["nodes"]] == [{"mapper": 1, "reducer": 1}] * 3

    directory = job_file.parent / "report"
    report = answer(str(job_file), "--address", address, "--report", str(directory))
    homes = [[task["node"] for task in stage["tasks"]] for stage in report["stages"]]
    assert len(set(homes[0])) == 3
    assert sorted(homes[0]) == sorted(homes[1])
    assert all(task["cpu_seconds"] > 0 for stage in report["stages"] for task in stage["tasks"])
    [pushed] = [each for each in report["traffic"] if (each["source"], each["target"]) == ("mapper", "reducer")]
    assert pushed["records"] == report["records"]["emitted"] > 0
    assert pushed["bytes"] == sum(map(sum, pushed["pairs"])) > 0

    measured = [
        "--set",
        "placement={allocator: experiments.placement.baselines:TaskLevelAllocator, profile: "
        + str(directory / "report.json")
        + "}",
    ]
    again = answer(str(job_file), "--address", address, "--plan", *measured)["placement"]
    assert again["origin"].startswith("measured in")
    assert sum(sum(node["tasks"].values()) for node in again["nodes"]) == 6


KEYS, ROWS = 60, 6_000


def sums(directory: Path, name: str, seconds: float, **sections: Any) -> Path:
    """The file of a job that adds up values by key, whose reducers take so many seconds for each until there is a file
    `go` in the directory."""
    document = {
        "name": name,
        "python_path": [str(Path(__file__).parent)],
        "input": {"format": "records", "records": [{"key": row % KEYS, "value": row} for row in range(ROWS)]},
        "key": "key",
        "value": "value",
        "reducer": {"use": "executors_for_tests:SlowSum", "args": {"seconds": seconds, "until": str(directory / "go")}},
        "balance": "none",
        "limits": {"split_records": 1_000, "batch_records": 20, "in_flight_records": 200, "quantum_records": 20},
        "output": {"path": str(directory / "sums")},
        **sections,
    }
    path = directory / f"{name}.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_tasks_move_to_other_nodes_while_the_job_runs_and_the_report_says_why(address: str, tmp_path: Path) -> None:
    placement = {
        "allocator": "even",
        "costs": {"mapper": 1.0, "reducer": 3.0},
        "online": {"policy": METHODS[OTD].policy, "seconds": 1.0},
    }
    # the mapper is slow: with busy reducers, resources could be lacking at each look
    slow = {"use": "executors_for_tests:SlowPairs", "args": {"seconds": 0.01, "until": str(tmp_path / "go")}}
    few = {"mappers": 1, "reducers": 3}
    job, found = sums(tmp_path, "moving", 0.0, parallelism=few, placement=placement, mapper=slow), tmp_path / "answer"
    with started(str(job), "--address", address, "--progress", "plain", "--json", answer=found) as running:
        assert running.stderr is not None
        assert any(re.search(r" is \d+ now: less traffic between nodes", line) for line in running.stderr)
        (tmp_path / "go").touch()
        _, warned = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, warned
    report = json.loads(found.read_text())
    changes = [change for stage in report["stages"] for change in stage["changes"]]
    assert changes, report["placement_looks"]
    assert all(change["moved"] and change["reason"].startswith("less traffic between nodes") for change in changes)
    asked = {look["reason"] for look in report["placement_looks"] if look["moves"]}
    assert {change["reason"] for change in changes} <= asked, "each is that of the look that asked for the moves"
    assert sum(look["moves"] for look in report["placement_looks"]) >= len(changes)
    for stage in report["stages"]:
        nodes = {task["id"]: task["node"] for task in stage["tasks"]}
        assert all(nodes[old] != nodes[new] for change in stage["changes"] for old, new in change["moved"])
    rows = pq.read_table(tmp_path / "sums").to_pylist()
    assert {row["key"]: row["value"] for row in rows} == {key: sum(range(key, ROWS, KEYS)) for key in range(KEYS)}


ASKING = """
import os, signal, sys, threading
from contextlib import suppress
from pathlib import Path
from dpa.control import app
from dpa.driver.control import connected
from dpa.door import notes
from http.client import HTTPConnection
from typer.testing import CliRunner

address, *requests = sys.argv[1:]

def ask(*arguments):
    done = CliRunner().invoke(app, ["--address", address, *arguments])
    return f"{done.exit_code}: {' '.join(done.output.split())}"

def killed_while_asked(*request):
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if command.read_bytes().startswith(b"ray::asked coordinator"):
                coordinator = int(command.parent.name)
    os.kill(coordinator, signal.SIGSTOP)
    found, reached, response_of = [], threading.Event(), HTTPConnection.getresponse
    HTTPConnection.getresponse = lambda asked: (reached.set(), response_of(asked))[1]
    asking = threading.Thread(target=lambda: found.append(ask(*request)))
    asking.start()
    reached.wait()
    os.kill(coordinator, signal.SIGKILL)
    asking.join()
    while "generation 1" not in (listed := ask("list")):
        pass
    return f"{found[0]}; {listed}"

with connected(address):
    while "stream," not in (listed := ask("list")):
        pass
    print(listed)
    here, remote, exported = notes.this_machine, notes.ray.remote, []
    notes.ray.remote = lambda *given, **options: (exported.append(options), remote(*given, **options))[1]
    for request in requests:
        first, *words = request.split()
        notes.this_machine = (lambda: "another") if first == "far" else here
        does = {"killed": killed_while_asked, "far": ask}
        print(does[first](*words) if first in does else ask(first, *words))
    print(len(exported), "function of Ray")
"""
"""Asks for a list until records flow, and then for something else, with one connection; where a request begins with
`killed`, the coordinator is killed before it can answer, and where it begins with `far`, as from another machine."""


def test_who_reaches_the_cluster_can_ask_a_job_on_it_as_by_files_on_one_machine(address: str, tmp_path: Path) -> None:
    job = sums(tmp_path, "asked", 0.05, parallelism={"mappers": 1, "reducers": 1}, recovery={"backoff": 0})
    requests = {
        "scale asked reducer 2 --node three": "0: reducer has 2 tasks (1 came), after",
        "move asked reducer 0 --node two": "0: reducer has 2 tasks (0 is 2 now), after",
        "far scale asked sums 3": "there is no stage 'sums'; the stages are mapper, reducer",
        "far list": "0: run phase stage tasks queued task node pid asked-",
        "scale asked sums 2": "there is no stage 'sums'; the stages are mapper, reducer",
        "move asked reducer 1 --node nowhere": "there is no node 'nowhere'; the nodes are one, three, two",
        "scale other reducer 2": f"1: error: no job named 'other' runs on {address}; running jobs: asked-",
        "cancel asked reducer": "1: error: asked-",
        "killed move asked reducer 1": "the job was restarted; 0: run phase",
        "cancel asked": "0: the job ends, and publishes nothing more",
    }
    (tmp_path / "temporary").mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "dpa.run", str(job), "--address", address, "--progress", "none"],
        stderr=subprocess.PIPE,
        text=True,
        env={**ON_A_CLUSTER, "TMPDIR": str(tmp_path / "temporary")},
    ) as running:
        asking = [sys.executable, "-c", ASKING, address, *requests]
        done = subprocess.run(asking, capture_output=True, text=True, check=False, env=ON_A_CLUSTER, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        listed, *answers, exported = done.stdout.splitlines()
        said = running.communicate(timeout=PATIENCE)[1]
    assert f"asked-{running.pid} stream," in listed
    assert len(answers) == len(requests)
    for found, expected in zip(answers, requests.values(), strict=True):
        assert expected in found
    assert exported == "1 function of Ray", "Ray keeps each as long as it is up"
    assert running.returncode == 130, said
    assert not (tmp_path / "sums").exists()
    assert not list((tmp_path / "temporary").glob("dpa-*")), "no file asks a job on a cluster"


def test_a_job_goes_on_without_a_machine_that_dies_with_all_its_tasks(
    cluster: subprocess.Popen[str], address: str, tmp_path: Path
) -> None:
    placement = {"allocator": "even", "costs": {"mapper": 1.0, "reducer": 1.0}}
    options = {"recovery": {"backoff": "1s"}, "placement": placement}
    job, found = (
        sums(tmp_path, "bereft", 0.05, parallelism={"mappers": 3, "reducers": 3}, **options),
        tmp_path / "answer",
    )
    with started(str(job), "--address", address, "--progress", "plain", "--json", answer=found) as running:
        assert running.stderr is not None
        assert any("stream" in line for line in running.stderr)
        order(cluster, "remove two")  # the cluster stays without it: the last tests
        assert any(" died: " in line for line in running.stderr)
        (tmp_path / "go").touch()
        _, warned = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, warned
    report = json.loads(found.read_text())
    assert report["recoveries"][0]["node"] == "two"
    assert len({task["node"] for stage in report["stages"] for task in stage["tasks"]}) == 2, "the others'"
    rows = pq.read_table(tmp_path / "sums").to_pylist()
    assert {row["key"]: row["value"] for row in rows} == {key: sum(range(key, ROWS, KEYS)) for key in range(KEYS)}


def test_a_job_begins_where_ray_lives_though_ray_has_not_noticed_yet_that_it_ended_elsewhere(
    cluster: subprocess.Popen[str], address: str, job_file: Path, tmp_path: Path
) -> None:
    order(cluster, "kill_raylet three")
    words, found = ("--json", "--set", f"output.path={tmp_path / 'out'}"), tmp_path / "answer"
    with started(str(job_file), "--address", address, *words, answer=found) as running:
        _, warned = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, warned
    report = json.loads(found.read_text())
    assert report["recoveries"] == []
    assert len({task["node"] for stage in report["stages"] for task in stage["tasks"]}) < len(NODES)
