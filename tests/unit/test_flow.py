"""Flows: what each word does, that a flow and the `stages` of a job file give the same graph, and errors."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml

import dpa
from dpa import Flow, Job
from dpa._streams import _INSTEAD_OF_GROUPS
from dpa.aggregates import Count, Sum
from dpa.config import parse
from dpa.config.stages import INSTEAD
from dpa.errors import ConfigError, TableError
from dpa.flow import Stream
from dpa.testing import LocalBackend, run_local

WORDS = [{"word": "to", "n": 1}, {"word": "be", "n": 2}, {"word": "to", "n": 3}]
PEOPLE = [{"name": "to", "age": 30}, {"name": "or", "age": 40}]


class Longest(dpa.Process):
    """The rows of each key that exceed all before them, and at the end how many there were."""

    def zero(self) -> Any:
        return 0, 0

    def process(self, key: Any, state: Any, value: Any) -> Any:
        most, seen = state
        return (max(most, value), seen + 1), [{"word": key, "n": value}] if value > most else []

    def finish(self, key: Any, state: Any) -> Any:
        return [{"word": key, "n": -state[1]}]


def plus_one(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "n": row["n"] + 1}


def letters(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"letter": letter} for letter in row["word"]]


def is_odd(row: dict[str, Any]) -> bool:
    return bool(row["n"] % 2)


def parity(row: dict[str, Any]) -> str:
    return "odd" if row["n"] % 2 else "even"


@dpa.batch_mapper
def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"word": batch.column("word"), "n": pc.multiply(batch.column("n"), 2)})


@dpa.batch_filter
def above_one(batch: pa.RecordBatch) -> pa.Array:
    return pc.greater(batch.column("n"), 1)


def rows_after(build: Callable[[Stream, Stream], Stream]) -> list[tuple[Any, ...]]:
    """The rows that a flow makes of words and people."""
    flow = Flow("tests")
    words, people = flow.read(WORDS, name="words"), flow.read(PEOPLE, name="people")
    made = build(words, people)
    people.filter(lambda row: True, name="others")  # every input is taken
    name = made.step
    return [tuple(row.values()) for row in run_local(flow)[name].to_pylist()]


# --- words


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda words, _: words.map(plus_one), [("be", 3), ("to", 2), ("to", 4)]),
        (lambda words, _: words.map(doubled), [("be", 4), ("to", 2), ("to", 6)]),
        (lambda words, _: words.map(partial(lambda by, row: {**row, "n": by}, 7)), [("be", 7), ("to", 7), ("to", 7)]),
        (lambda words, _: words.flat_map(letters), [("b",), ("e",), ("o",), ("o",), ("t",), ("t",)]),
        (lambda words, _: words.filter(is_odd), [("to", 1), ("to", 3)]),
        (lambda words, _: words.filter(above_one), [("be", 2), ("to", 3)]),
        (lambda words, _: words.filter(above_one, parallelism=2), [("be", 2), ("to", 3)]),
        (
            lambda words, _: words.filter(is_odd).union(words.map(doubled)),
            [("be", 4), *[("to", n) for n in (1, 2, 3, 6)]],
        ),
        (lambda words, _: words.key_by("word").reduce(Count()), [("be", 1), ("to", 2)]),
        (lambda words, _: words.key_by("word").reduce("count"), [("be", 1), ("to", 2)]),
        (lambda words, _: words.key_by("word").reduce(Count), [("be", 1), ("to", 2)]),
        (lambda words, _: words.key_by("word").reduce({"use": "sum", "args": {"column": "n"}}), [("be", 2), ("to", 4)]),
        (lambda words, _: words.key_by("word").reduce(max), [("be", 2), ("to", 3)]),
        (lambda words, _: words.key_by("word", "n").reduce(Count()), [("be", 2, 1), ("to", 1, 1), ("to", 3, 1)]),
        (lambda words, _: words.key_by(["word", "n"]).reduce(Count()), [("be", 2, 1), ("to", 1, 1), ("to", 3, 1)]),
        (lambda words, _: words.key_by(parity, value="n").reduce(Sum("n")), [("even", 2), ("odd", 4)]),
        (lambda words, _: words.key_by(None).reduce(Count()), [(3,)]),
        (
            lambda words, _: words.key_by("word", value="n").process(Longest()),
            [("be", -1), ("be", 2), ("to", -2), ("to", 1), ("to", 3)],
        ),
        (lambda words, people: words.key_by("word").join(people.key_by("name")), [("to", 1, 30), ("to", 3, 30)]),
        (lambda words, people: words.key_by("word").join(people.key_by("name"), "semi"), [("to", 1), ("to", 3)]),
        (lambda words, people: words.key_by("word").join(people.key_by("name"), "anti"), [("be", 2)]),
        (
            lambda words, people: words.key_by("word").join(people.key_by("name"), "left"),
            [("be", 2, None), ("to", 1, 30), ("to", 3, 30)],
        ),
        (
            lambda words, people: people.key_by("name", value=[]).join(words.key_by("word", value="n"), "right"),
            [("be", 2), ("to", 1), ("to", 3)],
        ),
        (
            lambda words, people: words.key_by("word").join(people.key_by("name"), "full"),
            [("be", 2, None), ("or", None, 40), ("to", 1, 30), ("to", 3, 30)],
        ),
        (lambda words, _: words.top_k(2, by="n"), [(1, "to", 3), (2, "be", 2)]),
        (lambda words, _: words.top_k(1, by="n", descending=False), [(1, "to", 1)]),
        (lambda words, _: words.key_by("word").top_k(1, by="n"), [("be", 1, 2), ("to", 1, 3)]),
    ],
)
def test_a_word_does_what_it_says(build: Any, expected: list[tuple[Any, ...]]) -> None:
    assert sorted(rows_after(build), key=str) == sorted(expected, key=str)


@pytest.mark.parametrize(
    "given",
    [WORDS, pa.Table.from_pylist(WORDS), {"format": "records", "records": WORDS}],
    ids=["records", "Arrow", "a section"],
)
def test_an_input_is_a_table_or_a_section(given: Any) -> None:
    flow = Flow("tests")
    flow.read(given, parallelism=3).key_by("word").reduce(Sum("n"))
    assert run_local(flow)["reduce"].to_pylist() == [{"word": "be", "n": 2}, {"word": "to", "n": 4}]
    assert flow.job().spec.sources[0].tasks == 3


def test_steps_are_named_by_their_words_with_numbers_or_as_one_likes() -> None:
    flow = Flow("tests")
    rows = flow.read(WORDS)
    made = [rows.map(plus_one), rows.map(plus_one), rows.map(plus_one, name="mine"), rows.map(plus_one)]
    assert [rows.step for rows in made] == ["map", "map_2", "mine", "map_3"]
    assert sorted(run_local(flow)) == ["map", "map_2", "map_3", "mine"]


def test_options_of_a_call_are_keys_of_the_step() -> None:
    flow = Flow("tests", seed=5, limits={"batch_records": 9})
    flow.read(WORDS).key_by("word").reduce(
        Count(), parallelism=2, grouping="ring", balance={"strategy": "halving"}, combiner=True
    ).write("out/x", mode="overwrite").reference("SELECT 1", tolerance=0.5)
    config = flow.job().config
    step = config.stages["reduce"]
    assert (config.name, config.seed, config.limits.batch_records) == ("tests", 5, 9)
    assert (step.parallelism, step.grouping.kind, step.balance.strategy, step.combiner) == (2, "ring", "halving", True)
    assert (step.write[0].path, step.write[0].mode) == ("out/x", "overwrite")
    assert (step.reference.sql, step.reference.tolerance) == ("SELECT 1", 0.5)


def test_each_result_is_found_by_the_name_of_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flow = Flow("tests")
    counts = flow.read(WORDS).key_by("word").reduce(Count(), name="counts").write("out/counts")
    counts.top_k(1, by="count", name="top")
    result = flow.run(backend=LocalBackend())
    assert sorted(result.table("counts")["count"].to_pylist()) == [1, 2]
    assert result.table("top").to_pylist() == [{"rank": 1, "word": "to", "count": 2}]
    with pytest.raises(TableError, match="several results: name one of counts, top"):
        result.table()
    assert list((tmp_path / "out" / "counts").glob("*.parquet"))
    with pytest.raises(TableError, match="no result of a stage 'read', but of counts, top"):
        result.table("read")


def test_a_test_reads_other_rows_in_place_of_inputs() -> None:
    flow = Flow("tests")
    flow.read({"format": "csv", "path": "nowhere.csv"}, name="words").key_by("word").reduce(Count())
    assert run_local(flow, {"words": WORDS[:2]})["reduce"].to_pylist() == [
        {"word": "be", "count": 1},
        {"word": "to", "count": 1},
    ]
    with pytest.raises(ConfigError, match="run_local: tests has no step 'wrods' that reads; there are words"):
        run_local(flow, {"wrods": WORDS})


# --- flows and job files


STAGES = """\
words:
  read: {format: given}
  parallelism: 3
people:
  read: {format: given}
changed:
  from: words
  map: mine:plus_one
odd:
  from: changed
  filter: mine:is_odd
  parallelism: 2
all:
  from: [odd, words]
counts:
  from: all
  key_by: word
  value: [n]
  reduce: {use: sum, args: {column: n}}
  parallelism: 2
  balance: none
known:
  from: counts
  key_by: word
  join: {with: people, how: left, key_by: name, value: [age]}
rises:
  from: all
  key_by: {use: "mine:parity"}
  value: [n]
  process: mine:Longest
total:
  from: known
  key_by: null
  reduce: count
top:
  from: known
  top_k: {k: 2, by: n, descending: false}
"""


def in_python() -> Flow:
    """The same in Python."""
    flow = Flow("tests")
    words, people = flow.read(WORDS, name="words", parallelism=3), flow.read(PEOPLE, name="people")
    odd = words.map(plus_one, name="changed").filter(is_odd, name="odd", parallelism=2)
    both = odd.union(words, name="all")
    counts = both.key_by("word", value="n").reduce(Sum("n"), name="counts", parallelism=2, balance="none")
    known = counts.key_by("word").join(people.key_by("name", value="age"), "left", name="known")
    both.key_by(parity, value="n").process(Longest(), name="rises")
    known.key_by(None).reduce(Count(), name="total")
    known.top_k(2, by="n", descending=False, name="top")
    return flow


def test_a_flow_and_the_stages_of_a_job_file_give_the_same_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("mine")
    vars(module).update((made.__name__, made) for made in (plus_one, is_odd, parity, Longest))
    monkeypatch.setitem(sys.modules, "mine", module)
    tables = {"stages.words.read": pa.Table.from_pylist(WORDS), "stages.people.read": pa.Table.from_pylist(PEOPLE)}
    jobs = [Job(file=parse({"stages": yaml.safe_load(STAGES)}), objects=tables), in_python().job()]
    graphs, done, results = [], [], []
    for job in jobs:
        schemas = {name: tables[f"stages.{name}.read"].schema for name in ("words", "people")}
        graphs.append(job.spec.compilation(schemas).compiled({}).graph)
        done.append({step.name: (step.does, step.feeds, step.grouping, step.balance) for step in job.spec.steps})
        found = job.run(backend=LocalBackend())
        results.append([found.table(step.name).to_pylist() for step in job.spec.results])
    assert graphs[0] == graphs[1]
    assert done[0] == done[1]
    assert results[0] == results[1]
    assert [edge for edge in graphs[0].edges if edge.target == "rises"]


# --- errors


def flow_of(build: Callable[[Stream], Any]) -> Flow:
    flow = Flow("tests")
    build(flow.read(WORDS))
    return flow


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda rows: rows.key_by(), "key_by needs a column, several, or a function of a record; None is one key of"),
        (lambda rows: rows.key_by("word").join(rows), "a join is with rows by key: give those of `key_by`"),
        (lambda rows: rows.key_by(parity).join(rows.key_by("word")), "a join is by columns: make one with `map`"),
        (lambda rows: rows.key_by("word").join(rows.key_by(None)), "a join is by columns: make one with `map`"),
        (lambda rows: rows.union(Flow("b").read(WORDS)), "rows of flow 'b' cannot be used in 'tests': make one"),
        (
            lambda rows: rows.key_by("word").join(Flow("b").read(WORDS).key_by("word")),
            "rows of flow 'b' cannot be used in 'tests': make one flow",
        ),
        (lambda rows: rows.map(plus_one, name="read"), "the flow 'tests' has a step 'read' already: give this one"),
        (lambda rows: rows.map(plus_one, name=["a"]), "the name of a step is a text, not ['a']"),
        (lambda rows: rows.union(WORDS), "a union is of rows of a flow, as `read` and `map` return, not of dict"),
        (lambda rows: rows.union(rows.key_by("word")), "a union is of rows of a flow, as `read` and `map` return,"),
        (
            lambda rows: rows.flow.read({"word": "a"}),
            "this is a mapping without `path` or `format`: give an `input` section",
        ),
        (
            lambda rows: rows.map(plus_one).results(print, publish={"mode": "final", "every": "1s"}),
            "`publish` is 'final', 'changes' or 'table', not {'mode': 'final', 'every': '1s'}; give `every` beside",
        ),
        (lambda rows: Flow("b", stages={}), "the steps of a flow are made by its calls: leave `stages` out"),
        (
            lambda rows: rows.map(plus_one).reference("SELECT 1", tolerance=0.1).reference(function="own:reference"),
            "the step 'map' has `reference` already: {'sql': 'SELECT 1', 'tolerance': 0.1}; give it once",
        ),
        (
            lambda rows: rows.key_by("word").reduce("count", key_by="n"),
            "the step 'reduce' has `key_by` already: 'word'; give it once",
        ),
        (
            lambda rows: rows.key_by("word", value="n").reduce("count", value=["word"]),
            "the step 'reduce' has `value` already: ['n']; give it once",
        ),
        (
            lambda rows: rows.map(plus_one, **{"from": "other"}),
            "the step 'map' has `from` already: ['read']; give it once",
        ),
    ],
)
def test_a_call_that_makes_no_sense_is_refused_at_once(build: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        flow_of(build)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda rows: rows.key_by("word"),
            "stages.read: no step takes the rows that it reads: let a step change, reduce, join or rank them (`key_by` "
            "alone makes no step), or do not read them",
        ),
        (lambda rows: rows.write("x"), "stages.read: `read` has no use for `write`"),
        (lambda rows: rows.map(Count()), "stages.map.map: dpa.aggregates.Count is a reducer: use `reduce` for it"),
        (lambda rows: rows.map(5), "stages.map.map: 5 is no function of a record, which `map` needs"),
        (lambda rows: rows.key_by("word", parity).reduce(Count()), "stages.reduce.key_by: a key is the name of a col"),
        (lambda rows: rows.key_by("word").reduce(is_odd), "stages.reduce.reduce: test_flow.is_odd is called with (le"),
        (lambda rows: rows.top_k(0, by="n"), "stages.top_k.top_k.k: Input should be greater than or equal to 1, not 0"),
    ],
)
def test_a_flow_that_does_not_fit_is_refused_with_the_name_of_the_step(build: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        flow_of(build).check()
    assert str(error.value).replace(f"{__name__}.", "test_flow.").startswith(f"Flow('tests'): {message}")


def test_a_column_may_be_named_by_an_expression_and_other_expressions_are_refused_at_once() -> None:
    rows = Flow("shop").read([{"id": 1, "cents": 5}])
    assert rows.key_by(pl.col("id")).agg(n="count(*)").head().to_pylist() == [{"id": 1, "n": 1}]
    assert rows.top_k(1, by=pl.col("cents")).count(whole=True) == 1  # type: ignore[arg-type]
    for build in (
        lambda key: rows.key_by("id", key),
        lambda key: rows.key_by([key]),
        lambda key: rows.top_k(1, by=key),
    ):
        with pytest.raises(ConfigError, match=re.escape('a column is named here, and this is [(col("cents"))')):
            build(pl.col("cents") + 1)


def test_a_method_of_polars_or_spark_is_answered_with_what_says_the_same_here() -> None:
    rows = Flow("shop").read([{"id": 1}])
    with pytest.raises(AttributeError, match=r"have no 'groupBy': write `key_by\(\.\.\.\)\.agg\(\.\.\.\)`$"):
        rows.groupBy("id")  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"have no 'with_colums'$"):
        rows.with_colums(n="id + 1")  # type: ignore[attr-defined]
    by_id = rows.key_by("id")
    with pytest.raises(AttributeError, match=r"^rows by key have no 'mean': write `agg\(\"sum\(NAME\)\"\)`$"):
        by_id.mean("id")  # type: ignore[attr-defined]
    calls = {word for right in (*INSTEAD, *_INSTEAD_OF_GROUPS) for word in re.findall(r"(\w+)\(", right)} - {
        "table",
        "run",
    }
    assert all(hasattr(rows, word) or hasattr(by_id, word) for word in calls - {"count", "sum"})
    for lacking, instead in ((rows, INSTEAD), (by_id, _INSTEAD_OF_GROUPS)):
        assert not any(hasattr(lacking, word) for words in instead.values() for word in words.split())


def test_a_flow_without_steps_is_refused_as_such() -> None:
    for job in (lambda: Flow("tests").job(), lambda: Job(file=parse({"stages": {}}, origin="Flow('tests')"))):
        with pytest.raises(
            ConfigError, match=r"^Flow\('tests'\): stages: there is no step: a graph has one that reads"
        ):
            job().check()


def test_joins_may_be_called_as_elsewhere_and_a_path_to_write_to_may_be_a_path_object(tmp_path: Path) -> None:
    for word, how in {"outer": "full", "full_outer": "full", "left_outer": "left", "left_anti": "anti"}.items():
        flow = flow_of(lambda rows, word=word: rows.key_by("word").join(rows.key_by("word"), word, name="pairs"))
        assert [step.does for step in flow.job().spec.steps if step.name == "pairs"] == [f"{how} join by word"]
    flow = flow_of(lambda rows: rows.map(plus_one).write(tmp_path / "out"))
    assert flow.job().directories == {"stages.map.write.path": str(tmp_path / "out")}


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        (
            1.5,
            "make decimals of them: `cast(x AS decimal(18, 6)) AS x` in the `select` of an input that Spark reads, or",
        ),
        (
            {"a": 1},
            "make a column of each field (`x.a AS a, x.b AS b` in the `select` of an input that Spark reads, or",
        ),
        ([1], "make text of them: `to_json(x) AS x` in the `select` of an input that Spark reads, or `json.dumps(row"),
    ],
    ids=["a number", "a record", "a list"],
)
def test_how_to_mend_a_key_is_said_for_inputs_without_a_query_too(key: Any, remedy: str) -> None:
    flow = Flow("tests")
    flow.read([{"x": key}]).key_by("x").reduce("count")
    with pytest.raises(ConfigError, match=re.escape(remedy)):
        flow.check()
    named = Flow("tests")
    named.read([{"key": 1, "n": 1}]).key_by(lambda row: row["n"]).top_k(1, by="n", name="top")
    with pytest.raises(ConfigError, match=r"stages\.top\.key_by: .* a column 'key', which is the key column; leave it"):
        named.check()


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"sed": 1}, "sed: unknown key; did you mean 'seed'?"),
        ({"parallelism": {"mappers": 1}}, "parallelism: belongs to a job of one mapper and one reducer; beside"),
    ],
)
def test_sections_of_a_flow_are_those_of_a_job_that_has_stages(sections: dict[str, Any], message: str) -> None:
    flow = Flow("tests", **sections)
    flow.read(WORDS).map(plus_one)
    with pytest.raises(ConfigError) as error:
        flow.check()
    assert str(error.value).startswith(f"Flow('tests'): {message}")
