import pytest

from dpa.spark._errors import brief

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
UNREAD = """An error occurred while calling o1.parquet.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///a%20b.gz.  \
SQLSTATE: KD001
\tat org.apache.spark.Foo.bar(Foo.scala:1)
Caused by: java.io.EOFException: Unexpected end of input stream
\tat org.apache.hadoop.Foo.bar(Foo.java:1)
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
        (UNREAD, "/a b.gz cannot be read: Unexpected end of input stream"),
        (UNREAD.replace("file://", "s3a://b"), "s3a://b/a%20b.gz cannot be read: Unexpected end of input stream"),
        (PYTHON, "AttributeError: 'str' object has no attribute 'uper'"),
        ("requirement failed: Option 'url' is required.", "requirement failed: Option 'url' is required"),
        ("", ""),
    ],
)
def test_of_what_spark_says_the_one_line_that_helps_is_kept(text: str, line: str) -> None:
    assert brief(text) == line
