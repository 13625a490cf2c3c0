"""A forecast of Parquet and of tables in memory: no Spark, no JVM, which the guard of these tests sees to."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpa import Job
from dpa.driver.forecast import SAMPLE_ROWS
from dpa.errors import ConfigError
from dpa.report import plan_json

ROWS = 2 * SAMPLE_ROWS
WORDS = pa.table({"word": ["the" if row % 2 else f"word {row % 1_000}" for row in range(ROWS)], "line": range(ROWS)})


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("forecast") / "words.parquet"
    pq.write_table(WORDS, path, row_group_size=10_000)
    return path


def test_parquet_is_sampled_without_spark(words: Path) -> None:
    found = Job(input={"format": "parquet", "path": str(words)}, key="word", value=[], reducer="count").forecast()
    assert (found.rows, found.sampled, found.mapped) == (ROWS, SAMPLE_ROWS, SAMPLE_ROWS)
    assert found.distinct == 501
    assert [key.key for key in found.hot] == ["the"]
    assert found.hot[0].share == pytest.approx(0.5, abs=0.01)


def test_so_is_it_for_a_mapper(words: Path) -> None:
    def by_word(record: dict) -> list:
        return [(record["word"], record["line"])]

    job = Job(input={"format": "parquet", "path": str(words)}, mapper=by_word, key="word", reducer="count")
    assert job.forecast().distinct == 501


def test_parquet_is_validated_without_spark(words: Path) -> None:
    job = Job(input={"format": "parquet", "path": str(words)}, key="word", reducer="sum")
    with pytest.raises(ConfigError, match="reads the column 'value'"):
        job.forecast()


def test_a_plan_is_json_without_secrets() -> None:
    records = [{"key": b"\xff"}, {"key": b"a"}]
    job = Job(input=records, reducer="count", spark={"conf": {"password": "x"}})
    plan = json.loads(plan_json(job.forecast()))
    assert plan["schema"] == "dpa-plan-1"
    assert plan["rows"] == 2
    assert sorted(key["key"] for key in plan["hot_keys"]) == ["b'\\xff'", "b'a'"]
    assert plan["config"]["spark"]["conf"]["password"] == "***"
