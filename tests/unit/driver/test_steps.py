"""The steps of `stages:`: their defaults, and one clear line for whatever does not fit."""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import dpa
from dpa._util.as_yaml import as_yaml
from dpa.balance.options import AdaptiveOptions, NoBalancingOptions
from dpa.config import load, parse_written
from dpa.driver.inputs import Inputs
from dpa.driver.spec import JobSpec
from dpa.errors import ConfigError
from dpa.job import Job
from dpa.logical.step import Step
from dpa.operators import JoinOptions
from dpa.testing import LocalBackend

SMALL = "input: {format: records, records: [{word: to, user: ann}]}\n"
"""The input of a job of one mapper and one reducer."""

LINES = """\
stages:
  lines:
    read: {format: records, records: [{word: to, user: ann}]}
"""


class Visits(dpa.Process):
    def zero(self) -> int:
        return 0

    def process(self, key: Any, state: int, value: Any) -> Any:
        return state + 1, []


class Marked(dpa.Reducer):
    def zero(self) -> int:
        return 0

    def reduce(self, state: int, value: Any) -> int:
        return state + 1


class Pairs(dpa.Mapper):
    def map(self, record: Any) -> Any:
        return []


@dpa.batch_filter
def keep(batch: pa.RecordBatch) -> pa.Array:
    return pa.array([True] * batch.num_rows)


@dpa.batch_mapper
def renamed(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.rename_columns(["term", *batch.schema.names[1:]])


def same(row: Any) -> Any:
    return row


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes a job file that reads `lines`, checks it and looks at its input; returns its steps by name."""
    monkeypatch.chdir(tmp_path)
    module = ModuleType("mine")
    vars(module).update((made.__name__, made) for made in (Visits, Marked, Pairs, keep, renamed, same))
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def looked_at(text: str, head: str = LINES) -> dict[str, Step]:
        path = tmp_path / "job.yaml"
        path.write_text(head + text, encoding="utf-8")
        spec = JobSpec(load(path))
        spec.check()
        with ExitStack() as stack:
            Inputs(spec).open(stack, pytest.fail, stage=False)
        return {step.name: step for step in spec.steps}

    return looked_at


def step(body: str) -> str:
    """A step `counts` of these lines, the first of which is the fifth of the file."""
    return "  counts:\n" + "".join(f"    {line}\n" for line in body.split("\n"))


@pytest.mark.parametrize(
    ("body", "tasks", "grouping", "balance"),
    [
        ("from: lines\nkey_by: word\nreduce: count", 4, "ring", AdaptiveOptions()),
        ("from: lines\nkey_by: null\nreduce: count", 1, "ring", AdaptiveOptions()),
        ("from: lines\nkey_by: {use: mine:same}\nreduce: count", 4, "ring", AdaptiveOptions()),
        ("from: lines\nkey_by: word\nreduce: count\ngrouping: key", 4, "key", NoBalancingOptions()),
        ("from: lines\nkey_by: word\nreduce: mine:Marked", 4, "ring", NoBalancingOptions()),
        ("from: lines\nkey_by: word\nprocess: mine:Visits", 4, "ring", NoBalancingOptions()),
        ("from: lines\nkey_by: word\njoin: {with: lines}", 4, "ring", AdaptiveOptions()),
        ("from: lines\ntop_k: {k: 1, by: word}", 1, "ring", AdaptiveOptions()),
        ("from: lines\nmap: mine:same", 2, "shuffle", NoBalancingOptions()),
        ("from: lines\nfilter: mine:keep\nparallelism: 3", 3, "shuffle", NoBalancingOptions()),
        ("from: lines", 2, "shuffle", NoBalancingOptions()),
    ],
)
def test_a_step_has_the_defaults_of_what_it_does(opened, body: str, tasks: int, grouping: str, balance: Any) -> None:
    found = opened(step(body))["counts"]
    assert (found.tasks, found.grouping.kind, found.balance) == (tasks, grouping, balance)


def test_steps_have_the_tasks_results_feeds_and_schemas_that_are_written(opened) -> None:
    text = "  all: {from: lines, map: mine:same}\n  counts: {from: all, key_by: word, reduce: count}\n"
    assert opened(text)["all"].tasks is None
    assert opened(text.replace("mine:same", "mine:same, write: out"))["all"].tasks == 2
    text = step("from: lines\nkey_by: word\nreduce: count") + "  top: {from: counts, top_k: {k: 1, by: count}}\n"
    found = opened(text)
    assert [name for name, made in found.items() if made.is_result] == ["top"]
    for asked in ("write: out", "reference: {sql: SELECT 1}"):
        found = opened(text.replace("reduce: count", f"reduce: count\n    {asked}"))
        assert [name for name, made in found.items() if made.is_result] == ["counts", "top"]
    found = opened(step("from: lines\nkey_by: word\njoin: {with: lines, how: left, key_by: user, value: word}"))
    left, right = found["counts"].feeds
    assert found["counts"].receiver.executor == JoinOptions("left", (("word",), ("user",)))
    assert (left.keying.key, left.side, right.keying.key, right.keying.values, right.side) == (
        "word",
        0,
        "user",
        ("word",),
        1,
    )
    found = opened(step("from: lines\nmap: mine:same\nfilter: mine:keep\nschema: {word: string}"))
    assert found["counts.map"].receiver.operators[0].declared is not None
    assert found["counts"].receiver.operators[0].declared is None


MANY = """\
from: lines
%s: "%s"
%s: "%s"
key_by: word
agg: {n: "count(*)", ending: "max(ending)"}
value: [ending]
on_error: skip
parallelism: 3"""


@pytest.mark.parametrize("order", [("filter", "with_columns"), ("with_columns", "filter")])
def test_several_operations_of_a_step_are_steps_in_the_order_in_which_they_are_written(opened, order) -> None:
    texts = {"filter": "word <> 'be'", "with_columns": "upper(word) AS ending"}
    found = opened(step(MANY % tuple(part for word in order for part in (word, texts[word]))))
    first, second = (f"counts.{word}" for word in order)
    assert [*found] == ["lines", first, second, "counts"]
    assert [found[name].feeds[0].step for name in (first, second, "counts")] == ["lines", first, second]
    assert [(step.tasks, step.on_error, step.is_result) for step in found.values()][1:] == [
        (None, "skip", False),
        (None, "skip", False),
        (3, "skip", True),
    ]
    assert found["counts"].feeds[0].keying.values == ("ending",)
    assert found[second].at(order[1]) == f"stages.counts.{order[1]}"


def test_a_window_is_one_operation_of_its_step_among_others() -> None:
    read = {"format": "records", "records": [{"word": word, "at": 60 * n} for n, word in enumerate("abaa")]}
    stages = {
        "lines": {"read": {**read, "time": {"column": "at", "unit": "s"}}},
        "counts": {"from": "lines", "window": "2m", "filter": "word = 'a'", "key_by": "word", "agg": {"n": "count(*)"}},
    }
    result = Job(stages=stages).run(backend=LocalBackend()).table()
    assert sorted(result.column("n").to_pylist()) == [1, 2]
    assert result.column_names == ["word", "window_start", "window_end", "n"]


def test_the_order_of_operations_is_kept_where_a_job_is_written_down(tmp_path) -> None:
    body = step('from: lines\nselect: [user]\nrename: {user: word}\nfilter: "word > 0"\nkey_by: word\nreduce: count')
    (tmp_path / "job.yaml").write_text(LINES + body)
    written = as_yaml({"directory": str(tmp_path), "job": load(tmp_path / "job.yaml").config.resolved()})
    assert [*parse_written(written).stages] == [*("lines", "counts.select", "counts.rename", "counts.filter", "counts")]


COUNT = "from: lines\nkey_by: word\nreduce: count"
FACTORS = "slow_factor needs a factor for each task, or none at all, not 2 for 4 tasks"

ERRORS = """
counts:; from: line; key_by: word; reduce: count
    5: stages.counts.from: there is no step 'line'; did you mean 'lines'?
counts:; from: lines; key_by: word; join: {with: line}
    7: stages.counts.join.with: there is no step 'line'; did you mean 'lines'?
a: {from: [lines, c], map: mine:same} | b: {from: a, map: mine:same} | c: {from: b, map: mine:same}
    4: stages.a: the steps a -> b -> c -> a form a cycle
counts:; from: lines; key_by: word; reduce: count; map: mine:same
    4: stages.counts: `reduce` does not stand before `map` in one step: make a step of each
more:; read: {format: records, records: [1]}; filter: mine:keep
    4: stages.more: `read` does nothing else in its step: make another one of the rest
counts:; from: lines; map: mine:same; flat_map: mine:same; schema: {word: string}
    4: stages.counts: `schema` could belong to map or flat_map: give each its own step
counts:; from: lines; filter: "wrod > 0"; key_by: word; agg: {n: "count(*)"}
    6: stages.counts.filter:
counts:; from: lines; reduce: count
    4: stages.counts: `reduce` needs `key_by`, the column that records are grouped by; null takes all records as of one
    key
counts:; map: mine:same
    4: stages.counts: `map` needs rows: name a step in `from`
counts:; parallelism: 3
    4: stages.counts: give one of read, map, flat_map, filter, with_columns, select, drop, rename, explode, unnest,
    window, reduce, agg, process, join, top_k
counts:; from: lines; key_by: word; reduce: count | more: {read: {format: records, records: [1]}}
    8: stages.more: no step takes the rows that it reads: let a step change, reduce, join or rank them (`key_by`
counts:; from: lines; read: {format: records, records: [1]}
    4: stages.counts: `read` takes no rows of other steps: leave `from` out
counts:; from: []; map: mine:same
    5: stages.counts.from: name a step, or a list of steps
my-counts: {from: lines, map: mine:same}
    4: stages.my-counts: the name of a step has up to 64 ASCII letters (A to Z, a to z), digits and `_`, and
1: {from: lines, map: mine:same}
    1: stages.1: the name of a step has up to 64
aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: {from: lines, map: mine:same}
    4: stages.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: the name of
coordinator: {from: lines, map: mine:same}
    4: stages.coordinator: tasks of dpa itself are named 'coordinator': give the step another name
counts:; from: lines; map: mine:keep
    6: stages.counts.map: test_steps.keep is marked `batch_filter`, which is for `filter`, not for `map`
counts:; from: lines; filter: mine:renamed
    6: stages.counts.filter: test_steps.renamed is marked `batch_mapper`, which is for `map` or `flat_map`, not for
    `filter`
counts:; from: lines; key_by: {use: mine:renamed}; reduce: count
    6: stages.counts.key_by: test_steps.renamed is marked `batch_mapper`, which is for `map` or `flat_map`, not
counts:; from: lines; key_by: word; reduce: mine:Visits
    7: stages.counts.reduce: test_steps.Visits is a process: use `process` for it
counts:; from: lines; key_by: word; process: mine:Marked
    7: stages.counts.process: test_steps.Marked is a reducer: use `reduce` for it
counts:; from: lines; map: mine:Pairs
    6: stages.counts.map: test_steps.Pairs is a mapper of keys and values, which steps do not take: use `flat_map` for
    it
counts:; from: lines; key_by: {use: mine:same}; join: {with: lines}
    6: stages.counts.key_by: a join is by columns: make one with `map` and name it
counts:; from: lines; key_by: null; join: {with: lines}
    6: stages.counts.key_by: a join is by columns: name one, or several
counts:; from: lines; key_by: [word, user]; join: {with: lines, key_by: user}
    7: stages.counts.join.key_by: a join needs as many columns of either side; these are word, user on the left side,
    and user on the right one
größe: {from: lines, map: mine:same}
    4: stages.größe: the name of a step has up to 64 ASCII letters (A to Z, a to z), digits and `_`, and
counts:; from: lines; key_by: word; join: {how: left}
    7: stages.counts.join.with: is needed here
counts:; from: lines; key_by: word; join: lines
    7: stages.counts.join: Input should be a mapping of keys (broadcast_mb, how, key_by, value, with), not "lines"
counts:; from: lines; key_by: word; top_k: {k: 1, by: word}
    7: stages.counts.top_k.by: 'word' is what rows are grouped by, and the same in all rows of a key: name
counts:; from: lines; key_by: word; reduce: count; write: {mode: overwrite}
    4: stages.counts: `write` needs a `path`, or `use`; the rows of a result without `write` stay in memory
counts:; from: lines; key_by: word; reduce: count; write: out/x | more: {from: lines, map: mine:same, write: out/x}
    9: stages.more.write.path: out/x and out/x, of stages.counts.write.path, are one directory; name two
counts:; from: lines; key_by: word; reduce: count; balance:;   strategy: halving;   tua: 1
    10: stages.counts.balance.tua: unknown key; did you mean 'tau'? (known here: act_on_old_reports,
counts:; from: lines; key_by: word; reduce: count || key: word
    8: key: belongs to a job of one mapper and one reducer; beside `stages` write `stages.STEP.key_by`
counts:; from: lines; map: mine:same; key_by: word
    4: stages.counts: `map` has no use for `key_by`
more: {read: {format: records, records: [1]}, testing: {slow_factor: [1, 2]}}
    4: stages.more: `read` has no use for `testing`
all:; from: lines; map: mine:same; limits: {batch_records: 5} | counts:; from: all; key_by: word; reduce: count
    7: stages.all.limits: the step runs in the tasks before it: give it `parallelism`, or leave `limits` out
counts:; from: lines; map: mine:same; grouping: key
    7: stages.counts.grouping: `key` is by key, and rows have none here: leave it out, or use `shuffle`
counts:; from: lines; map: mine:same; balance: adaptive
    7: stages.counts.balance: moves keys, and rows have none here: leave it out
counts:; from: lines; key_by: word; reduce: count; grouping: key; balance: halving
    9: stages.counts.balance.strategy: `halving` redistributes the ring, which the grouping `key` does not use:
counts:; from: lines; key_by: word; process: mine:Visits; grouping: shuffle
    8: stages.counts.grouping: `shuffle` sends records of one key to several tasks, but test_steps.Visits is a process,
    which must get all records of a key on one task: use `key` or `ring`
counts:; from: lines; key_by: word; reduce: count; testing: {slow_factor: [1, 2]}
    8: stages.counts.testing: slow_factor needs a factor for each task, or none at all, not 2 for 4 tasks
counts:; from: lines; key_by: wrod; reduce: count
    6: stages.counts.key_by: the step 'lines' has no column 'wrod'; it has word, user
counts:; from: lines; key_by: user; value: wrod; reduce: count
    7: stages.counts.value: the step 'lines' has no column 'wrod'; it has word, user
counts:; from: lines; key_by: word; reduce: count | top: {from: counts, top_k: {k: 3, by: cuont}}
    8: stages.top.top_k: ranks by the column 'cuont', and the columns are word, count
counts:; from: lines; key_by: word; join: {with: lines, value: x}
    7: stages.counts.join.value: the step 'lines' has no column 'x'; it has word, user
counts:; from: lines; key_by: word; reduce: count | more:; from: counts; key_by: user; reduce: count
    10: stages.more.key_by: the step 'counts' has no column 'user'; it has word, count
counts:; from: lines; key_by: word; join: {with: lines, key_by: name}
    7: stages.counts.join.key_by: the step 'lines' has no column 'name'; it has word, user
counts:; from: lines; key_by: word; reduce: sum
    7: stages.counts.reduce: dpa.aggregates.Sum reads the column 'value', and the columns of the values are user;
"""
"""Steps, in which `; ` begins a line, ` | ` another step and ` || ` a section; and below each what is said of it."""


@pytest.mark.parametrize("case", re.split(r"\n(?=\S)", ERRORS.strip()))
def test_one_line_says_where_what_is_wrong_and_what_would_be_right_of(opened, tmp_path, case: str) -> None:
    steps, *said = case.split("\n    ")
    with pytest.raises(ConfigError) as error:
        opened("  " + steps.replace("; ", "\n    ").replace(" || ", "\n").replace(" | ", "\n  ") + "\n")
    message = str(error.value).replace(f"{__name__}.", "test_steps.")
    assert len(message.splitlines()) == 1
    assert message.startswith(f"{tmp_path}/job.yaml:{' '.join(said)}"), message


@pytest.mark.parametrize("stages", ["", "  a: {from: a, map: mine:same}\n"])
def test_a_job_that_reads_nothing_is_refused(opened, stages: str) -> None:
    wanted = "no step reads an input: give one of them `read`" if stages else "Input should be a mapping of keys"
    with pytest.raises(ConfigError, match=rf"job.yaml:1: stages: {wanted}"):
        opened(stages, head="stages:\n")


def test_a_directory_that_is_not_empty_is_refused_with_the_key_to_change(opened, tmp_path) -> None:
    (tmp_path / "out").mkdir()
    for name in ("_job.yaml", "part-00000.parquet"):
        (tmp_path / "out" / name).touch()
    with pytest.raises(
        ConfigError, match=r"stages\.counts\.write\.path: out is not empty: set stages\.counts\.write\."
    ):
        opened(step(COUNT + "\nwrite: out"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("key: wrod\nreducer: count", "2: key: the input has no column 'wrod'; it has word, user"),
        ("key: word\nvalue: wrod\nreducer: count", "3: value: the input has no column 'wrod'; it has word, user"),
        ("key: word\nreducer: sum", "3: reducer: dpa.aggregates.Sum "),
        ("mapper: mine:Visits\nreducer: count", "2: mapper: <test_steps.Visits object"),
        ("key: word\nreducer: mine:Visits", "3: reducer: <test_steps.Visits object"),
        ("key: word", "reducer: a job needs a reducer: `package.module:Name`, or one of count, sum"),
        ("key: word\nreducer: mine:Marked", "balance.strategy: a redistributed key has states on several tasks"),
        ("key: word\nreducer: count\ntesting: {slow_factor: [1, 5]}", f"4: testing: {FACTORS}"),
        ("key: word\nreducer: count\nelastic: {min_tasks: 5}", "4: elastic: the stage begins with 4 tasks, not"),
    ],
)
def test_a_job_of_one_mapper_and_one_reducer_hears_of_its_own_keys(opened, text: str, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        opened(text, head=SMALL)
    assert f"job.yaml:{line}" in str(error.value) or f"job.yaml: {line}" in str(error.value)
