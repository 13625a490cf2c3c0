"""`reference: auto`: Spark computes what the steps of a flow say, and the results are the same."""

import datetime as dt

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dpa import Flow, Job, batch_filter, sliding, tumbling
from dpa.aggregates import Count
from dpa.errors import ConfigError
from dpa.testing import LocalBackend

NAN = float("nan")

ORDERS = pa.table(
    {
        "customer": ["a", "b", None, "a", "c", "d", "b", "a"],
        "cents": [100, 250, 300, None, -5, 0, 250, 7],
        "weight": [1.5, NAN, 0.0, -0.0, None, 2.5, 1e300, 0.1],
        "at": [dt.datetime(2024, 1, 1, 10, 7 * minute) for minute in range(8)],
    }
)
CUSTOMERS = pa.table({"customer": ["a", "b", "c", None, "x"], "cents": [1, 2, 3, 4, 5], "country": list("DEFDE")})


def checked(flow: Flow) -> None:
    result = flow.run(backend=LocalBackend())
    asked = [step.name for step in flow.job().spec.results]
    assert asked and all(result.report[name].reference.matches for name in asked)


@pytest.mark.parametrize("key", [("customer",), ("customer", "cents"), (None,)])
def test_ready_made_reducers_are_checked(spark, key) -> None:
    flow = Flow()
    rows = flow.read(ORDERS).key_by(*key, value=["weight"])
    rows.reduce("count").reference("auto")
    for reducer in ("sum", "mean", "min", "max"):
        rows.reduce({"use": reducer, "args": {"column": "weight"}}).reference("auto")
    checked(flow)


def test_reducers_of_one_value_and_first_rows_with_their_ties_are_checked(spark) -> None:
    flow = Flow()
    read = flow.read(ORDERS)
    for reducer in ("distinct", {"use": "top_k", "args": {"k": 2}}):
        read.key_by("customer", value="cents").reduce(reducer).reference("auto")
    for descending in (True, False):
        read.key_by("customer").top_k(2, by="weight", descending=descending).reference("auto")
        read.top_k(5, by="cents", descending=descending).reference("auto")
    checked(flow)


def test_joins_are_checked(spark) -> None:
    flow = Flow()
    orders, customers = flow.read(ORDERS, name="orders"), flow.read(CUSTOMERS, name="customers")
    for how in ("inner", "left", "right", "full", "semi", "anti"):
        orders.key_by("customer").join(customers.key_by("customer"), how).reference("auto")
    checked(flow)


def test_unions_of_rows_that_lack_columns_are_checked(spark) -> None:
    flow = Flow()
    orders, customers = flow.read(ORDERS, name="orders"), flow.read(CUSTOMERS, name="customers")
    both = orders.union(customers, allow_missing_columns=True).reference("auto")
    both.key_by("customer").reduce("count").reference("auto")
    checked(flow)


def test_windows_are_checked(spark) -> None:
    flow = Flow()
    for windows in (tumbling("25m"), sliding("25m", every="10m")):
        rows = flow.read(ORDERS, time="at").window(windows)
        rows.key_by("customer", value=["cents"]).reduce({"use": "sum", "args": {"column": "cents"}}).reference("auto")
    checked(flow)


def test_what_calls_python_is_refused_with_its_step(spark) -> None:
    @batch_filter
    def some(batch):
        return pa.array([True] * batch.num_rows)

    flow = Flow()
    flow.read(ORDERS).filter(some, name="some").key_by("customer").reduce("count").reference("auto")
    with pytest.raises(ConfigError, match=r"stages.reduce.reference: the step 'some': calls .*some, and Spark do"):
        flow.validate()


def test_a_wrong_result_is_found_and_the_query_is_shown(spark, monkeypatch) -> None:
    monkeypatch.setattr(Count, "finish", lambda self, states: pa.record_batch({"count": pc.add(states["count"], 1)}))
    flow = Flow()
    flow.read(ORDERS, parallelism=2).key_by("customer").reduce("count", parallelism=2).reference("auto")
    result = flow.run(backend=LocalBackend(), check=False)
    differences = result.report.reference.differences
    assert "customer 'a': count is 4, but 3 in the reference" in differences
    assert differences[-1].startswith("Spark was asked: WITH `reduce` AS (\n  SELECT `customer`, count(*) AS `count`")


def test_a_job_of_one_reducer_is_checked(spark, tmp_path) -> None:
    (tmp_path / "visits.csv").write_text(
        "page,seconds\n" + "".join(f"p{each % 7},{each % 13}\n" for each in range(999))
    )
    (tmp_path / "job.yaml").write_text(
        "input: {path: visits.csv, select: [page, int(seconds) AS seconds]}\n"
        "key: page\nreducer: {use: max, args: {column: seconds}}\nreference: auto\n"
    )
    job = Job.from_file(tmp_path / "job.yaml")
    assert "max(`seconds`)" in job.forecast().config["reference"]["sql"]
    assert job.run(backend=LocalBackend()).report.reference.matches


def test_lists_and_structs_are_checked(spark) -> None:
    rows = pa.table(
        {
            "id": [1, 2, 3, 4],
            "tags": [["a", "b"], [], None, ["c", None]],
            "more": [[1, 2], [], None, [None, 4]],
            "place": [{"city": "x", "zip": 1}, None, {"city": None, "zip": 3}, {"city": "y", "zip": 4}],
        }
    )
    flow = Flow()
    read = flow.read(rows)
    read.explode("tags").unnest("place").select("id", "zip", tag=pl.col("tags").fill_null("none")).reference("auto")
    read.explode("tags", "more").reference("auto")
    checked(flow)


def test_steps_on_columns_and_aggregates_are_checked(spark) -> None:
    flow = Flow()
    orders, customers = flow.read(ORDERS, name="orders"), flow.read(CUSTOMERS, name="customers")
    paid = orders.filter(pl.col("cents") >= 0).with_columns(
        pl.col("at").dt.truncate("15m"), euros=pl.col("cents") / 100, heavy=pl.col("weight") > 1
    )
    named = paid.rename({"weight": "mass"}).drop("at").with_columns("upper(customer) || '!' AS shout")
    joined = named.key_by("customer").join(customers.key_by("customer"), "left")
    sums = joined.key_by("country").agg(
        n=pl.len(),
        total=pl.col("euros").sum(),
        mean=pl.col("mass").mean(),
        buyers=pl.col("customer").n_unique(),
        last=pl.col("shout").sort_by("cents").last(),
        share=pl.col("heavy").sum() / pl.len(),
    )
    sums.reference("auto")
    sums.top_k(2, by="total").reference("auto")
    checked(flow)


def test_a_job_file_of_sql_texts_is_checked(spark, tmp_path) -> None:
    (tmp_path / "orders.csv").write_text(
        "customer,cents,at\na,100,2024-01-01 10:00:00\nb,-5,2024-01-01 11:00:00\na,7,2024-01-01 11:30:00\n"
    )
    (tmp_path / "job.yaml").write_text(
        """
stages:
  orders: {read: {path: orders.csv}}
  euros: {from: orders, filter: "cents > 0", with_columns: {euros: "cents / 100.0", hour: "date_trunc('hour', at)"}}
  sums: {from: euros, key_by: [customer, hour], agg: {n: "count(*)", total: "sum(euros)"}, reference: auto}
"""
    )
    result = Job.from_file(tmp_path / "job.yaml").run(backend=LocalBackend())
    assert result.report.reference.matches
