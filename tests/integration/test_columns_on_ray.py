"""The version of polars of a job on real Ray actors; what its expressions give is in `test_random_columns_on_ray`."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pyarrow as pa
import pytest

from dpa import Flow
from dpa.errors import DpaError
from dpa.runtime.packed_plan import PackedPlan

pytestmark = pytest.mark.usefixtures("ray")

ROWS = 3_000


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
