"""From the command to the first record processed: `python -m dpa.run` in a new process, on a Ray that it starts itself;
beside a bare Ray in a new process, until as many actors that do nothing have answered. And from `run()` to the first
record of the second job of a session, on such a Ray and on one that the caller runs.

The job's records are in its file, so Spark is not started; only the machine's file cache is warm.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from experiments.harness import Findings, at_most, main, markdown_table, progress

PARALLELISM = (2, 4)
"""Mappers, and as many reducers."""

RECORDS, REPEATS = 1_000, 5
MAX_RATIO = 1.15
"""The time to the first record that is wanted, by that of a bare Ray: no job can be ready before its actors are."""

SECOND = {"its own": 0.3, "the caller's": 0.5}
"""Whose Ray a session is on, and the seconds that are wanted from `run()` to the first record of its second job."""

PAUSE_SECONDS = 5.0
"""From the end of a session's first job to the second."""

SESSION = """
import json
import sys
import time

import dpa

tasks, whose = int(sys.argv[1]), sys.argv[2]
if whose == "the caller's":
    import ray

    ray.init(address="local", include_dashboard=False, logging_level="ERROR", log_to_driver=False)


def first_record():
    records = [f"w{number % 100}" for number in range(int(sys.argv[3]))]
    job = dpa.Job(
        name="startup",
        input={"format": "records", "records": records},
        key="value",
        value=[],
        reducer="count",
        parallelism={"mappers": tasks, "reducers": tasks},
    )
    return job.run(backend="ray").report.seconds.first_record


with dpa.session():
    first = first_record()
    time.sleep(float(sys.argv[4]))
    print(json.dumps({"first": first, "second": first_record()}))
"""
"""A program that runs two jobs in a session, and gives the seconds from `run()` to the first record of each."""

BARE = """
import sys

import ray

ray.init(address="local", include_dashboard=False, logging_level="ERROR", log_to_driver=False)


@ray.remote(num_cpus=0)
class Empty:
    def answer(self):
        return None


actors = [Empty.remote() for _ in range(int(sys.argv[1]))]
ray.get([actor.answer.remote() for actor in actors])
print("all have answered", flush=True)
"""
"""A program that starts Ray with actors that do nothing, and says when all have answered."""

PHASES = {
    "imports": "interpreter and imports",
    "load": "input and splits",
    "startup": "waiting for Ray and actors",
    "stream": "stream to the first record",
}
"""What comes before the first record, in order; together they are the time to it."""

_JOBS = "first", "second"

TIMEOUT_SECONDS = 300


def measure(options: argparse.Namespace) -> Findings:
    """Start the command and a bare Ray several times, with few and with more actors in turn."""
    parallelism, repeats = (PARALLELISM[:1], 1) if options.quick else (PARALLELISM, REPEATS)
    runs: dict[int, list[dict[str, float]]] = {tasks: [] for tasks in parallelism}
    with TemporaryDirectory(prefix="dpa-startup-") as directory:
        for _ in range(repeats):
            for tasks in parallelism:
                runs[tasks].append(
                    {**_run(Path(directory), tasks), **_bare(2 * tasks + 2), **_sessions(tasks, PAUSE_SECONDS)}
                )
                progress(f"{tasks} + {tasks}: " + ", ".join(f"{name} {s:.2f}" for name, s in runs[tasks][-1].items()))
    medians = {tasks: _medians(found) for tasks, found in runs.items()}
    targets = []
    for tasks, median in medians.items():
        name = f"time to the first record by that of a bare Ray, {tasks} mappers and {tasks} reducers"
        targets.append(at_most(name, median["first_record"] / median["bare"], MAX_RATIO))
        for whose, wanted in SECOND.items():
            name = f"first record of a session's second job on {whose} Ray, {tasks} mappers and {tasks} reducers, s"
            targets.append(at_most(name, median[f"second job, {whose} Ray"], wanted))
    return Findings(
        data={"records": RECORDS, "runs": runs, "medians": medians}, targets=targets, text=_text(runs, medians, repeats)
    )


def _run(directory: Path, tasks: int) -> dict[str, float]:
    """One run of the command; seconds of each phase, and in all.

    The report knows only the times since the job was set up, `total` being the last of them; it is written at once
    after that, so its time stamp less `total` is the moment at which the job was set up. What lies between starting the
    process and that moment is the interpreter and the imports. (Writing the report takes some milliseconds, which are
    counted among the imports, so the sum is an upper bound.)
    """
    job = directory / f"job{tasks}.yaml"
    document = {
        "name": "startup",
        "input": {"format": "records", "records": [f"w{number % 100}" for number in range(RECORDS)]},
        "key": "value",
        "value": [],
        "reducer": "count",
        "parallelism": {"mappers": tasks, "reducers": tasks},
    }
    job.write_text(yaml.safe_dump(document), encoding="utf-8")
    command = [sys.executable, "-m", "dpa.run", str(job), "--report", str(directory), "--progress", "none"]
    began = time.time()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=TIMEOUT_SECONDS)
    ended = time.time()
    file = directory / "report.json"
    report = json.loads(file.read_text(encoding="utf-8"))
    assert report["records"]["processed"] == RECORDS
    seconds = report["seconds"]
    imports = file.stat().st_mtime - seconds["total"] - began
    before = {"imports": imports, "load": seconds["load"], "startup": seconds["startup"]}
    first_record = imports + seconds["first_record"]
    return {
        **before,
        "stream": first_record - sum(before.values()),
        "first_record": first_record,
        "first_record_of_the_job": seconds["first_record"],
        "command": ended - began,
    }


def _sessions(tasks: int, pause: float) -> dict[str, float]:
    """Seconds from `run()` to the first record of the two jobs of a session, on either Ray."""
    found = {}
    for whose in SECOND:
        command = [sys.executable, "-c", SESSION, str(tasks), whose, str(RECORDS), str(pause)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_SECONDS)
        seconds = json.loads(done.stdout.splitlines()[-1])
        found |= {f"{which} job, {whose} Ray": value for which, value in seconds.items()}
    return found


def _bare(actors: int) -> dict[str, float]:
    """Seconds from starting a process to the answer of the last of its actors."""
    began = time.time()
    with subprocess.Popen([sys.executable, "-c", BARE, str(actors)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        seconds = time.time() - began
    assert process.returncode == 0
    return {"bare": seconds}


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def _text(runs: dict[int, list[dict[str, float]]], medians: dict[int, dict[str, float]], repeats: int) -> str:
    names = {
        **PHASES,
        "first_record": "**to the first record**",
        "bare": "a bare Ray with as many actors",
        "command": "the whole command",
        **{
            f"{which} job, {whose} Ray": f"{which} job of a session on {whose} Ray"
            for whose in SECOND
            for which in _JOBS
        },
    }
    rows = [
        (name, *(median[phase] for median in medians.values()), *(_range(found, phase) for found in runs.values()))
        for phase, name in names.items()
    ]
    tasks = [f"{tasks} + {tasks}" for tasks in medians]
    head = ("seconds", *(f"{each}: median" for each in tasks), *(f"{each}: least ... most" for each in tasks))
    return (
        f"`python -m dpa.run` is started as a new process, for each number of mappers + reducers in turn ({repeats} "
        f"times each), with a job file that holds {RECORDS:,} records. It starts a Ray of its own and its actors, and "
        "no Spark. \n\nThe time to the first record runs from just before the process is started to the moment at "
        "which the coordinator learns that a reducer has processed records. The report gives that moment in seconds "
        "since the job was set up (`seconds.first_record`); the set-up is dated by the report's file, which is written "
        "as soon as `seconds.total` is known: its time stamp less `seconds.total`. What comes before is the "
        "interpreter and the imports. *Waiting for Ray and actors* is `seconds.startup`. "
        "The whole command goes on to the last "
        "record, the report with its page and pictures, and the end of Ray. *A bare Ray* is a new process that starts "
        "Ray without its dashboard, and as many actors, those of the coordinator and the load balancer among them, "
        "until each has answered a call. *A session* is a new process with two jobs in `dpa.session()`, each from "
        f"`run()` to the first record; {PAUSE_SECONDS:g} s lie between them. The caller's Ray is one of "
        "`ray.init()`, without its dashboard.\n\n" + markdown_table(head, rows)
    )


def _range(runs: list[dict[str, float]], phase: str) -> str:
    seconds = [run[phase] for run in runs]
    return f"{min(seconds):.2f} ... {max(seconds):.2f}"


if __name__ == "__main__":
    main("startup", argparse.ArgumentParser(description=__doc__), measure)
