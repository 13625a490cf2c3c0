"""Random flows of steps on columns give what polars makes of the whole input; DPA_RANDOM_FLOWS says how many."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from random_columns import Drawn, table_of

from dpa import Flow
from dpa.columns.arrow import to_frame
from dpa.testing import LocalBackend

FLOWS, CHUNK = int(os.environ.get("DPA_RANDOM_FLOWS", "240")), 40


def rows_of(frame: pl.DataFrame) -> list[str]:
    return sorted(map(repr, frame.rows()))


@pytest.mark.parametrize("first", range(0, FLOWS, CHUNK))
def test_random_steps_give_what_polars_makes_of_the_whole_input(first: int, tmp_path: Path) -> None:
    for seed in range(first, min(first + CHUNK, FLOWS)):
        chance = Random(seed)
        table = table_of(chance.choice([0, 1, 7, 40]), chance)
        drawn = Drawn(to_frame(table), chance)
        drawn.draw(chance.randint(1, 7))
        limits = {"batch_records": chance.choice([1, 3, 1000]), "split_records": chance.choice([5, 1000])}
        flow = Flow("random", seed=seed, limits=limits)
        source: Any = table
        if chance.random() < 0.4 and table.num_rows:  # what polars scans by itself
            source = tmp_path / f"{seed}.parquet"
            pq.write_table(table, source, row_group_size=chance.choice([3, 1000]))
        rows = flow.read(source, name="input")
        for change in drawn.changes:
            rows = change(rows)
        if chance.random() < 0.5:
            rows.union(parallelism=2)
        result = flow.run(backend=LocalBackend()).table()
        found = to_frame(result)
        wanted = drawn.frame.with_columns(pl.col(pl.Categorical).cast(pl.String))  # results have no dictionaries
        assert found.schema == wanted.schema, f"seed {seed}"
        assert rows_of(found) == rows_of(wanted), f"seed {seed}"
