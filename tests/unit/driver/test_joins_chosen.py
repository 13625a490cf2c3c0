"""Which joins need no shuffle, what of the graph goes then, and what is said of it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from first_checkpoints import write_checkpoint

import dpa
from dpa import Flow, Job
from dpa.aggregates import Sum
from dpa.columns.joining import Side
from dpa.driver._joins import _ShuffledError
from dpa.errors import ConfigError, JobFailedError
from dpa.flow import Stream
from dpa.local.backend import LocalBackend
from dpa.protocol.plan import RunHooks, RunOutcome, RunPlan
from dpa.result import JoinReport, Result
from dpa.sources.feed import Page

ORDERS = pa.table({"customer": [n % 7 for n in range(700)], "cents": range(700), "at": range(700)})
CUSTOMERS = pa.table({"id": range(5), "segment": ["a", "b", None, "a", "b"]})


def sides(flow: Flow) -> tuple[Stream, Stream]:
    return flow.read(ORDERS, name="orders"), flow.read(CUSTOMERS, name="customers")


def run(flow: Flow, **options: Any) -> Result:
    return flow.run(backend=LocalBackend(), **options)


def stages(result: Result) -> list[str]:
    return [stage.name for stage in result.report.stages]


def sums(rows: Stream) -> Stream:
    return rows.key_by("segment", value="cents").reduce(Sum("cents"), name="sums")


WANTED = {
    (segment, sum(n for n in range(700) if n % 7 < 5 and CUSTOMERS["segment"][n % 7].as_py() == segment))
    for segment in ("a", "b", None)
}


def test_the_side_is_no_part_of_the_graph(tmp_path: Path) -> None:
    pq.write_table(ORDERS, tmp_path / "orders.parquet", row_group_size=100)
    pq.write_table(CUSTOMERS, tmp_path / "customers.parquet")
    flow = Flow("small")
    orders, customers = (flow.read(tmp_path / f"{name}.parquet", name=name) for name in ("orders", "customers"))
    known = customers.filter("id is not null").with_columns(segment=pl.col("segment"))
    joined = orders.filter("cents >= 0").join(known, left_on="customer", right_on="id", name="joined")
    sums(joined.with_columns(cents=pl.col("cents").cast(pl.Int64, strict=True)))
    result = run(flow)
    assert stages(result) == ["orders", "sums"]
    assert {tuple(row.values()) for row in result.table().to_pylist()} == WANTED
    [join] = result.report.joins
    assert (join.step, join.form, join.side, join.rows) == ("joined", "broadcast", "with_columns", 5)
    assert join.bytes is not None and 0 < join.bytes < 1_000
    assert join.why == "it has at most 32 MiB (`broadcast_mb`)"
    [edge] = flow.forecast().edges
    wanted = ("filter(cents >= 0)", "join(with_columns, inner, by customer: 5 rows in every task)")
    assert edge.operators[:2] == wanted
    assert flow.forecast().joins == result.report.joins


def test_a_side_that_another_step_takes_stays_and_a_join_may_be_a_side() -> None:
    flow = Flow("chain")
    orders, customers = sides(flow)
    segments = flow.read([{"segment": "a", "rank": 1}, {"segment": "b", "rank": 2}], name="segments")
    ranked = customers.join(segments, on="segment", how="left", name="ranked")
    orders.join(ranked, left_on="customer", right_on="id", name="joined").select("customer", "rank", "cents")
    customers.key_by("segment").reduce("count", name="counts")
    result = run(flow)
    assert stages(result) == ["orders", "customers", "counts", "select"]
    assert [(join.step, join.side) for join in result.report.joins] == [("ranked", "segments"), ("joined", "ranked")]
    found = result.table("select").sort_by("cents").to_pylist()[:3]
    assert found == [{"customer": n, "rank": rank, "cents": n} for n, rank in enumerate([1, 2, None])]


@pytest.mark.parametrize("mb", [32, 0])
def test_rows_of_several_steps_join_one_side(mb: float) -> None:
    flow = Flow("union")
    orders, customers = sides(flow)
    few = flow.read(pa.table({"customer": pa.array([1, 9], pa.int8()), "at": [0.5, 1.5], "cents": [1, 2]}), name="few")
    both = orders.with_columns(at=pl.col("at").cast(pl.Float64)).union(few, name="both")
    both.join(customers, left_on="customer", right_on="id", name="joined", broadcast_mb=mb)
    result = run(flow)
    assert result.report.joins[0].form == ("broadcast" if mb else "shuffled")
    assert result.table().schema == pa.schema(
        {"customer": pa.int64(), "cents": pa.int64(), "at": pa.float64(), "segment": pa.string()}
    )
    assert result.table().num_rows == 501


class Polled(dpa.Feed):
    is_open = True
    schema = CUSTOMERS.schema

    def poll(self, split_rows: int, position: Any = None) -> Page:
        return Page([])


def one(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": 1}


WHYS: dict[str, tuple[dict[str, Any], Callable[[Stream], Any]]] = {
    "every `full` join is, as rows of its right side come without a match": ({"how": "full"}, lambda rows: rows),
    "its `broadcast_mb` is 0": ({"broadcast_mb": 0}, lambda rows: rows),
    "it has `parallelism, grouping`": ({"parallelism": 2, "grouping": "key"}, lambda rows: rows),
    "it has `consistency`": ({"consistency": "migrate"}, lambda rows: rows),
    "what 'count' makes is known at the end of its input": (
        {"how": "left"},
        lambda rows: rows.key_by("id").reduce("count", name="count"),
    ),
    "'all' has the rows of several steps": (
        {"how": "semi"},
        lambda rows: rows.union(rows.filter("id > 3"), name="all"),
    ),
    "'kept' may leave out records (`on_error`)": (
        {"how": "anti"},
        lambda rows: rows.filter("id > 3", name="kept", on_error="skip"),
    ),
    "the columns of 'made' are not known before the job runs": (
        {"how": "semi"},
        lambda rows: rows.map(lambda row: row, name="made"),
    ),
    "'made' calls a function, which runs in tasks": (
        {"how": "semi"},
        lambda rows: rows.map(one, name="made", schema={"id": "int64"}),
    ),
    "'explode' has 750 rows of one key, and a row may match 100 at most": (
        {"how": "left"},
        lambda rows: rows.with_columns(id=pl.col("id") * 0, many=pl.int_ranges(0, 150)).explode("many"),
    ),
}
"""Options of a join and what its right side is, by why it is shuffled then."""


@pytest.mark.parametrize("why", WHYS)
def test_other_joins_are_shuffled_and_the_report_says_why(why: str) -> None:
    options, side = WHYS[why]
    flow = Flow("shuffled")
    orders, customers = sides(flow)
    orders.join(side(customers), left_on="customer", right_on="id", **options)
    [join] = run(flow).report.joins
    assert (join.form, join.side, join.rows, join.bytes) == ("shuffled", None, None, None)
    assert join.why == why


def test_rows_of_an_open_input_are_no_side_but_join_one() -> None:
    flow = Flow("open")
    orders = flow.read({"format": "feed", "use": "test_joins_chosen:Polled"}, name="orders")
    orders.join(flow.read(CUSTOMERS, name="customers"), on="id", name="joined")
    assert flow.forecast().joins[0].form == "broadcast"
    other = Flow("other")
    customers = other.read({"format": "feed", "use": "test_joins_chosen:Polled"}, name="customers")
    other.read(CUSTOMERS, name="orders").join(customers, on="id", how="left")
    assert other.forecast().joins[0].why == "the input of 'customers' is open"


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "orders.parquet"
    pq.write_table(ORDERS, path)
    flow = Flow("large")
    orders = flow.read(path, name="orders")
    mb = (path.stat().st_size - 1) / 2**20
    flow.read(CUSTOMERS, name="customers").join(orders, left_on="id", right_on="at", how="left", broadcast_mb=mb)
    [join] = flow.forecast().joins
    assert join.why == f"'orders' has more than {mb:g} MiB (`broadcast_mb`)"


def test_a_bad_row_behind_the_join_is_named_or_becomes_a_dead_letter(tmp_path: Path) -> None:
    def flow(**sections: Any) -> Flow:
        made = Flow("bad", **sections)
        orders, customers = sides(made)
        joined = orders.join(customers, left_on="customer", right_on="id", how="left", name="joined")
        kind = pl.when(pl.col("at") == 123).then(pl.lit("x")).otherwise(pl.lit("1")).cast(pl.Int64)
        joined.with_columns(kind=kind).key_by("at").reduce("count", name="counts")
        return made

    with pytest.raises(JobFailedError, match=r"with_columns: with_columns\(.*conversion from `str` to `i64` failed"):
        run(flow())
    letters = {"path": str(tmp_path / "letters")}
    result = run(flow(on_error="dead_letter", dead_letters=letters))
    assert result.table().num_rows == 699
    [letter] = pq.read_table(tmp_path / "letters").to_pylist()
    assert (letter["step"], letter["offset"]) == ("with_columns", 123)


def test_the_form_is_said_on_screens(capsys: pytest.CaptureFixture[str]) -> None:
    flow = Flow("said")
    orders, customers = sides(flow)
    rows = orders.join(customers, left_on="customer", right_on="id", name="joined")
    rows.explain()
    said = " ".join(capsys.readouterr().out.split())
    assert "joined broadcast customers 5 65 it has at most 32 MiB (`broadcast_mb`)" in said
    dpa.report.show(run(flow).report, verbose=True)
    assert "joined broadcast customers 5" in " ".join(capsys.readouterr().out.split())
    assert rows.count() == 500
    assert rows.head(3).num_rows == 3
    rows.show(1)
    assert "first 1 row" in capsys.readouterr().out.splitlines()[0], "all of the side, and the first rows of the other"


class Dying(LocalBackend):
    def run(self, plan: RunPlan, hooks: RunHooks) -> RunOutcome:
        write_checkpoint(plan, 0)
        raise JobFailedError("it died")


def saved(tmp_path: Path, customers: pa.Table = CUSTOMERS, **options: Any) -> Job:
    flow = Flow("saved", checkpoint={"path": str(tmp_path / "saved")})
    orders, known = flow.read(ORDERS, name="orders"), flow.read(customers, name="customers")
    sums(orders.join(known, left_on="customer", right_on="id", name="joined", **options))
    return flow.job()


def test_a_resumed_job_has_the_side_again(tmp_path: Path) -> None:
    begun = saved(tmp_path)
    assert begun.run(backend=Dying(), check=False).report.status == "failed"
    result = saved(tmp_path).run(backend=LocalBackend(), resume=begun.resumable)
    assert {tuple(row.values()) for row in result.table().to_pylist()} == WANTED
    assert result.report.joins[0].why == "the checkpoint was made so"
    side = Side(CUSTOMERS.rename_columns(["key", "segment"]))
    before = len(pickle.dumps(side))
    assert side.frame.height == CUSTOMERS.num_rows
    assert len(pickle.dumps(side)) == before, "it is sent without what a process makes of it"


def test_a_job_is_not_resumed_with_other_rows_of_a_side(tmp_path: Path) -> None:
    begun = saved(tmp_path)
    begun.run(backend=Dying(), check=False)
    others = CUSTOMERS.set_column(1, "segment", pa.array(["a", "b", None, "b", "b"]))
    wrong = r"stages\.joined\.join: the rows of 'customers' are others now; a job is resumed with the rows that it had"
    with pytest.raises(ConfigError, match=wrong):
        saved(tmp_path, others).run(backend=LocalBackend(), resume=begun.resumable)
    assert saved(tmp_path).run(backend=LocalBackend(), resume=begun.resumable).report.status == "ok"


def test_a_join_that_was_shuffled_is_shuffled_when_its_job_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Any) -> None:
        raise _ShuffledError("it is old")

    begun = saved(tmp_path)
    with monkeypatch.context() as patch:  # as an older version, whose checkpoints say nothing of sides
        patch.setattr("dpa.driver._joins._Choice._require_no_tasks", refuse)
        begun.run(backend=Dying(), check=False)
    result = saved(tmp_path).run(backend=LocalBackend(), resume=begun.resumable)
    assert result.report.joins == (JoinReport("joined", "shuffled", why="it was when the checkpoint was made"),)
    assert {tuple(row.values()) for row in result.table().to_pylist()} == WANTED


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"on": "id", "left_on": "id"},
        {"left_on": "id"},
        {"right_on": "id"},
        {"on": "id", "left_on": "a", "right_on": "b"},
    ],
    ids=str,
)
def test_the_key_columns_of_a_join_are_named_once_and_rows_and_rows_by_key_do_not_join(given: dict[str, str]) -> None:
    left, right = sides(Flow())
    with pytest.raises(ConfigError, match="name the key columns: `on`, or both `left_on` and `right_on`"):
        left.join(right, **given)
    with pytest.raises(ConfigError, match="not with KeyedRows"):
        left.join(right.key_by("id"), "id")  # type: ignore[arg-type]
