"""Files that are looked at without Spark have the rows that Spark reads, but for what docs/flows.md says of types."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpa.sources.first_records import first_records
from dpa.spark import Source, load

CSV = 'n,word,part,on\n1,a,0.5,2026-01-31\n2,"b, ""c""",1,2026-02-01\n,,,\n3,é,-2.5,\n'
JSON = '{"word": "a", "n": 1, "tags": ["x", null]}\n{"n": 2, "word": "b", "at": {"x": 1.5}}\n{"flag": true}\n'
TEXT = "to be\n\nor not\r\nto be"

CASES = [
    ("csv", CSV, {"header": "true", "inferSchema": "true"}),
    ("csv", CSV, {"header": "true"}),
    ("csv", CSV, {}),
    ("csv", CSV.replace(",", ";"), {"header": "true", "inferSchema": "true", "sep": ";"}),
    ("csv", CSV.replace("2.5", "none"), {"header": "true", "nullValue": "none"}),
    ("json", JSON, {}),
    ("text", TEXT, {}),
]


@pytest.mark.parametrize(("name", "content", "options"), CASES)
def test_first_records_are_those_of_spark(spark, tmp_path: Path, name: str, content: str, options) -> None:
    (tmp_path / f"1.{name}").write_bytes(content.encode())
    (tmp_path / f"2.{name}").write_bytes(content.encode())
    source = Source(name, str(tmp_path), options=options)
    feed = first_records(name, source.paths, options)
    assert feed is not None
    found = [row for batch in feed.rows_now(2) for row in batch.to_pylist()]
    frame = load(spark, source).toArrow()
    assert feed.schema.names == frame.schema.names
    assert found == frame.to_pylist()
    narrow = {"int32": "int64"}
    assert [str(kind) for kind in feed.schema.types] == [
        narrow.get(str(kind), str(kind)).replace("element", "item") for kind in frame.schema.types
    ]


@pytest.mark.parametrize(
    "values",
    [
        ["2026-01-31", "2026-02-01"],
        ["1", "20", "__HIVE_DEFAULT_PARTITION__"],
        ["__HIVE_DEFAULT_PARTITION__"],
        ["a b", "c%3Dd", "é"],
        ["0.5", "2"],
        ["10%3A00", "11%3A30"],
    ],
)
def test_first_records_of_a_partitioned_directory_are_those_of_spark(spark, tmp_path: Path, values: list[str]) -> None:
    table = tmp_path / "under=7" / "table"
    for number, value in enumerate(values):
        folder = table / f"my%20part={value}" / "of=x"
        folder.mkdir(parents=True)
        more = {} if number else {"only here": [1, 2]}
        pq.write_table(pa.table({"n": [number, number + 10], "word": ["a", None], **more}), folder / "1.parquet")
    source = Source("parquet", str(table))
    feed = first_records("parquet", source.paths, {})
    assert feed is not None
    found = [row for batch in feed.rows_now(100) for row in batch.to_pylist()]
    frame = load(spark, source).toArrow()
    assert feed.schema.names == frame.schema.names
    assert sorted(found, key=lambda row: row["n"]) == sorted(frame.to_pylist(), key=lambda row: row["n"])
