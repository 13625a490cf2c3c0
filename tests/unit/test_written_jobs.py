"""What is written of a job is read back: beside results, in reports, plans and logs of epochs, whoever made the job."""

from __future__ import annotations

import functools
import json
import operator
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from builders import Total
from typer.testing import CliRunner

from dpa import BatchMapper, Flow, Job, Process, batch_mapper, report, session, tumbling
from dpa._util.as_yaml import as_yaml
from dpa.aggregates import READY_MADE, Count, Distinct, Max, Mean, Min, Sum, TopK, TopRows
from dpa.config import ExecutorConfig, load
from dpa.errors import ConfigError
from dpa.run import app
from dpa.testing import LocalBackend

TIME = {"column": "at", "unit": "s"}
ROWS = [{"k": "abc"[n % 3], "n": n, "at": n} for n in range(12)]


def plus_one(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "n": row["n"] + 1}


def is_odd(row: dict[str, Any]) -> bool:
    return bool(row["n"] % 2)


def parity(row: dict[str, Any]) -> str:
    return "odd" if row["n"] % 2 else "even"


@batch_mapper
def unchanged(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


class Twice(BatchMapper):
    def map_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.concat_batches([batch, batch])


@dataclass
class Scaled(Total):
    factor: int = 3

    def finish(self, state: int) -> int:
        return state * self.factor


class Counted(Process[int, Any]):
    def zero(self) -> int:
        return 0

    def process(self, key: Any, state: int, value: Any) -> tuple[int, Iterable[dict[str, Any]]]:
        return state + 1, []

    def finish(self, key: Any, state: int) -> Iterable[dict[str, Any]]:
        return [{"k": key, "n": state}]


class Hidden(Twice):
    """What its constructor was given cannot be known."""

    def __init__(self, more: int) -> None:
        self.less = -more


class Holder:
    def plus(self, row: dict[str, Any]) -> dict[str, Any]:
        return row


MAPS: dict[str, Callable[[], Any]] = {
    "function": lambda: plus_one,
    "batches": lambda: unchanged,
    "instance": Twice,
    "lambda": lambda: lambda row: row,
    "partial": lambda: functools.partial(plus_one),
    "constructed": lambda: Hidden(1),
    "method": lambda: Holder().plus,
    "name": lambda: f"{__name__}:plus_one",
}
REDUCERS: dict[str, Callable[[], Any]] = {
    "ready": Count,
    "column": lambda: Sum("n"),
    "ready class": lambda: Count,
    "text": lambda: "count",
    "section": lambda: {"use": "sum", "args": {"column": "n"}},
    "dataclass": lambda: Scaled(2),
    "operator": lambda: operator.add,
    "lambda": lambda: lambda left, right: left + right,
    "top": lambda: TopK(2),
}
UNNAMED = {"lambda", "partial", "constructed", "method"}


def drawn(seed: int) -> tuple[Flow, set[str], dict[str, Any]]:
    """A flow, the words of executors that no file can name, and its tables."""
    draw = random.Random(seed)
    flow, unnamed, tables = Flow("drawn", seed=seed), set(), {}
    if draw.random() < 0.5:
        rows = flow.read({"format": "records", "records": ROWS}, time=TIME)
    else:
        rows = flow.read(ROWS, time=TIME, schema={"k": pa.string(), "n": "int64", "at": "int64"})
        tables["stages.read.read"] = pa.Table.from_pylist(ROWS)
    for _ in range(draw.randrange(3)):
        word = draw.choice([*MAPS])
        unnamed |= {word} & UNNAMED
        rows = rows.map(MAPS[word](), schema=pa.schema({"k": pa.string(), "n": pa.int64(), "at": pa.int64()}))
    if draw.random() < 0.4:
        rows = rows.filter(is_odd, parallelism=2)
    if draw.random() < 0.3:
        rows = rows.window(draw.choice([tumbling("5s"), session(2.0)]))
    if draw.random() < 0.3:
        rows = rows.union(rows.filter(is_odd))
    keyed = rows.key_by(draw.choice(["k", parity]), value="n")
    kind = draw.choice(["reduce", "reduce", "process", "top_k", "map"])
    if kind == "reduce":
        word = draw.choice([*REDUCERS])
        unnamed |= {word} & UNNAMED
        keyed.reduce(REDUCERS[word](), balance=draw.choice(["none", "adaptive"]))
    elif kind == "process" and not any("window" in step for step in flow._stages.values()):
        keyed.process(draw.choice([Counted, Counted()]))
    elif kind == "top_k":
        keyed.top_k(2, by="n")
    else:
        rows.map(plus_one)
    return flow, unnamed, tables


def results_of(job: Job) -> list[Any]:
    found = job.run(backend=LocalBackend())
    return [sorted(found.table(step.name).to_pylist(), key=repr) for step in job.spec.results]


@pytest.mark.parametrize("seed", range(60))
def test_a_random_flow_is_read_back_from_what_is_written_of_it(tmp_path: Path, seed: int) -> None:
    flow, unnamed, tables = drawn(seed)
    job = flow.job()
    written = tmp_path / "job.yaml"
    written.write_text(as_yaml(job.config.resolved()), encoding="utf-8")
    read = load(written)
    assert read.config == job.config
    again = Job(file=read, objects=tables)
    if unnamed:
        with pytest.raises(ConfigError, match="an object of the program that made this job, which no file can name"):
            again.check()
        return
    again.check()
    assert results_of(again) == results_of(job)


def test_every_file_that_is_written_of_a_job_holds_a_job(tmp_path: Path) -> None:
    flow = Flow("written", epoch_log=str(tmp_path / "log"))
    counts = flow.read({"format": "records", "records": ROWS}, time=TIME).window(tumbling("5s"))
    counts.key_by("k").reduce(Count(), schema={"count": "int64"}).write(tmp_path / "out", mode="overwrite")
    result = flow.run(backend=LocalBackend())
    forecast = flow.forecast()
    report.write(result.report, tmp_path / "report")
    texts = {
        "result": (tmp_path / "out" / "_job.yaml").read_text(encoding="utf-8"),
        "report": (tmp_path / "report" / "resolved.yaml").read_text(encoding="utf-8"),
        "report.json": json.dumps(json.loads((tmp_path / "report" / "report.json").read_text())["config"]),
        "plan": json.dumps(json.loads(report.plan_json(forecast))["config"]),
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
        valid = CliRunner().invoke(
            app, [str(tmp_path / f"{name}.yaml"), "--validate", "--set", "stages.reduce.write=null"]
        )
        assert valid.exit_code == 0, (name, valid.output)


def test_a_ready_made_reducer_is_written_with_its_arguments() -> None:
    some = [Count(), Sum("x"), Min("x"), Max("x"), Mean("x"), TopK(3), TopRows(4, "x", descending=False), Distinct()]
    assert {*map(type, some)} == {*READY_MADE.values()}
    for made in some:
        section = ExecutorConfig.of(made)
        assert vars(READY_MADE[section.use](**section.args)) == vars(made)
