import pytest

from dpa.tables.source import Sample, Source, View, reads_in_place


def test_a_source_is_made_of_what_a_job_file_says(tmp_path) -> None:
    values = {
        "format": "sql",
        "query": "SELECT 1",
        "views": {"words": {"format": "csv", "path": "w.csv", "options": {"header": "true"}}},
        "records": None,
    }
    source = Source.of(values, base=str(tmp_path))
    assert source == Source(
        "sql", query="SELECT 1", views={"words": View("csv", "w.csv", {"header": "true"})}, base=str(tmp_path)
    )


def test_relative_paths_start_at_the_base_and_uris_stay() -> None:
    source = Source("parquet", ["a/../b", "/c", "s3://bucket/d"], base="/jobs")
    assert source.paths == ["/jobs/b", "/c", "s3://bucket/d"]


@pytest.mark.parametrize(
    ("source", "sample", "in_place"),
    [
        (Source("parquet", "a"), None, True),
        (Source("parquet", ["a", "file:///b/*.pq"], glob="*.parquet"), None, True),
        (Source("parquet", "a", select=["x"]), None, False),
        (Source("parquet", "a", where="x > 1"), None, False),
        (Source("parquet", "a", options={"mergeSchema": "true"}), None, False),
        (Source("parquet", "a"), Sample(0.5), False),
        (Source("parquet", "s3a://bucket/b"), None, False),
        (Source("parquet", "{a,b}"), None, False),
        (Source("csv", "a"), None, False),
    ],
)
def test_only_parquet_that_is_wanted_as_it_is_and_that_arrow_can_read_is_read_in_place(
    source: Source, sample: Sample | None, in_place: bool
) -> None:
    assert reads_in_place(source, sample) == in_place


@pytest.mark.parametrize(("recursive", "in_place"), [(False, False), (True, True)])
def test_partitioned_directories_are_left_to_spark_unless_read_as_a_mere_tree(tmp_path, recursive, in_place) -> None:
    (tmp_path / "year=2024").mkdir()
    assert reads_in_place(Source("parquet", str(tmp_path), recursive=recursive)) == in_place
