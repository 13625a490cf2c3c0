"""Type checkers find mistakes in the calls of a user's program, and none in one that is right.

The keyword arguments are those of dpa/config/keywords.pyi, which is printed from the schema of job files.
"""

import json
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from experiments.report.option_types import COMMAND, PATH, printed

ROOT = Path(__file__).parents[2]

RIGHT = """
from collections.abc import Iterable, Iterator
from operator import add
from pathlib import Path
from typing import Any

import polars as pl

import dpa
from dpa import BatchReducer, Flow, Job, Mapper, Process, Reducer, batch_filter, batch_mapper
from dpa.aggregates import Count, Sum, TopK


class Total(Reducer[int, dict[str, Any]]):
    reads = ("cents",)

    def zero(self) -> int:
        return 0

    def reduce(self, state: int, value: dict[str, Any]) -> int:
        return state + int(value["cents"])

    def merge(self, left: int, right: int) -> int:
        return left + right


class Running(Process[int, Any]):
    def zero(self) -> int:
        return 0

    def process(self, key: Any, state: int, value: Any) -> tuple[int, Iterable[dict[str, Any]]]:
        return state + 1, [{"key": key, "n": state}]


class Words(Mapper):
    def map(self, record: dict[str, Any]) -> Iterator[tuple[str, int]]:
        yield record["word"], 1


@batch_mapper
def same(batch: Any) -> Any:
    return batch


@batch_filter
def every(batch: Any) -> Any:
    return [True] * batch.num_rows


def town(row: dict[str, Any]) -> str:
    return str(row["town"])


def larger(left: int, right: int) -> int:
    return max(left, right)


flow = Flow("shop", seed=1, limits={"batch_records": 10_000}, ray={"address": "auto"}, checkpoint={"path": "out"})
orders = flow.read(Path("orders.csv"), name="orders", parallelism=2, options={"header": True, "sep": "|"}, time="at")
flow.read([{"a": 1}], schema={"a": "int64"}, time={"column": "at", "unit": "s"})
flow.read({"format": "kafka", "kafka": {"servers": "localhost:9092", "topic": "t"}})
flow.read("logs", glob="*.jsonl.gz", recursive=True)
rows = (
    orders.map(same, parallelism=3)
    .map("shop:euros", schema={"euros": "double"}, on_error="skip")
    .flat_map(lambda row: [row, row])
    .filter(pl.col("cents") > 0)
    .filter("cents > 0", name="paid")
    .filter(every)
    .filter(lambda row: bool(row["cents"]))
    .with_columns("cents / 100 AS euros", more=pl.col("cents") + 1, year="year(at)")
    .select(pl.all())
    .drop("a", "b")
    .rename({"c": "d"})
    .explode("items")
    .unnest("to")
    .window(dpa.tumbling("1m", lateness=5))
    .window(dpa.session(30))
    .union(orders, [orders], allow_missing_columns=True, name="all")
)
keyed = rows.key_by("town", "day", value=["cents"])
rows.key_by(["town", "day"]).reduce(Total, parallelism=4, balance="none", grouping={"kind": "consistent"})
rows.key_by(town).reduce(Total(), balance={"strategy": "adaptive", "max_imbalance": 0.2}, combiner=True)
rows.key_by(None).reduce(Sum("cents"), limits={"batch_records": 10}, elastic={"max_tasks": 4})
rows.key_by("a", value="cents").reduce(larger, balance={"max_moved": 0.1}, consistency="migrate")
rows.key_by("a").reduce(max).write("out/max", mode="overwrite", partition_by=["a"], publish="changes")
rows.key_by("a").reduce(add, write=["out/a", {"path": "out/b.csv", "mode": "overwrite"}])
rows.key_by("a").reduce("top_k", elastic={"max_tasks": 8}).results(lambda table, epoch: print(epoch), publish="changes")
rows.key_by("a").reduce({"use": "top_k", "args": {"k": 3}})
rows.key_by("a").agg(pl.len(), "sum(cents)", total=pl.col("cents").sum(), n="count(*)", parallelism=8, balance="none")
rows.key_by("a").process(Running(), schema={"key": "string"})
rows.key_by("a").join(rows.key_by("b"), "outer", broadcast_mb=0, parallelism=2)
rows.join(orders, on="a", how="left", name="joined", parallelism=2)
rows.top_k(3, by="cents", descending=False, parallelism=1).reference("SELECT 1", tolerance=1e-9)
rows.show(3, first=10)
rows.reference("auto")
result: dpa.Result = flow.run(backend="ray", check=False)
result.table("all").to_pylist()
Job(input="words.parquet", mapper=Words, key="word", reducer=Count(), parallelism={"reducers": 2}).run().table()
Job(input=[{"a": 1}], key=["a"], reducer="count", output={"path": "out", "format": "csv"}, reference={"sql": "auto"})
Job(input="a.csv", mapper=same, reducer=TopK(3), value="a", balance="halving", until={"records": 10}, max_errors="0.1%")
Job.from_file(Path("job.yaml"), ["seed=1"]).forecast().stages
"""

WRONG = """
from typing import Any

import polars as pl

import dpa
from dpa import Flow, Job, Reducer


class Total(Reducer[int, int]):
    def zero(self) -> int:
        return 0

    def reduce(self, state: int) -> int:  # wrong: it takes no value
        return state


flow = Flow("shop")
rows = flow.read("orders.csv")
Flow("shop", sed=1)  # wrong: seed
flow.read("orders.csv", recursiv=True)  # wrong: recursive
rows.map(lambda row: row, paralelism=2)  # wrong: parallelism
rows.map(lambda row: row, parallelism="4")  # wrong: a text
rows.map(lambda: {})  # wrong: it takes no row
rows.filtr("cents > 0")  # wrong: filter
rows.window("10s")  # wrong: a text is no window
rows.window(dpa.tumbling())  # wrong: no size
rows.with_columns(euros=3)  # wrong: neither an expression nor a text
rows.union("orders")  # wrong: a name is no rows
keyed = rows.key_by("town")
keyed.reduce(lambda value: value)  # wrong: it takes one value
keyed.reduce("count", balance={"strategy": "adptive"})  # wrong: adaptive
keyed.reduce("count", balance="adptive")  # wrong: adaptive
keyed.reduce("count", balance={"max_imbalanc": 0.1})  # wrong: max_imbalance
keyed.reduce("count", grouping="rng")  # wrong: ring
keyed.reduce("count", limits={"batch_records": "many"})  # wrong: a text
keyed.reduce("count", consistency="merged")  # wrong: merge
keyed.agg(total=pl.col("cents").sum(), paralelism=2)  # wrong: parallelism
keyed.process(Total())  # wrong: a reducer is no process
keyed.join(rows)  # wrong: rows without a key
rows.join(rows, on="a", how="inside")  # wrong: inner
rows.top_k(3)  # wrong: by is missing
rows.write("out", mode="replace")  # wrong: overwrite
rows.write("out", publish={"mode": "final", "evry": 1})  # wrong: every
rows.results(print, publish="last")  # wrong: final
flow.run(adress="auto")  # wrong: address
Job(input="a.csv", reducer="count", keys="a")  # wrong: key
Job(input="a.csv", reducer="count", parallelism=4)  # wrong: a section
Job.from_file()  # wrong: no path
"""


def test_the_keywords_are_those_of_the_schema() -> None:
    assert PATH.read_text(encoding="utf-8") == printed(), f"renew them by `{COMMAND}`"


def test_types_are_in_the_package() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    of_package = setup["options.package_data"]
    assert (of_package["dpa"], of_package["dpa.config"]) == ("py.typed, example/*", "keywords.pyi")
    assert (ROOT / "dpa" / "py.typed").exists()


def test_checkers_find_the_package_where_it_is_installed(tmp_path: Path) -> None:
    """They look through the directories of `sys.path`, and run no hooks of Python's imports."""
    show = [sys.executable, "-c", "import sys; print(*sys.path, sep='\\n')"]
    paths = subprocess.run(show, cwd=tmp_path, env={}, check=True, capture_output=True, text=True).stdout.splitlines()
    assert [path for path in paths if (tmp_path / path / "dpa" / "py.typed").exists()]


_CACHE = ["--cache-dir", str(ROOT / ".mypy_cache" / "of_users")]
CHECKERS = {
    "mypy": ["--strict", "--config-file=", *_CACHE, "--follow-imports=silent", "right.py", "wrong.py"],
    "basedpyright": ["--pythonpath", sys.executable, "--project", "settings.json"],
}
SETTINGS = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT)]}


@pytest.mark.slow
@pytest.mark.parametrize("checker", CHECKERS)
def test_each_mistake_in_a_wrong_program_is_found_and_none_in_a_right_one(checker: str, tmp_path: Path) -> None:
    """As of a user's programs, whose imports are only followed. `basedpyright` brings pyright, and Node for it."""
    pytest.importorskip(checker, reason=f"without {checker}, which `.ci/run` installs")
    for name, program in (("right", RIGHT), ("wrong", WRONG)):
        (tmp_path / f"{name}.py").write_text(program, encoding="utf-8")
    (tmp_path / "settings.json").write_text(json.dumps(SETTINGS), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", checker, *CHECKERS[checker]],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
    assert done.stderr == "", done.stderr
    found = set(re.findall(r"\b(\w+)\.py:(\d+):(?:\d+ -)? error", done.stdout))
    planted = {number for number, line in enumerate(WRONG.split("\n"), start=1) if "# wrong" in line}
    assert found == {("wrong", str(number)) for number in planted}, done.stdout
