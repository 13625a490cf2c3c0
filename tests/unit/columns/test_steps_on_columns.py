"""Steps on columns in flows and job files: what they give, what is refused before anything runs, and what fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import polars.selectors as cs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from random_columns import TRUNCATES
from typer.testing import CliRunner

import dpa
from dpa import Flow, Job
from dpa.dead_letters.__main__ import app
from dpa.dead_letters._letters import FoundLetters
from dpa.errors import ConfigError, JobFailedError
from dpa.flow import Stream
from dpa.testing import LocalBackend

SALES = pa.table(
    {
        "cents": pa.array([150, 0, 250, -5], pa.int32()),
        "who": ["a", "b", "7", None],
        "tags": [["x", "y"], [], None, ["z"]],
        "place": [{"lat": 1, "lon": 2}] * 4,
        "left": pa.array([1, 2, 3, 4], pa.decimal256(60, 2)),
    }
)


def run(change: Callable[[Stream], Stream], table: pa.Table = SALES, **sections: Any) -> pa.Table:
    flow = Flow("tests", limits={"batch_records": 2, "split_records": 3}, **sections)
    change(flow.read(table, name="sales"))
    return flow.run(backend=LocalBackend()).table()


def rows(table: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(zip(*(table.column(name).to_pylist() for name in columns), strict=True), key=repr)


def paid(row: dict[str, Any]) -> bool:
    return row["cents"] > 0


def doubled(row: dict[str, Any]) -> dict[str, Any]:
    return {"cents": row["cents"] * 2, "who": row["who"]}


@dpa.batch_mapper
def halved(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["who"]).append_column("half", pa.array([each / 2 for each in batch["cents"].to_pylist()]))


def fails(value: int) -> int:
    if value < 0:
        raise ValueError(f"{value} is negative")
    return value


def test_steps_on_columns_and_functions_mix_in_any_order() -> None:
    made = run(
        lambda sales: (
            sales.filter("cents > 0")
            .with_columns(euros=pl.col("cents") / 100)
            .filter(paid)
            .map(doubled, schema={"cents": "int64", "who": "string"})
            .with_columns("cents + 1 AS cents")
            .map(halved)
            .rename({"half": "h"})
            .select("who", pl.col("h") * 10)
        )
    )
    assert rows(made, "who", "h") == [("7", 2505.0), ("a", 1505.0)]


def test_columns_that_are_passed_on_keep_their_types_and_those_of_no_rows_are_known() -> None:
    made = run(lambda sales: sales.filter(pl.col("cents") != 0).rename({"left": "rest"}).drop("tags"))
    kept = [field for field in SALES.schema if field.name != "tags"]
    assert made.schema.equals(pa.schema([field.with_name("rest") if field.name == "left" else field for field in kept]))
    made = run(lambda sales: sales.select(cs.integer(), pl.col("who", "tags").is_null().name.suffix("_missing")))
    assert made.column_names == ["cents", "who_missing", "tags_missing"]
    made = run(lambda sales: sales.filter("cents > 1000").with_columns(e="cents / 100").select("e", "who"))
    assert (made.num_rows, made.schema) == (0, pa.schema({"e": pa.float64(), "who": pa.string()}))


def test_a_job_file_has_the_same_steps(tmp_path: Path) -> None:
    pq.write_table(SALES.drop_columns("left"), tmp_path / "sales.parquet")
    (tmp_path / "job.yaml").write_text("""
stages:
  sales: {read: {path: sales.parquet}}
  paid: {from: sales, filter: "cents > 0"}
  priced: {from: paid, with_columns: {euros: "cents / 100", who: "upper(who)"}}
  more: {from: priced, with_columns: ["euros * 2 AS twice"]}
  named: {from: more, unnest: place, explode: [tags], drop: [cents, lon], rename: {tags: tag}}
  short: {from: named, select: [who, tag, "lat + 1 AS north", twice]}
""")
    made = Job.from_file(tmp_path / "job.yaml").run(backend=LocalBackend()).table()
    assert rows(made, "who", "tag", "north", "twice") == [("7", None, 2, 5.0), ("A", "x", 2, 3.0), ("A", "y", 2, 3.0)]


WRONG = {
    "missing": (
        lambda sales: sales.filter(pl.col("cent") > 0),
        r'stages\.filter\.filter: filter\(\[\(col\("cent"\)\) > \(0\)\]\): unable to find column "cent"; '
        'valid columns: .*; Did you mean "cents"',
    ),
    "type": (
        lambda sales: sales.with_columns(x=pl.col("who") + 1),
        r"stages\.with_columns\..*arithmetic on dtypes str",
    ),
    "condition": (lambda sales: sales.filter("cents"), "predicate must be of type `Boolean`, got `Int32`"),
    "opaque": (
        lambda sales: sales.with_columns(x=pl.col("left") + 1),
        r"stages\.with_columns\.with_columns: .*dpa\.opaque",
    ),
    "drop": (
        lambda sales: sales.drop("tag"),
        r"drop\(tag\): there is no column 'tag' among cents, .*; did you mean 'tags'\?",
    ),
    "rename": (lambda sales: sales.rename({"a": "b"}), "there is no column 'a' among cents, who"),
    "twice": (lambda sales: sales.rename({"cents": "who"}), r"stages\.rename\.rename"),
    "explode": (lambda sales: sales.explode("cents"), "the column 'cents' is Int32, and `explode` needs lists"),
    "explode a struct": (lambda sales: sales.explode("place"), "the column 'place' is Struct.* needs lists"),
    "unnest": (lambda sales: sales.unnest("tags"), r"stages\.unnest\.unnest: unnest\(tags\)"),
    "later": (
        lambda sales: sales.select("cents").select("who"),
        r"stages\.select_2\.select: .*unable to find column \"who\"",
    ),
}


if TRUNCATES:
    WRONG["types"] = (lambda sales: sales.filter("date_trunc('day', cents) = 1"), r"stages\.filter\.filter: ")


@pytest.mark.parametrize(("change", "why"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_the_columns_is_refused_before_anything_runs(
    change: Callable[[Stream], Stream], why: str
) -> None:
    flow = Flow("tests")
    change(flow.read(SALES, name="sales"))
    with pytest.raises(ConfigError, match=why):
        flow.validate()


GIVEN = {
    "shift": (
        lambda sales: sales.with_columns(x=pl.col("cents").shift(1), y="1"),
        r"the step 'with_columns': `shift` in",
    ),
    "sql": (
        lambda sales: sales.filter("cents > > 1", name="paid"),
        r"the step 'paid': this is no SQL.*\n    cents > > 1\n {12}\^",
    ),
    "no expression": (lambda sales: sales.select(3), "needs expressions of polars or SQL texts, and this is 3"),
    "nothing": (lambda sales: sales.with_columns(), "`with_columns` needs an expression"),
    "no name": (lambda sales: sales.drop(pl.col("cents")), "`drop` needs names of columns"),
    "no names": (lambda sales: sales.explode(), "`explode` needs names of columns, and this is none"),
    "no new names": (lambda sales: sales.rename({}), "`rename` needs new names by old ones"),
    "several": (lambda sales: sales.filter(pl.col("cents") > 1, name="f").filter(3), "3 is no function of a record"),
}


if TRUNCATES:
    GIVEN["selector"] = (
        lambda sales: sales.select(pl.all(), d="date_trunc('day', cents)"),
        "`date_trunc`, cannot share a step with a column selector: make two steps of `select`",
    )


@pytest.mark.parametrize(("change", "why"), GIVEN.values(), ids=GIVEN)
def test_what_is_no_step_is_refused_when_it_is_written(change: Callable[[Stream], Stream], why: str) -> None:
    flow = Flow("tests")
    with pytest.raises(ConfigError, match=why):
        change(flow.read(SALES, name="sales"))
        flow.check()


def test_a_strict_cast_that_fails_names_step_column_and_value() -> None:
    with pytest.raises(JobFailedError) as error:
        run(lambda sales: sales.with_columns(n=pl.col("who").cast(pl.Int64), m="cents").filter("n > 0", name="good"))
    said = str(error.value)
    assert 'with_columns: with_columns(n = col("who").strict_cast(Int64), m = cents) failed on a batch of' in said
    assert "conversion from `str` to `i64` failed in column 'who'" in said and '["a"' in said
    assert "site-packages/polars" not in said and "dpa/columns" not in said
    function = pl.col("cents").map_elements(fails, return_dtype=pl.Int32)
    with pytest.raises(JobFailedError, match="ValueError: -5 is negative") as error:
        run(lambda sales: sales.with_columns(x=function))
    assert "in fails" in str(error.value)


@pytest.mark.parametrize("on_error", ["skip", "dead_letter"])
def test_rows_that_fail_are_left_out_of_fused_steps_one_by_one(on_error: str, tmp_path: Path) -> None:
    place = {"dead_letters": str(tmp_path)} if on_error == "dead_letter" else {}
    flow = Flow("tests", on_error=on_error, limits={"batch_records": 2, "split_records": 3}, **place)
    numbers = flow.read(SALES, name="sales").with_columns(n=pl.col("who").cast(pl.Int64)).explode("tags")
    checked = numbers.with_columns(pl.col("cents").map_elements(fails, return_dtype=pl.Int32))
    checked.select("n", "cents", "tags", "who").key_by(None).top_k(9, by="cents")
    result = flow.run(backend=LocalBackend())
    assert rows(result.table(), "n", "cents", "tags", "who") == [(7, 250, None, "7")]
    assert {(each.step, each.error, each.records) for each in result.report.errors} == {
        ("with_columns", "InvalidOperationError", 2),
        ("with_columns_2", "ValueError", 1),
    }
    if on_error == "dead_letter":
        letters = FoundLetters.read(str(tmp_path)).letters
        assert sorted((each.step, each.method, each.record[:30]) for each in letters) == [
            ("with_columns", "with_columns", '{"cents": 0, "who": "b", "tags'),
            ("with_columns", "with_columns", '{"cents": 150, "who": "a", "ta'),
            ("with_columns_2", "with_columns", '{"cents": -5, "who": null, "ta'),
        ]
        assert sorted((each.offset, each.rows) for each in letters) == [(0, 1), (0, 1), (1, 1)]


def test_dead_letters_of_steps_on_columns_are_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text("""
stages:
  sales: {read: {format: records, records: [{n: "1"}, {n: "two"}, {n: "3"}]}}
  numbers: {from: sales, with_columns: {n: "cast(n AS bigint)"}}
  positive: {from: numbers, filter: "n > 0", parallelism: 1, write: out}
on_error: dead_letter
dead_letters: dead
""")
    Job.from_file("job.yaml").run(backend=LocalBackend())
    mended = ["--set", 'stages.numbers.with_columns={n: "coalesce(try_cast(n AS bigint), 2)"}']
    said = CliRunner().invoke(app, ["dead", "replay", "job.yaml", *mended]).output
    assert "1 record replayed" in said
    assert sorted(pq.read_table("out")["n"].to_pylist()) == [1, 2, 3]


def test_whether_a_row_fails_depends_on_no_other_row_of_its_batch() -> None:
    """Polars computes no column that nobody takes, also where another column has made rows be tried one by one."""
    table = pa.table({"a": ["1", "x", "3", "4"], "b": ["1", "2", "y", "4"]})
    for batch_records in (1, 2, 4):
        flow = Flow("tests", on_error="skip", limits={"batch_records": batch_records})
        numbers = flow.read(table).with_columns(n=pl.col("a").cast(pl.Int64)).with_columns(m=pl.col("b").cast(pl.Int64))
        numbers.select("m").key_by("m").reduce("count")
        assert rows(flow.run(backend=LocalBackend()).table(), "m") == [(1,), (2,), (4,)]


def test_steps_on_columns_can_be_looked_at() -> None:
    flow = Flow("tests")
    sales = flow.read(SALES, name="sales")
    named = sales.with_columns(pl.col("cents") * 2, euros="cents / 100").rename({"who": "name"})
    assert (named.count(), named.filter("cents > 0").count()) == (4, 2)
    assert named.select("euros").head(1).to_pylist() == [{"euros": 1.5}]
    shown = str(named.filter("cents > 0").select("name").key_by("name").reduce("count").flow.forecast())
    assert "filter(cents > 0)" in shown and "select(name)" in shown
    assert '[(col("cents")) * (dyn int: 2)], cents / 100 AS "euros"' in repr(Stream(flow, "with_columns"))


def refuses(row: dict[str, Any]) -> dict[str, Any]:
    if row["n"] % 7 == 3:
        raise ValueError("not this one")
    return row


@dpa.batch_mapper
def refuses_batches(batch: pa.RecordBatch) -> pa.RecordBatch:
    for row in batch.to_pylist():
        refuses(row)
    return batch


@pytest.mark.parametrize("reads", ["memory", "batches", "scan"])
@pytest.mark.parametrize("behind", ["record", "batch", "key", "two"])
def test_the_letter_of_a_row_that_a_query_made_names_the_row_of_the_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: str, behind: str
) -> None:
    if reads == "scan":
        monkeypatch.setattr("dpa.execution._queries._LEAST", 1)
    rows = pa.table({"n": range(120), "l": [[1, 2, 3][: row % 4] for row in range(120)]})
    source: Any = rows
    if reads != "memory":
        source = tmp_path / "in.parquet"
        pq.write_table(rows, source, row_group_size=40)
    limits = {"split_records": 1_000, "batch_records": 50}
    flow = Flow("letters", on_error="dead_letter", dead_letters=str(tmp_path / "dead"), limits=limits)
    made = flow.read(source).filter("n % 3 > 0").with_columns(m=pl.col("n") + 1).explode("l").filter("l is not null")
    if behind == "two":
        made = made.map(lambda row: row).filter("l < 3").select("n", "l")
    if behind == "key":
        made.key_by(lambda row: refuses(row)["n"]).reduce("count")
    else:
        made.map(refuses_batches if behind == "batch" else refuses).key_by(None).reduce("count")
    flow.run(backend=LocalBackend())
    letters = pq.read_table(tmp_path / "dead").to_pylist()
    most = 2 if behind == "two" else 3
    bad = [n for n in range(120) if n % 3 and n % 7 == 3 for _ in range(min(n % 4, most))]
    assert sorted(json.loads(letter["record"])["n"] for letter in letters) == bad
    for letter in letters:
        assert 0 <= json.loads(letter["record"])["n"] - letter["offset"] < letter["rows"], letter
        assert letter["rows"] == 1 or behind == "two"
