"""Where processor time goes in a block's life, from the reading of rows to their reduction, of one variant of
`experiments.throughput`.

The stacks of the Python threads of all actors are sampled in a run of its own; the job itself is the one that any user
runs. What threads of Ray, Arrow and polars use is the rest of a process's time. Beside it stands what tasks report:
how long user code was busy, and how long a task was blocked, waiting or idle.
"""

from __future__ import annotations

import argparse
import json
import operator
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dpa.runtime.cluster import ray_session
from experiments.harness import Findings, main, markdown_table, progress
from experiments.sampler import DIRECTORY
from experiments.throughput import DPA
from experiments.zipf import ROW_GROUP, pairs, zipf_table

ROOT = Path(__file__).parents[1]


VARIANTS: dict[str, dict[str, Any]] = {
    **DPA,
    "dpa, mapper and reducer of records": {"mapper": pairs, "value": None, "reducer": operator.add},
}
"""What each variant of the job sets."""

STAGES: dict[str, tuple[str, ...]] = {
    "start": ("actors/actor.py:become", "actors/actor.py:__init__", "_starting.py", "_fork_server.py:main"),
    "read": ("dpa/sources/", "rows.py:_portions", "rows.py:_read", "execution/_queries.py"),
    "row steps": ("row_operators.py", "dpa/columns/", "_held.py", "rows.py:records_of", "mapping.py:_map_records"),
    "keys, hashes": ("execution/keys.py", "routing/hashing.py", "routing/keys.py", "block.py:of"),
    "reduce": ("execution/receivers/", "reduce_task.py", "_object_table.py", "execution/calls.py", "states.py"),
    "emit, route": ("dpa/execution/", "task/emitter.py", "dpa/routing/", "task/_credit.py"),
    "send": ("_task.py:send", "_pickled.py:of", "ray/actor.py"),
    "receive": ("_pickled.py:opened", "_private/serialization.py"),
    "control": ("dpa/protocol/", "dpa/runtime/", "dpa/balance/", "dpa/measure/", "ray/_private/"),
}
"""Parts of a block's life, with what the innermost call that tells is of: a part of its file's path, and its name. The
first that fits counts."""

NATIVE = "threads of Ray, Arrow, polars"
"""The part that no Python thread is seen to use."""

_SITE = "import runpy; runpy.run_path({path!r})['install']()\n"
_RUN = "import sys; from experiments.profile import run; run(sys.argv[1], *map(int, sys.argv[2:]))"


def run(variant: str, tasks: int, records: int, seed: int) -> None:
    """Run a variant on a Ray of its own; prints what its stages report, as JSON."""
    with zipf_table(records, seed, min(ROW_GROUP, max(1, records // 4))) as table, ray_session(None, actors=2):
        report = table.job(tasks, tasks, **VARIANTS[variant]).run().report
    kinds = ("busy", "blocked", "waiting", "idle", "cpu")
    stages = {
        stage.name: {kind: sum(getattr(task, f"{kind}_seconds") for task in stage.tasks) for kind in kinds}
        for stage in report.stages
    }
    print(json.dumps({"stream": report.seconds.stream, "stages": stages}))


def measure(options: argparse.Namespace) -> Findings:
    """Run the variant under the sampler."""
    records = 200_000 if options.quick else options.records
    with TemporaryDirectory(prefix="dpa-profile-") as directory:
        path = str(Path(__file__).with_name("sampler.py"))
        Path(directory, "sitecustomize.py").write_text(_SITE.format(path=path), encoding="utf-8")
        paths = (directory, str(ROOT), os.environ.get("PYTHONPATH"))
        environment = {**os.environ, DIRECTORY: directory, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        command = [sys.executable, "-c", _RUN, options.variant, *map(str, (options.tasks, records, options.seed))]
        done = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        reported = json.loads(done.stdout.splitlines()[-1])
        processes = [json.loads(file.read_text(encoding="utf-8")) for file in Path(directory).glob("*.json")]
    used, messages = attributed(processes)
    text = _text(options, records, reported, used, messages)
    progress(text)
    named = {role: dict(spent) for role, spent in used.items()}
    return Findings(data={**reported, "records": records, "cpu": named, "messages": dict(messages)}, text=text)


def attributed(processes: Sequence[dict[str, Any]]) -> tuple[dict[str, Counter[str]], Counter[str]]:
    """Seconds of processor time by the role of a process and the part of a block's life, and messages by kind."""
    used: dict[str, Counter[Any]] = {role: Counter() for role in ("mapper", "reducer", "others")}
    messages: Counter[str] = Counter()
    for process in processes:
        if not process["process"].startswith("ray::") or "IDLE" in process["process"]:
            continue
        role = next((role for role in used if f" {role} " in process["process"] + " "), "others")
        messages.update(process["messages"])
        for stack, seconds in process["stacks"]:
            used[role][part_of(stack)] += seconds
        used[role][NATIVE] += max(0.0, process["cpu"] - sum(seconds for _, seconds in process["stacks"]))
    return used, messages


def part_of(stack: Sequence[str]) -> str:
    """The part of a block's life that a stack is in, whose innermost call comes first."""
    if any(place in call for call in stack for place in STAGES["start"]):
        return "start"
    for call in stack:
        for part, places in STAGES.items():
            if any(place in call for place in places):
                return part
    return "control"


def _text(
    options: argparse.Namespace,
    records: int,
    reported: dict[str, Any],
    used: dict[str, Counter[str]],
    messages: Counter[str],
) -> str:
    parts = [*STAGES, NATIVE]
    rows = [(part, *(f"{spent[part]:.3f}" for spent in used.values())) for part in parts]
    rows.append(("all", *(f"{sum(spent.values()):.3f}" for spent in used.values())))
    kinds = ("busy", "blocked", "waiting", "idle", "cpu")
    stages = [(name, *(f"{found[kind]:.3f}" for kind in kinds)) for name, found in reported["stages"].items()]
    sent = ", ".join(f"{number:,} {kind}" for kind, number in messages.most_common(5))
    return "\n\n".join(
        (
            f"*{options.variant}*, {options.tasks} + {options.tasks} tasks, {records:,} records, "
            f"{reported['stream']:.2f} s.\nSeconds of processor time of all processes of a role:",
            markdown_table(("part", *used), rows),
            "Seconds of all tasks of a stage, as they report them:",
            markdown_table(("stage", *kinds), stages),
            f"Messages: {sent}.",
        )
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", choices=VARIANTS, default="dpa")
    parser.add_argument("--tasks", type=int, default=2, help="mappers, and as many reducers")
    parser.add_argument("--records", type=int, default=20_000_000)
    main("profile", parser, measure)
