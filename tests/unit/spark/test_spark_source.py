from typing import Any

import pytest

from dpa.errors import TableError
from dpa.spark import input_table, schema_of
from dpa.spark._source import RowSample, Source, reads_in_place, require_paths


def test_a_source_is_made_of_what_a_job_file_says(tmp_path) -> None:
    values = {
        "format": "sql",
        "query": "SELECT 1",
        "views": {"words": {"format": "csv", "path": "w.csv", "options": {"header": "true"}}},
        "records": None,
    }
    assert Source("parquet", ["a/../b", "/c", "s3://bucket/d"], base="/jobs").paths == [
        "/jobs/b",
        "/c",
        "s3://bucket/d",
    ]
    source = Source.of(values, base=str(tmp_path))
    assert source == Source(
        "sql", query="SELECT 1", views={"words": Source("csv", "w.csv", options={"header": "true"})}, base=str(tmp_path)
    )


@pytest.mark.parametrize(
    ("source", "sample", "in_place"),
    [
        (Source("parquet", "a"), None, True),
        (Source("parquet", ["a", "file:///b/*.pq"], glob="*.parquet"), None, True),
        (Source("parquet", "a", select=["x"]), None, False),
        (Source("parquet", "a", where="x > 1"), None, False),
        (Source("parquet", "a", options={"mergeSchema": "true"}), None, False),
        (Source("parquet", "a"), RowSample(0.5), False),
        (Source("parquet", "s3a://bucket/b"), None, False),
        (Source("parquet", "{a,b}"), None, False),
        (Source("csv", "a"), None, False),
    ],
)
def test_only_parquet_that_is_wanted_as_it_is_and_that_arrow_can_read_is_read_in_place(
    source: Source, sample: RowSample | None, in_place: bool
) -> None:
    assert reads_in_place(source, sample) == in_place


@pytest.mark.parametrize(("recursive", "in_place"), [(False, False), (True, True)])
def test_partitioned_directories_are_left_to_spark_unless_read_as_a_mere_tree(tmp_path, recursive, in_place) -> None:
    (tmp_path / "year=2024").mkdir()
    assert reads_in_place(Source("parquet", str(tmp_path), recursive=recursive)) == in_place


def no_spark() -> Any:
    pytest.fail("Spark was started")


@pytest.mark.parametrize("kind", ["parquet", "csv", "json", "text"])
@pytest.mark.parametrize("path", ["visit.csv", "nothing/*.csv", "file:///no/such/place", ["visits.csv", "visit.csv"]])
def test_a_path_at_which_there_is_nothing_is_found_without_spark(tmp_path, kind: str, path: Any) -> None:
    (tmp_path / "visits.csv").write_text("user\n")
    source = Source(kind, path, where="user > ''", base=str(tmp_path))
    with pytest.raises(TableError, match="no such file or directory"):
        schema_of(no_spark, source)
    with pytest.raises(TableError, match="no such file or directory"), input_table(no_spark, source):
        pass


def test_a_path_may_lie_on_another_file_system_where_hadoop_is_configured(monkeypatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    require_paths(Source("csv", "/no/such/place"))
    with pytest.raises(TableError, match="no such file"):
        require_paths(Source("csv", "file:///no/such/place"))


def test_so_is_one_of_a_view_and_the_name_that_was_meant_is_told(tmp_path) -> None:
    (tmp_path / "visits.csv").write_text("user\n")
    views = {"good": Source("csv", "visits.csv"), "bad": Source("csv", "visit.csv")}
    with pytest.raises(TableError, match=r"/visit\.csv: no such file or directory; did you mean 'visits\.csv'\?"):
        schema_of(no_spark, Source("sql", query="SELECT 1", views=views, base=str(tmp_path)))


@pytest.mark.parametrize("path", ["{a,b}.csv", "[^v]*", "hdfs://name/a", "s3://bucket/a", "visits.csv", "v*", "."])
def test_what_is_there_and_what_only_spark_can_look_up_is_left_to_spark(tmp_path, path: str) -> None:
    (tmp_path / "visits.csv").write_text("user\n")
    require_paths(Source("csv", path, base=str(tmp_path)))
