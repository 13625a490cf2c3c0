"""How many rows of files in place a mapper gets at a time."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpa.config import parse
from dpa.driver.inputs import Inputs
from dpa.driver.spec import JobSpec
from dpa.protocol import plan
from dpa.protocol.graph import MAPPER


@pytest.mark.parametrize(
    ("rows", "limits", "largest"),
    [(1_600, {}, 200), (1_200, {}, 150), (700, {}, 100), (99, {}, 99), (9_000, {"split_records": 100}, 100)],
)
def test_splits_are_twice_as_large_where_that_leaves_each_mapper_four(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, limits: dict[str, Any], largest: int
) -> None:
    monkeypatch.setattr(plan, "SPLIT_RECORDS", 100)
    pq.write_table(pa.table({"key": range(rows)}), tmp_path / "rows.parquet", row_group_size=50)
    document = {
        "input": {"format": "parquet", "path": str(tmp_path / "rows.parquet")},
        "key": "key",
        "value": [],
        "reducer": "count",
    }
    spec = JobSpec(parse({**document, "parallelism": {"mappers": 2}, "limits": limits}))

    with ExitStack() as stack:
        splits = Inputs(spec).open(stack, lambda: pytest.fail("no Spark is needed"))[MAPPER].splits

    assert sum(split.rows for split in splits) == rows
    assert max(split.rows for split in splits) == largest
