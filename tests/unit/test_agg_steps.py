"""`agg` as a step of flows and jobs: whatever becomes of its states, the rows are those of polars."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpa import Flow, Job, results, session, tumbling
from dpa.columns.aggregation import Aggregation
from dpa.columns.arrow import to_batch
from dpa.config import load
from dpa.errors import ConfigError, JobFailedError
from dpa.execution.block import Block
from dpa.execution.receivers import receiver_of
from dpa.execution.spill.bounded import BoundedStates
from dpa.execution.spill.room import Room
from dpa.routing.table import RoutingTable
from dpa.testing import LocalBackend

TENTH = LocalBackend(row_seconds=0.1)
"""Ten rows a second: so much is due in a few hundred rows."""

BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)

ORDERS = pl.DataFrame(
    {
        "country": [["DE", "FR", "DE", "ES", None][number * number % 7 % 5] for number in range(400)],
        "euros": [None if number % 7 == 0 else number % 100 / 4 for number in range(400)],
        "cents": [number * 17 % 900 for number in range(400)],
        "customer": [f"c{number * number % 23}" for number in range(400)],
        "at": [number * 31 % 400 for number in range(400)],
    }
)
EUROS, CENTS, CUSTOMER = pl.col("euros"), pl.col("cents"), pl.col("customer")

AGGREGATES = {
    "n": pl.len(),
    "total": CENTS.sum(),
    "best": EUROS.max(),
    "buyers": CUSTOMER.n_unique(),
    "share": CENTS.filter(EUROS > 10).sum().fill_null(0) / pl.len(),
    "last": CUSTOMER.max_by("at"),
    "spread": EUROS.var(),
}
TEXTS = {
    "n": "count(*)",
    "total": "sum(cents)",
    "best": "max(euros)",
    "buyers": "count(distinct customer)",
    "share": "coalesce(sum(cents) FILTER (WHERE euros > 10), 0) / count(*)",
    "last": "max_by(customer, at)",
    "spread": "var(euros)",
}


def wanted(rows: pl.DataFrame = ORDERS, key: str = "country") -> dict[Any, dict[str, Any]]:
    found = rows.group_by(key).agg(each.alias(name) for name, each in AGGREGATES.items())
    return {row.pop(key): pytest.approx(row) for row in found.to_dicts()}


def by_key(table: pa.Table, key: str = "country") -> dict[Any, dict[str, Any]]:
    rows = {row.pop(key): row for row in table.to_pylist()}
    assert len(rows) == table.num_rows
    return rows


def flow() -> Flow:
    made = Flow("orders")
    made.read(ORDERS, name="orders").key_by("country").agg(**AGGREGATES, name="by_country")
    return made


def test_sql_texts_of_a_job_file_mean_the_same(tmp_path: Path) -> None:
    pq.write_table(ORDERS.to_arrow(), tmp_path / "orders.parquet", row_group_size=90)
    aggregates = "".join(f"\n    {name}: '{text}'" for name, text in TEXTS.items())
    job = f"input: {{format: parquet, path: {tmp_path}/orders.parquet}}\nkey: country\nreducer:\n  agg:{aggregates}\n"
    (tmp_path / "job.yaml").write_text(job)
    assert by_key(Job.from_file(tmp_path / "job.yaml").run(backend=LocalBackend()).table()) == wanted()
    step = f"by_country:\n  from: orders\n  key_by: country\n  agg:{aggregates}\n"
    stages = f"orders:\n  read: {{format: parquet, path: {tmp_path}/orders.parquet}}\n{step}"
    indented = "".join(f"  {line}\n" for line in stages.splitlines())
    (tmp_path / "flow.yaml").write_text(f"stages:\n{indented}")
    made = Job.from_file(tmp_path / "flow.yaml", ["stages.by_country.combiner=true"])
    assert by_key(made.run(backend=LocalBackend()).table()) == wanted()
    assert load(tmp_path / "flow.yaml").stages["by_country"].agg == TEXTS


def pairs(row: dict[str, Any]) -> Any:
    yield row["country"], {"seconds": row["cents"], "who": row["customer"]}


def test_a_record_mapper_gives_the_columns_or_one_named_value() -> None:
    job = Job(input=ORDERS, mapper=pairs, key="country", reducer={"agg": {"n": "count(*)", "most": "max(seconds)"}})
    expected = ORDERS.group_by("country").agg(n=pl.len(), most=CENTS.max())
    assert by_key(job.run(backend=LocalBackend()).table()) == by_key(expected.to_arrow())
    numbers = Job(
        input=ORDERS, mapper=lambda row: [(row["country"], row["cents"])], key="country",
        reducer={"agg": {"n": "count(*)", "most": "max(value)"}},
    )  # fmt: skip
    assert by_key(numbers.run(backend=LocalBackend()).table()) == by_key(expected.to_arrow())
    wrong = Job(input=ORDERS, mapper=pairs, key="country", reducer={"agg": {"most": "max(second)"}})
    with pytest.raises(JobFailedError, match="no column 'second'; the columns of the values are seconds, who; did you"):
        wrong.run(backend=LocalBackend())


def timed() -> pl.DataFrame:
    return ORDERS.with_columns(
        time=pl.Series([BEGAN + timedelta(seconds=second // 2 + second // 100 * 60) for second in range(400)])
    )


@pytest.mark.parametrize("consistency", ["merge", "migrate"])
def test_windows_have_aggregates_of_their_own(tmp_path: Path, consistency: str) -> None:
    made, rows = Flow("orders"), timed()
    read = made.read(rows, name="orders", time={"column": "time", "out_of_order": 0}).window(tumbling("40s"))
    counts = read.key_by("country").agg(**AGGREGATES, name="counts", consistency=consistency)
    counts.write(tmp_path / "out", publish="final")
    made.run(backend=TENTH)
    found = results(tmp_path / "out")
    assert found.epoch > 5
    start = pl.col("time").dt.truncate("40s").alias("window_start")
    expected = rows.group_by("country", start).agg(each.alias(name) for name, each in AGGREGATES.items()).to_dicts()
    by_window = {(row.pop("country"), row.pop("window_start")): pytest.approx(row) for row in expected}
    closed = found.table.drop_columns(["window_end"]).to_pylist()
    assert {(row.pop("country"), row.pop("window_start")): row for row in closed} == by_window
    assert found.table.num_rows == len(by_window)


def test_sessions_have_aggregates_of_their_own() -> None:
    made, rows = Flow("orders"), timed()
    read = made.read(rows, name="orders", time={"column": "time", "out_of_order": 0}).window(session("30s"))
    read.key_by("country").agg(n=pl.len(), total=CENTS.sum(), spread=EUROS.var(), name="sessions")
    found = made.run(backend=LocalBackend()).table()
    assert sum(found["n"].to_pylist()) == 400 and sum(found["total"].to_pylist()) == ORDERS["cents"].sum()
    assert Counter(found["country"].to_pylist()).most_common(1)[0][1] == 4, "a minute lies between hundreds of rows"


def test_states_that_do_not_fit_in_memory_are_spilled(tmp_path: Path) -> None:
    rows = to_batch(ORDERS, pa.schema([]))
    stores = [BoundedStates(receiver_of(Aggregation(AGGREGATES)), Room(500, path=str(tmp_path))) for _ in range(2)]
    for number in range(10):
        batch = rows.slice(number * 40, 40)
        stores[number % 2].reduce(Block.of(batch.column("country"), batch.drop_columns(["country"]), 0))
    assert all(store.spilled for store in stores)
    of_the_second = RoutingTable.unsplit(1, np.array([5], dtype=np.uint32), np.array([1], dtype=np.int32), 2, 0)
    for interval in stores[0].pieces(of_the_second, 0, 2):
        for states in stores[0].pack(of_the_second, 0, interval).values():
            stores[1].merge(states)
    assert by_key(stores[1].finish("country").table) == wanted()


@pytest.mark.parametrize("combiner", [False, True])
def test_records_on_which_an_expression_raises_become_dead_letters(tmp_path: Path, combiner: bool) -> None:
    rows = [{"key": "a", "n": "1"}, {"key": "a", "n": "many"}, {"key": "b", "n": "3"}, {"key": "b", "n": "4"}]
    made = Flow("orders", on_error="dead_letter", dead_letters=str(tmp_path / "dead"))
    read = made.read(rows, name="rows")
    read.key_by("key").agg(total=pl.col("n").cast(pl.Int64).sum(), n=pl.len(), combiner=combiner)
    result = made.run(backend=LocalBackend())
    assert by_key(result.table(), "key") == {"a": {"total": 1, "n": 1}, "b": {"total": 7, "n": 2}}
    [letter] = pq.read_table(tmp_path / "dead").to_pylist()
    assert letter["step"] == "agg" and "many" in letter["record"] and "conversion" in letter["message"]
    with pytest.raises(JobFailedError, match="conversion from `str` to `i64` failed in column 'n'"):
        failing = Flow("orders")
        failing.read(rows).key_by("key").agg(total=pl.col("n").cast(pl.Int64).sum())
        failing.run(backend=LocalBackend())


def panics(number: int) -> int:
    if number == 3:
        raise pl.exceptions.PanicException("three")
    return number


@pytest.mark.parametrize("reads", [True, False], ids=["scanned", "in memory"])
def test_a_panic_of_polars_is_an_error_of_its_step(tmp_path: Path, reads: bool) -> None:
    rows = pa.table({"k": [1, 1, 2], "v": [1, 3, 5]})
    pq.write_table(rows, tmp_path / "in.parquet")

    def made(**options: Any) -> Flow:
        flow = Flow("panics", **options)
        read = flow.read(tmp_path / "in.parquet" if reads else rows)
        moved = read.with_columns(w=pl.col("v").map_elements(panics, return_dtype=pl.Int64))
        moved.key_by("k").agg(w=pl.col("w").sum())
        return flow

    with pytest.raises(JobFailedError, match=r"with_columns: with_columns\(w = .* failed on .*polars panicked: "):
        made().run(backend=LocalBackend())
    tolerant = made(on_error="dead_letter", dead_letters=str(tmp_path / "dead"))
    assert by_key(tolerant.run(backend=LocalBackend()).table(), "k") == {1: {"w": 1}, 2: {"w": 5}}
    [letter] = pq.read_table(tmp_path / "dead").to_pylist()
    assert letter["step"] == "with_columns" and letter["record"] == '{"k": 1, "v": 3}'


def test_errors_of_aggregates_name_the_step() -> None:
    made = Flow("orders")
    made.read([{"key": 1, "n": 2**62}] * 2).key_by("key").agg(total="sum(n)", name="by_key")
    with pytest.raises(
        JobFailedError,
        match=r"by_key: agg\(total = sum\(n\)\) failed on 1 keys: OverflowError.*sum\(n\) does not fit in int64",
    ):
        made.run(backend=LocalBackend())


def test_names_and_types_that_arrow_has_not_are_refused() -> None:
    refused = {
        r"'x\\x00', and names have no NUL": pl.col("cents").max().alias("x\0"),
        r"would be Int128, which Arrow does not have: cast it": pl.col("cents").cast(pl.Int128).max().alias("x"),
        r"'x' would be Int128": pl.col("cents").max().cast(pl.Int128).alias("x"),
    }
    for message, aggregate in refused.items():
        with pytest.raises(ConfigError, match=message):
            made = Flow("orders")
            made.read(ORDERS).key_by("country").agg(aggregate)
            made.run(backend=LocalBackend())


def test_columns_and_types_are_known_before_there_are_rows() -> None:
    made = Flow("orders")
    read = made.read([], name="orders", schema={"country": "string", "euros": "double", "day": "date32[day]"})
    counts = read.key_by("country").agg(n=pl.len(), best=EUROS.max(), day=pl.col("day").max(), days="array_agg(day)")
    counts.key_by("day").agg(n=pl.col("n").sum(), name="by_day")
    counts.key_by(None).agg(pl.col("best").mean(), name="one")
    found = made.run(backend=LocalBackend())
    kinds = {name: found.table(name).schema for name in ("by_day", "one")}
    assert str(kinds["by_day"]).split() == ["day:", "date32[day]", "n:", "int64"]
    assert str(kinds["one"]).split() == ["best:", "double"]


NOBODY = {
    **dict.fromkeys(("n", "count", "nulls", "buyers", "about"), 0),
    **dict.fromkeys(("total", "mean", "best", "spread", "last", "late", "middle", "share"), None),
    **{"any": False, "all": True, "strictly": True, "every": [], "most": [], "often": []},
}


def test_all_rows_of_an_empty_input_have_one_row_of_aggregates_and_its_keys_none() -> None:
    made = Flow("orders")
    nobody = made.read(ORDERS.clear(), name="orders", time={"column": "at", "unit": "s"})
    aggregates = {
        **{"n": pl.len(), "count": CENTS.count(), "nulls": CENTS.null_count(), "buyers": CUSTOMER.n_unique()},
        **{"about": CUSTOMER.approx_n_unique(), "total": CENTS.sum(), "mean": CENTS.mean(), "best": EUROS.max()},
        **{"spread": EUROS.std(), "last": CUSTOMER.max_by("at"), "late": CENTS.sort_by("at").last()},
        **{"middle": CENTS.median(), "share": CENTS.sum() / pl.len(), "any": (CENTS > 3).any()},
        **{
            "all": (CENTS > 3).all(),
            "strictly": (CENTS > 3).all(ignore_nulls=False),
            "every": CENTS.implode(),
            "most": CENTS.top_k(2),
            "often": CUSTOMER.mode(),
        },
    }
    whole = nobody.key_by(None).agg(**aggregates, name="whole")
    after = whole.with_columns(more="n + 1").select("more")
    nobody.filter("cents > 5").key_by(None).agg(n="count(*)", parallelism=3, name="texts")
    nobody.key_by("country").agg(n=pl.len(), name="by_country")
    nobody.window(tumbling("1m")).key_by(None).agg(n=pl.len(), name="by_minute")
    nobody.key_by(None).reduce("count", name="reduced")
    found = made.run(backend=LocalBackend())
    assert whole.head().to_pylist() == [NOBODY] == whole.run(backend=LocalBackend()).table().to_pylist()
    assert found.table(after.step).to_pylist() == [{"more": 1}], "steps after it have the row, too"
    assert found.table("texts").to_pylist() == [{"n": 0}]
    for name in ("by_country", "by_minute", "reduced"):
        assert found.table(name).num_rows == 0


def test_aggregates_of_columns_whose_types_are_known_only_from_files_are_not_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"paid": [True, False, True], "who": ["a", "bc", "a"]}), tmp_path / "in.parquet")
    made = Flow("orders")
    first = made.read(tmp_path / "in.parquet").key_by("paid").agg(most="max(who)", name="first")
    first.key_by(None).agg(
        n=pl.col("most").filter(pl.col("paid")).count(), longest=pl.col("most").str.len_chars().max()
    )
    assert made.run(backend=LocalBackend()).table().to_pylist() == [{"n": 1, "longest": 2}]
    wrong = made.read(tmp_path / "in.parquet").key_by("paid").agg(most="max(who)", name="again")
    wrong.key_by(None).agg(n=pl.col("mast").str.len_chars().max(), name="wrong")
    with pytest.raises(ConfigError, match=r"wrong\.agg\.n: .*there is no column 'mast'.*did you mean 'most'\?"):
        made.run(backend=LocalBackend())


def test_expressions_work_on_keys_that_a_function_makes() -> None:
    made = Flow("orders")
    counts = made.read(ORDERS).key_by(lambda row: f"{row['country']}!").agg(n=pl.len())
    counts.with_columns(size=pl.col("key").str.len_chars()).filter("starts_with(key, 'N')").select("size", "n")
    found = made.run(backend=LocalBackend()).table().to_pylist()
    assert found == [{"size": 5, "n": ORDERS["country"].null_count()}]


def test_only_the_columns_that_aggregates_need_are_sent() -> None:
    made = flow()
    [step] = [step for step in made.job().spec.steps if step.name == "by_country"]
    assert step.feeds[0].keying.values == ("cents", "euros", "customer", "at")
    assert step.does == "agg n, total, best, buyers, share, last, spread by country"


WRONG: dict[str, tuple[Any, str]] = {
    "missing": ({"x": pl.col("euro").sum()}, r"by_country\.agg\.x: `.*`: there is no column .*euros'\?"),
    "type": ({"n": "count(*)", "x": "sum(customer)"}, r"agg\.x: `sum\(customer\)`: needs numbers, .* is String"),
    "rows": ({"x": "cents + 1"}, "x: `cents . 1`: names the column 'cents' outside of an aggregate"),
    "syntax": ({"x": "sum(cents"}, r"x: `sum\(cents`: .*SQL.*found: the end\n    sum\(cents\n {13}\^"),
    "place": ({"x": "sum(euro) + 1"}, r"did you mean 'euros'\?\n    sum\(euro\) \+ 1\n        \^"),
    "over": ({"x": "max(cents) OVER ()"}, "`over` looks at other rows: an aggregate is of the rows of a key"),
    "key": ({"country": "count(*)"}, "agg.country: the key has this name too: give the aggregate another one"),
    "nothing": ({}, "name an aggregate at least"),
    "number": ({"x": 3}, "an aggregate is a polars expression or a SQL text, not 3"),
}  # fmt: skip


@pytest.mark.parametrize(("aggregates", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused_with_step_text_and_columns(aggregates: dict[str, Any], message: str) -> None:
    made = Flow("orders")
    with pytest.raises(ConfigError, match=message):
        made.read(ORDERS, name="orders").key_by("country").agg(**aggregates, name="by_country")
        made.validate()


def test_an_error_of_a_job_file_has_its_line(tmp_path: Path) -> None:
    text = "input: {format: given}\nkey: country\nreducer:\n  agg:\n    n: count(*)\n    x: sum(customer)\n"
    (tmp_path / "job.yaml").write_text(text.replace("customer", "shift(customer)"))
    with pytest.raises(ConfigError, match=r"job\.yaml:6: reducer\.agg\.x: `sum\(shift\(customer\)\)`"):
        Job.from_file(tmp_path / "job.yaml").check()


def test_expressions_of_python_have_no_text_that_another_program_could_run(tmp_path: Path) -> None:
    written = flow().job().config.resolved()["stages"]["by_country"]["agg"]
    assert written["n"] == "made in Python: len()"
    (tmp_path / "job.yaml").write_text(
        "input: {format: records, records: [{country: DE}]}\nkey: country\nreducer: {agg: {n: 'made in Python: len()'}}"
    )
    with pytest.raises(ConfigError, match=r"reducer\.agg\.n: len\(\) was an object of the program that made this job"):
        Job.from_file(tmp_path / "job.yaml").check()
    texts = Flow("texts")
    texts.read(ORDERS).key_by("country").agg(**TEXTS)
    assert texts.job().config.resolved()["stages"]["agg"]["agg"] == TEXTS
