"""Looking at a step while a flow is built, without Ray or Spark: the guard of unit tests refuses both."""

import re
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from xml.dom.minidom import parseString

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrow_columns import COLUMNS
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_broker import make_topic, produce
from pyarrow import csv, feather

import dpa
from dpa import Feed, Flow, Page, Process, batch_filter, batch_mapper
from dpa.aggregates import Count, Sum
from dpa.errors import ConfigError, ExecutorError
from dpa.flow import Stream
from dpa.sources.splits import memory_splits
from dpa.testing import LocalBackend, run_local

ROWS = 30_000
TABLE = pa.table(
    {
        "row": pa.array(range(ROWS), pa.int32()),
        "word": [f"word {row % 7}" for row in range(ROWS)],
        "at": pa.array([datetime(2026, 1, 1, 0, row % 60) for row in range(ROWS)], pa.timestamp("us")),
    }
)
ORDERS = [{"customer": 1, "cents": 30}, {"customer": 2, "cents": 5}, {"customer": 1, "cents": 12}]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("looks")
    pq.write_table(TABLE.slice(0, 20_000), place / "a.parquet", row_group_size=6_000)
    pq.write_table(TABLE.slice(20_000), place / "b.parquet", row_group_size=6_000)
    feather.write_feather(TABLE, place / "all.arrow", chunksize=6_000)
    csv.write_csv(TABLE, place / "all.csv")
    return place


class Running(Process[int, int]):
    def zero(self) -> int:
        return 0

    def process(self, key: Any, state: int, value: int) -> tuple[int, list[dict[str, Any]]]:
        return state + value, [{"customer": key, "so_far": state + value}]


def of_orders() -> Stream:
    return Flow("shop").read(ORDERS, name="orders")


STEPS: dict[str, Callable[[Stream], Stream]] = {
    "read": lambda rows: rows,
    "map": lambda rows: rows.map(lambda row: {"euros": row["cents"] / 100}),
    "flat_map": lambda rows: rows.flat_map(lambda row: [row, row]),
    "filter": lambda rows: rows.filter(lambda row: row["cents"] > 5),
    "batches": lambda rows: rows.map(batch_mapper(lambda batch: batch.select(["cents"]))),
    "mask": lambda rows: rows.filter(batch_filter(lambda batch: [True] * batch.num_rows)),
    "expressions": lambda rows: (
        rows.filter(pl.col("cents") > 5).with_columns(euros=pl.col("cents") / 100).drop("cents")
    ),
    "SQL texts": lambda rows: rows.filter("cents > 5").select("customer", "cents * 2 AS twice"),
    "tasks of its own": lambda rows: rows.map(lambda row: row, parallelism=3).filter(lambda row: True, parallelism=2),
    "union": lambda rows: rows.union(rows.flow.read([{"customer": 9, "cents": 1}], name="more")),
    "reduce": lambda rows: rows.key_by("customer").reduce(Sum("cents")),
    "process": lambda rows: rows.key_by("customer").process(Running()),
    "join": lambda rows: rows.key_by("customer").join(
        rows.flow.read([{"id": 1, "country": "DE"}], name="customers").key_by("id"), "left"
    ),
    "top_k": lambda rows: rows.top_k(2, by="cents"),
    "steps by key in turn": lambda rows: rows.key_by("customer").reduce(Sum("cents")).key_by("cents").reduce(Count()),
}


def in_any_order(rows: pa.Table) -> list[Any]:
    return sorted(rows.to_pylist(), key=repr)


@pytest.mark.parametrize("kind", STEPS)
def test_the_rows_of_a_step_are_those_of_a_run(kind: str) -> None:
    rows = STEPS[kind](of_orders())
    found, shown = rows.head(100), rows.count(whole=True)
    result = rows if kind != "read" else rows.map(lambda row: row)
    [run] = run_local(result.flow).values()
    assert in_any_order(found) == in_any_order(run)
    assert found.schema.equals(run.schema) and shown == run.num_rows


@pytest.mark.parametrize("kind", STEPS)
def test_every_step_has_a_plan_a_description_and_a_picture(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = STEPS[kind](of_orders())
    rows.explain()
    rows.show(1)
    said = capsys.readouterr().out
    assert said.startswith("orders  read a table, 2 tasks, 3 rows\n") and " row" in said.splitlines()[-4]
    assert rows.describe().height == 9
    page = parseString(f"<page>{rows._repr_html_()}</page>")
    assert len(page.getElementsByTagName("rect")) == len(rows._looking().stages)
    assert len(page.getElementsByTagName("table")) == 1


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_columns_of_every_type_are_described(column: pa.Array) -> None:
    described = Flow("types").read(pa.table({"x": column})).filter(pl.lit(True)).describe()
    assert described["statistic"].to_list()[:2] == ["count", "null_count"] and "x" in described.columns


def test_rows_keep_the_order_of_the_input(files: Path) -> None:
    rows = Flow().read(files / "*.parquet").filter(lambda row: row["row"] % 3 == 0, parallelism=4)
    assert rows.head(3).column("row").to_pylist() == [0, 3, 6]
    assert rows.head(9_000).column("row").to_pylist() == list(range(0, 27_000, 3))


def test_no_more_rows_are_taken_than_it_needs_and_functions_see_each_row_once_however_few_pass(files: Path) -> None:
    seen: list[int] = []
    Flow().read(files / "*.parquet").map(lambda row: seen.append(row["row"]) or row).head(5)
    assert seen == list(range(5))
    seen.clear()
    rows = Flow().read(files / "*.parquet").filter(lambda row: seen.append(row["row"]) or row["row"] >= 1_000)
    assert rows.head(2).column("row").to_pylist() == [1_000, 1_001]
    assert seen == list(range(len(seen))) and len(seen) < 10_000


def test_it_stops_where_few_rows_pass(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = Flow().read(files / "*.parquet", name="words").filter(lambda row: row["row"] == 12_345)
    rows.show(2, first=10_000)
    assert capsys.readouterr().out.startswith("0 rows, made of the first 10,000 rows of words\n")
    assert rows.head(2, first=10_000).schema == rows.schema
    assert rows.head(2).num_rows == 1


def test_what_depends_on_all_rows_says_of_which_it_is(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = Flow().read(files / "*.parquet", name="words").key_by("word").reduce(Count(), name="counts")
    rows.show(2)
    assert capsys.readouterr().out.splitlines() == [
        "first 2 of 7 rows, made of the first 10,000 rows of words",
        "word    count",
        "string  int64",
        "word 0   1429",
        "word 1   1429",
    ]
    rows.show(2, first=ROWS)
    assert "made of the first 10,000 rows" in capsys.readouterr().out
    rows.show(8)
    assert capsys.readouterr().out.startswith("7 rows\n"), "more rows were taken, and these were all"


def test_rows_are_counted_from_footers(files: Path) -> None:
    rows = Flow().read(files / "*.parquet")
    calls: list[Any] = []
    assert rows.count() == ROWS
    assert rows.map(calls.append).union(rows).count() == 2 * ROWS and not calls
    assert rows.filter(lambda row: row["row"] % 2).count() == ROWS / 2, "by reading"


def test_expressions_are_counted_and_planned(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = Flow().read(files / "*.parquet").with_columns(half=pl.col("row") / 2)
    assert rows.count() == ROWS
    few = rows.filter(pl.col("half") < 50)
    assert few.count() == 100 and few.schema.field("half").type == pa.float64()
    few.explain()
    assert "filter" in capsys.readouterr().out


def test_the_cost_of_counting_by_key_is_said_and_columns_are_known_without_rows(files: Path) -> None:
    read = Flow().read(files / "*.parquet")
    assert read.schema == TABLE.schema
    assert read.filter(lambda row: False).key_by("word").reduce(Count()).schema == pa.schema(
        {"word": pa.string(), "count": pa.int64()}
    )
    rows = read.key_by("word").reduce(Count(), name="counts")
    with pytest.raises(ConfigError, match=r"'counts' are known when .*`count\(whole=True\)` reads and processes all"):
        rows.count()
    assert rows.count(whole=True) == 7


def test_what_hides_columns_is_named() -> None:
    made = of_orders().map(lambda row: row, name="made")
    for rows in (made, made.filter(lambda row: True), made.key_by("customer").reduce(Sum("cents"))):
        with pytest.raises(ConfigError, match=r"'made' does not say .*`map\(\.\.\., schema="):
            _ = rows.schema
    declared = of_orders().map(lambda row: row, schema={"customer": "int64", "cents": "double"})
    assert declared.schema.field("cents").type == pa.float64()
    with pytest.raises(ConfigError, match=r"'read' does not say .*`read\(\.\.\., schema="):
        _ = Flow().read([]).schema


class Halves(Feed):
    """A table, given in two pages; open ones may get more."""

    def __init__(self, is_open: bool = False) -> None:
        self.is_open = is_open

    @property
    def schema(self) -> pa.Schema:
        return TABLE.schema

    def poll(self, split_rows: int, position: Any = None) -> Page:
        page = position or 0
        half = memory_splits(TABLE.slice(15_000 * page, 15_000), split_rows)
        return Page(half, page + 1 if self.is_open or page == 0 else None)


class Numbers(dpa.Generator):
    def batch(self, start: int, rows: int, rng: Any) -> pa.RecordBatch:
        return pa.record_batch({"row": pa.array(range(start, start + rows), pa.int32())})


GENERATED = {"format": "generated", "use": f"{__name__}:Numbers"}
INPUTS: dict[str, Callable[[Path], Any]] = {
    "parquet": lambda files: str(files / "*.parquet"),
    "table": lambda files: TABLE,
    "records": lambda files: {"format": "records", "records": TABLE.slice(0, 50).to_pylist()},
    "frame": lambda files: TABLE.to_pandas(),
    "generated": lambda files: {**GENERATED, "rows": ROWS},
    "paced": lambda files: {**GENERATED, "rows": ROWS, "rate": 1},
    "without end": lambda files: {**GENERATED, "rows": None, "rate": 1},
    "feed": lambda files: {"format": "feed", "use": f"{__name__}:Halves"},
    "open feed": lambda files: {"format": "feed", "use": f"{__name__}:Halves", "args": {"is_open": True}},
    "watched": lambda files: {"format": "parquet", "path": str(files), "glob": "*.parquet", "watch": {}},
    "arrow": lambda files: files / "all.arrow",
    "csv in place": lambda files: {"path": str(files / "all.csv"), "in_place": True},
    "csv": lambda files: files / "all.csv",
}


@pytest.mark.parametrize("kind", INPUTS)
def test_inputs_are_looked_at_where_they_are(kind: str, files: Path) -> None:
    rows = Flow().read(INPUTS[kind](files))
    assert rows.head(40).column("row").to_pylist() == list(range(40))
    assert "row" in rows.schema.names
    assert rows.filter(lambda row: row["row"] > 10).head(2).column("row").to_pylist() == [11, 12]
    if kind in ("without end", "open feed", "watched"):
        with pytest.raises(ConfigError, match="no last row, as its input is open"):
            rows.count()
    else:
        assert rows.count() == (50 if kind == "records" else ROWS)


def test_csv_is_looked_at_without_spark(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,word,part,on\n1,a,0.5,2026-01-31\n2,,1,\n")
    (tmp_path / "b.csv").write_text("n,word,part,on\n3,c,2,2026-02-01\n")
    rows = Flow().read(tmp_path / "*.csv")
    assert [str(kind) for kind in rows.schema.types] == ["int64", "string", "double", "date32[day]"]
    assert rows.head().column("word").to_pylist() == ["a", None, "c"]
    assert rows.map(lambda row: {"twice": 2 * row["n"]}).head().column("twice").to_pylist() == [2, 4, 6]
    assert rows.count() == 3
    plain = Flow().read({"format": "csv", "path": str(tmp_path / "a.csv")})
    assert plain.schema == pa.schema([(f"_c{place}", pa.string()) for place in range(4)])
    assert plain.head(1).to_pylist() == [{"_c0": "n", "_c1": "word", "_c2": "part", "_c3": "on"}]
    told = Flow().read(tmp_path / "a.csv", options={"inferSchema": False, "sep": ";"})
    assert told.head().column_names == ["n,word,part,on"]


def test_json_and_text_are_looked_at_without_spark(tmp_path: Path) -> None:
    lines = """{"word": "a", "n": 1, "tags": ["x"]}\n{"n": 2, "word": "b"}\n"""
    (tmp_path / "a.jsonl").write_text(lines)
    rows = Flow().read(tmp_path / "a.jsonl")
    assert rows.head().to_pylist() == [{"n": 1, "tags": ["x"], "word": "a"}, {"n": 2, "tags": None, "word": "b"}]
    text = Flow().read({"format": "text", "path": str(tmp_path)})
    assert text.head().column("value").to_pylist() == lines.splitlines()
    (tmp_path / "a.jsonl").write_text("[")
    with pytest.raises(ConfigError, match=r"stages\.read\.read: .*a\.jsonl: cannot be looked at as json"):
        Flow().read(tmp_path / "a.jsonl").show()


def test_kafka_is_looked_at(kafka: str) -> None:
    make_topic(kafka, "looked")
    produce(kafka, "looked", [b"%d" % number for number in range(20)])
    rows = Flow().read({"format": "kafka", "kafka": {"servers": kafka, "topic": "looked", "value": "string"}})
    assert rows.head(3).column("value").to_pylist() == ["0", "1", "2"]


@pytest.mark.parametrize(
    "section",
    [
        {"format": "jdbc", "options": {"url": "jdbc:x", "dbtable": "orders"}},
        {"format": "table", "table": "orders"},
        {"format": "csv", "path": "/dev/null", "where": "n > 1"},
        {"format": "csv", "path": "/dev/null", "options": {"mode": "PERMISSIVE"}},
        {"format": "json", "path": "s3a://bucket/a.json"},
        {"format": "stream", "stream": {"source": "rate"}},
    ],
)
def test_what_spark_loads_says_so(section: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"stages\.orders\.read: Spark loads this input, and is not started"):
        Flow().read(section, name="orders").show()


def test_windows_are_all_closed() -> None:
    rows = Flow().read(TABLE.slice(0, 60), time="at").window(dpa.tumbling("30m")).key_by(None).reduce(Count())
    assert rows.head().column("count").to_pylist() == [30, 30]


def test_a_join_of_very_many_pairs_is_thinned(capsys: pytest.CaptureFixture[str]) -> None:
    flow = Flow()
    left, right = (flow.read([{"key": 1, name: row} for row in range(1_500)], name=name) for name in ("a", "b"))
    rows = left.key_by("key").join(right.key_by("key"))
    rows.show(1)
    said = capsys.readouterr().out.splitlines()[0]
    assert re.fullmatch(r"first 1 of [\d,]+ rows, without some pairs of a join that has very many", said)
    assert rows.count(whole=True) == 2_250_000


def test_errors_that_are_tolerated_leave_rows_out_and_rows_are_counted_from_0_on() -> None:
    rows = of_orders().map(lambda row: {"x": 60 // (row["cents"] - 5)}, on_error="skip")
    assert rows.head().column("x").to_pylist() == [2, 8]
    assert rows.count() == 2
    assert of_orders().head(0).schema == of_orders().schema
    with pytest.raises(ConfigError, match="these are -1"):
        of_orders().head(-1)


def test_what_is_wrong_is_an_error_of_the_step() -> None:
    with pytest.raises(ConfigError, match=r"stages\.reduce\.key_by"):
        of_orders().key_by("town").reduce(Count()).show()
    with pytest.raises(ExecutorError, match="ZeroDivisionError"):
        of_orders().map(lambda row: {"x": 1 // 0}).show()
    assert "ZeroDivisionError" in of_orders().map(lambda row: {"x": 1 // 0})._repr_html_()


def test_nothing_is_written_and_the_flow_stays_as_it_was(tmp_path: Path) -> None:
    rows = of_orders().map(lambda row: row, name="made").write(tmp_path / "out")
    rows.reference("SELECT * FROM orders")
    rows.key_by("customer").reduce(Sum("cents"), name="spent").show()
    rows.show()
    rows.explain()
    assert not (tmp_path / "out").exists() and [*rows.flow._stages] == ["orders", "made", "spent"]


def test_one_step_runs_with_those_that_it_needs_and_writes_only_its_own_rows(tmp_path: Path) -> None:
    orders = of_orders()
    spent = orders.key_by("customer").reduce(Sum("cents"), name="spent").write(tmp_path / "spent")
    spent.reference("SELECT 1")
    orders.map(lambda row: 1 // 0)
    best = spent.top_k(1, by="cents").write(tmp_path / "best")
    result = best.run(backend=LocalBackend())
    assert result.table().to_pylist() == [{"rank": 1, "customer": 1, "cents": 42}] == best.head().to_pylist()
    assert [stage.name for stage in result.report.stages] == ["orders", "spent", "top_k"]
    assert [path.name for path in tmp_path.iterdir()] == ["best"], "what it takes rows from is not written"
    rows = orders.run(backend=LocalBackend()).table().sort_by("cents").to_pylist()
    assert rows == sorted(ORDERS, key=lambda row: row["cents"]), "an input is a result by itself"
    with pytest.raises(AttributeError, match=r"write `run\(\)\.table\(\)`"):
        best.collect()
    both = Flow(until={"idle": "1s"})
    both.read({"format": "parquet", "path": "there", "watch": {}}).map(lambda row: row)
    closed = both.read(ORDERS, name="orders").filter("cents > 10")
    assert closed.run(backend=LocalBackend()).table().num_rows == 2, "another step has the open input"


def test_a_step_may_have_any_name_and_reprs_name_steps() -> None:
    for names in (("rows", "rows_"), ("a" * 64, "b")):
        rows = Flow().read(ORDERS, name=names[0]).map(lambda row: row, name=names[1])
        assert rows.head().num_rows == 3
    rows = STEPS["join"](of_orders())
    assert repr(rows) == "<Stream 'join' of <Flow 'shop': orders, customers, join>: join left by customer>"
    assert repr(Flow("x")) == "<Flow 'x': no steps>"


def test_the_pictures_have_words_of_users_escaped_and_fit_a_narrow_page() -> None:
    flow = Flow()
    flow.read({"format": "parquet", "path": "<b>&/x.parquet"})
    page = parseString(f"<page>{flow._repr_html_()}</page>")
    assert "read <b>&/x.parquet" in [text.firstChild.nodeValue for text in page.getElementsByTagName("text")]
    rows = Flow().read([{"<i>": "</td>"}])
    assert "&lt;/td&gt;" in rows._repr_html_()
    rows = STEPS["join"](of_orders()).top_k(1, by="cents")
    [width] = re.findall(r'<svg [^>]*width="(\d+)"', rows._repr_html_())
    assert int(width) < 400


def test_neither_ray_nor_spark_nor_polars_is_imported(files: Path) -> None:
    program = f"""
import sys
from dpa import Flow
rows = Flow().read({str(files)!r} + "/*.parquet").filter(lambda row: row["row"] > 3)
rows.show(5)
rows.key_by("word").reduce("count").show(5)
rows.explain()
rows.count()
rows.schema
rows._repr_html_()
print(*(name for name in ("ray", "pyspark", "polars", "pandas", "matplotlib") if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "", done.stdout


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=40), st.integers(0, 50), st.integers(1, 50))
def test_a_head_is_the_beginning_of_all_rows(numbers: list[int], wanted: int, first: int) -> None:
    rows = Flow().read([{"n": number} for number in numbers], schema={"n": "int64"})
    rows = rows.flat_map(lambda row: [row] * row["n"], schema={"n": "int64"})
    found = rows.head(wanted, first=first).column("n").to_pylist()
    expected = [number for number in numbers[:first] for _ in range(number)]
    assert found == expected[:wanted]
