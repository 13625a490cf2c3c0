"""Steps on columns on real Ray actors: expressions, SQL texts and Python functions in them, fused and in tasks of their
own, before and after steps by key."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pyarrow as pa
import pytest

from dpa import Flow
from dpa.columns.arrow import to_frame
from dpa.errors import DpaError
from dpa.runtime.packed_plan import PackedPlan

pytestmark = pytest.mark.usefixtures("ray")

ROWS = 3_000


def test_steps_on_columns_give_what_polars_gives() -> None:
    offset = 3
    table = pa.table(
        {
            "k": [f"key {row % 17}" for row in range(ROWS)],
            "n": [None if row % 11 == 0 else row - 50 for row in range(ROWS)],
            "tags": [["a", "b"][: row % 3] for row in range(ROWS)],
            "kind": pa.array(["x", "y", "z"] * (ROWS // 3), pa.dictionary(pa.int8(), pa.string())),
        }
    )
    moved = pl.col("n").map_elements(lambda n: n + offset if n % 2 else n - offset, return_dtype=pl.Int64)
    flow = Flow("columns", limits={"batch_records": 200, "split_records": 600})
    rows = flow.read(table, name="rows").filter(pl.col("n") > 0).with_columns(moved=moved, third="n / 3")
    lines = rows.explode("tags").filter("tags is not null and kind <> 'z'", parallelism=2).drop("third")
    lines.select("k", "tags", "kind", least="case when moved < 9 then 9 else moved end")
    found = to_frame(flow.run().table())
    wanted = (
        to_frame(table)
        .filter(pl.col("n") > 0)
        .with_columns(moved=moved)
        .explode("tags")
        .filter(pl.col("tags").is_not_null() & (pl.col("kind") != "z"))
        .select("k", "tags", pl.col("kind").cast(pl.String), least=pl.max_horizontal("moved", 9))
    )
    assert found.sort(found.columns).equals(wanted.sort(wanted.columns))


def test_expressions_are_not_sent_to_another_version_of_polars(monkeypatch: pytest.MonkeyPatch) -> None:
    pack = PackedPlan.pack
    monkeypatch.setattr(PackedPlan, "pack", lambda *given: replace(pack(*given), polars="0.1"))
    flow = Flow("columns")
    flow.read(pa.table({"n": range(ROWS)})).with_columns(m=pl.col("n") + 1)
    with pytest.raises(DpaError, match=r"started with polars 0\.1, and its actors have .*: expressions need the same"):
        flow.run()
    plain = Flow("plain")
    plain.read(pa.table({"n": range(ROWS)})).key_by("n").reduce("count")
    assert plain.run().table().num_rows == ROWS


def test_steps_on_columns_stand_before_and_after_steps_by_key() -> None:
    flow = Flow("counted", limits={"batch_records": 200})
    rows = flow.read(pa.table({"n": range(ROWS)}), name="rows").with_columns(k="n % 7").filter("k > 0")
    counts = rows.key_by("k", value="n").reduce("count", parallelism=2)
    counts.with_columns(share=pl.col("count") / ROWS).rename({"k": "key"}).select("key", "share")
    made = sorted(flow.run().table().to_pylist(), key=lambda row: row["key"])
    assert made == [{"key": key, "share": len(range(key, ROWS, 7)) / ROWS} for key in range(1, 7)]
