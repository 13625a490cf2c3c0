"""What mappers get of a generated input, and of files in place: no Spark, no JVM, which the guard of these tests sees
to."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpa import Generator, Job
from dpa.config import parse
from dpa.driver.inputs import Inputs, OpenedInput
from dpa.driver.spec import JobSpec
from dpa.errors import ConfigError
from dpa.protocol import plan
from dpa.protocol.graph import MAPPER
from dpa.sources.splits import total_rows


class Days(Generator):
    def __init__(self, often: int = 0) -> None:
        self.often = often

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        days = np.where(random.random(rows) < 0.5, self.often, random.integers(0, 7, rows))
        return pa.record_batch({"day": days, "position": np.arange(start, start + rows)})


NO_GENERATOR = 3


def config(**changes: Any) -> dict[str, Any]:
    return {"format": "generated", "use": f"{__name__}:Days", "rows": 10_000, **changes}


def opened(read: dict[str, Any], **sections: Any) -> OpenedInput:
    spec = JobSpec(parse({"input": read, "key": "day", "value": [], "reducer": "count", **sections}))
    with ExitStack() as stack:
        return Inputs(spec).open(stack, lambda: pytest.fail("no Spark is needed"))[MAPPER]


def generated(job_seed: int = 0, **changes: Any) -> OpenedInput:
    return opened(config(**changes), seed=job_seed, limits={"split_records": 3_000})


def rows(found: OpenedInput) -> pa.Table:
    return pa.Table.from_batches((part for split in found.splits for part in split.batches(1_000)), found.schema)


def test_a_generated_input_is_split_by_the_limits_of_the_job_and_forecast_without_spark() -> None:
    found = generated()
    assert [split.rows for split in found.splits] == [3_000, 3_000, 3_000, 1_000]
    assert rows(found)["position"].to_pylist() == list(range(10_000))
    source, reducer = Job(input=config(), key="day", value=[], reducer="count").forecast().stages
    assert (source.rows, source.sampled, reducer.distinct) == (10_000, 10_000, 7)
    assert [hot.key for hot in reducer.hot] == [0]


def test_seeds_arguments_and_padding_reach_the_rows() -> None:
    """The seed of the input is the job's unless it has its own."""
    fives = rows(generated(5))
    assert rows(generated(3, seed=5)).equals(fives)
    assert not rows(generated(3)).equals(fives)
    found = rows(generated(args={"often": 6}, padding=8))
    days = found["day"].to_pylist()
    assert max(set(days), key=days.count) == 6
    assert found["padding"][0].as_py() == bytes(8)


def test_a_rate_changes_no_row_and_is_shared_by_the_mappers() -> None:
    found = generated(rate=100.0)
    paces = {split.pace for split in found.splits}  # type: ignore[union-attr]
    assert [pace.rate for pace in paces] == [50.0]
    assert {split.rows for split in found.splits} == {50}
    assert total_rows(found.splits) == 10_000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use": None}, "format 'generated' needs the key 'use'"),
        ({"select": ["day"]}, "input.select: is a key of the format `parquet`"),
        ({"rate": 0}, "greater than 0"),
        ({"use": f"{__name__}:Dais"}, "did you mean 'Days'"),
        ({"use": f"{__name__}:NO_GENERATOR"}, "input.use: .* is int, not a `dpa.Generator`"),
        ({"args": {"seldom": 1}}, "input.args: .* cannot be made of {'seldom': 1}"),
    ],
)
def test_what_is_wrong_with_a_generated_input_is_said(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        generated(**changes)
    with pytest.raises(ConfigError, match="sample: is Spark's, and this input is generated: give it fewer `rows`"):
        Job(input=config(), key="day", reducer="count", sample={"fraction": 0.5}).forecast()


@pytest.mark.parametrize(
    ("rows", "limits", "largest"),
    [(1_600, {}, 200), (1_200, {}, 150), (700, {}, 100), (99, {}, 99), (9_000, {"split_records": 100}, 100)],
)
def test_splits_of_files_are_twice_as_large_where_that_leaves_each_mapper_four(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, limits: dict[str, Any], largest: int
) -> None:
    monkeypatch.setattr(plan, "SPLIT_RECORDS", 100)
    pq.write_table(pa.table({"day": range(rows)}), tmp_path / "rows.parquet", row_group_size=50)
    read = {"format": "parquet", "path": str(tmp_path / "rows.parquet")}
    splits = opened(read, parallelism={"mappers": 2}, limits=limits).splits
    assert sum(split.rows for split in splits) == rows
    assert max(split.rows for split in splits) == largest
