import signal
import threading

import pytest

from dpa.tables._errors import brief
from dpa.tables._process import interrupts_held
from dpa.tables.source import Sample, Source, View, reads_in_place

ANALYSIS = """[UNRESOLVED_COLUMN.WITHOUT_SUGGESTION] A column `wrd` cannot be resolved. SQLSTATE: 42703; line 1 pos 0;
'Project ['wrd]
+- Range (0, 100000, step=1, splits=Some(2))
"""
PARSE = """
[PARSE_SYNTAX_ERROR] Syntax error at or near end of input. SQLSTATE: 42601 (line 1, pos 4)

== SQL ==
id >
----^^^
"""
JAVA = """An error occurred while calling o130.load.
: java.sql.SQLException: No suitable driver
\tat java.sql/java.sql.DriverManager.getDriver(DriverManager.java:299)
"""
CAUSED = """An error occurred while calling o1.parquet.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows. SQLSTATE: 58030
\tat org.apache.spark.Foo.bar(Foo.scala:1)
Caused by: java.io.IOException: Disk quota exceeded
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""
PYTHON = """[UDF] An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "job.py", line 7, in shout
    return word.uper()
AttributeError: 'str' object has no attribute 'uper'
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (ANALYSIS, "A column `wrd` cannot be resolved"),
        (PARSE, "Syntax error at or near end of input (line 1, pos 4)"),
        (JAVA, "No suitable driver"),
        (CAUSED, "Disk quota exceeded"),
        (PYTHON, "AttributeError: 'str' object has no attribute 'uper'"),
        ("requirement failed: Option 'url' is required.", "requirement failed: Option 'url' is required"),
        ("", ""),
    ],
)
def test_of_what_spark_says_the_one_line_that_helps_is_kept(text: str, line: str) -> None:
    assert brief(text) == line


def test_an_interrupt_is_held_back_until_the_block_has_ended() -> None:
    reached = False
    with pytest.raises(KeyboardInterrupt), interrupts_held():
        signal.raise_signal(signal.SIGINT)
        reached = True
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_sigterm_is_held_back_too() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with interrupts_held():
            signal.raise_signal(signal.SIGTERM)
            assert seen == []
        assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_second_interrupt_gets_through() -> None:
    reached = False
    with pytest.raises(KeyboardInterrupt), interrupts_held():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        reached = True
    assert not reached


def test_outside_of_the_main_thread_no_handler_is_touched() -> None:
    seen: list[object] = []

    def look() -> None:
        with interrupts_held():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


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
