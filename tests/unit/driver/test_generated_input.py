"""A job file's generated input: no Spark, no JVM, which the guard of these tests sees to."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpa import Generator, Job
from dpa.config import parse
from dpa.driver.inputs import Inputs, OpenedInput
from dpa.driver.spec import JobSpec
from dpa.errors import ConfigError
from dpa.protocol.graph import MAPPER
from dpa.sources.splits import total_rows

THIS = "test_generated_input"


class Days(Generator):
    """Days of the week, some of them more often than others."""

    def __init__(self, often: int = 0) -> None:
        self.often = often

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        days = np.where(random.random(rows) < 0.5, self.often, random.integers(0, 7, rows))
        return pa.record_batch({"day": days, "position": np.arange(start, start + rows)})


NO_GENERATOR = 3


def config(**changes: Any) -> dict[str, Any]:
    return {"format": "generated", "use": f"{THIS}:Days", "rows": 10_000, **changes}


def opened(job_seed: int = 0, **changes: Any) -> OpenedInput:
    document = {"input": config(**changes), "key": "day", "reducer": "count", "seed": job_seed}
    spec = JobSpec(parse({**document, "limits": {"split_records": 3_000}}))

    def no_spark() -> Any:
        pytest.fail("no Spark is needed to generate rows")

    with ExitStack() as stack:
        return Inputs(spec).open(stack, no_spark)[MAPPER]


def rows(found: OpenedInput) -> pa.Table:
    return pa.Table.from_batches((part for split in found.splits for part in split.batches(1_000)), found.schema)


def test_a_generated_input_is_split_by_the_limits_of_the_job() -> None:
    found = opened()
    assert [split.rows for split in found.splits] == [3_000, 3_000, 3_000, 1_000]
    assert rows(found)["position"].to_pylist() == list(range(10_000))


def test_the_seed_of_the_input_is_the_jobs_unless_it_has_its_own() -> None:
    fives = rows(opened(5))
    assert rows(opened(3, seed=5)).equals(fives)
    assert not rows(opened(3)).equals(fives)


def test_a_rate_changes_no_row_and_is_shared_by_the_mappers() -> None:
    found = opened(rate=100.0)
    paces = {split.pace for split in found.splits}  # type: ignore[union-attr]
    assert [pace.rate for pace in paces] == [50.0]
    assert {split.rows for split in found.splits} == {50}
    assert total_rows(found.splits) == 10_000


def test_arguments_and_padding_reach_the_rows() -> None:
    found = rows(opened(args={"often": 6}, padding=8))
    days = found["day"].to_pylist()
    assert max(set(days), key=days.count) == 6
    assert found["padding"][0].as_py() == bytes(8)


def test_a_generated_input_is_forecast_without_spark() -> None:
    source, reducer = Job(input=config(), key="day", value=[], reducer="count").forecast().stages
    assert (source.rows, source.sampled, reducer.distinct) == (10_000, 10_000, 7)
    assert [hot.key for hot in reducer.hot] == [0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use": None}, "format 'generated' needs the key 'use'"),
        ({"select": ["day"]}, "input.select: is a key of the format `parquet`"),
        ({"rate": 0}, "greater than 0"),
        ({"use": f"{THIS}:Dais"}, "did you mean 'Days'"),
        ({"use": f"{THIS}:NO_GENERATOR"}, "input.use: .* is int, not a `dpa.Generator`"),
        ({"args": {"seldom": 1}}, "input.args: .* cannot be made of {'seldom': 1}"),
    ],
)
def test_what_is_wrong_with_a_generated_input_is_said(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        opened(**changes)


def test_a_generated_input_is_not_sampled() -> None:
    with pytest.raises(ConfigError, match="sample: is Spark's, and this input is generated: give it fewer `rows`"):
        Job(input=config(), key="day", reducer="count", sample={"fraction": 0.5}).forecast()
