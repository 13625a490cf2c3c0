"""`python -m dpa.spark.archive`: have Java keep Spark's classes as it has loaded and checked them, in an archive
(class data sharing, JEP 350). Spark then starts, and runs its first queries, in less processor time.

`make` does so when it installs. The archive is kept with this Python's packages, for the Java and the Spark that made
it; any other goes without.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from dpa.errors import DpaError, TableError
from dpa.spark._jvm import QUIET, archive_file
from dpa.spark.baseline import spark_loads
from dpa.spark.reference import check_reference, compute
from dpa.spark.session import spark_session
from dpa.spark.source import Source, load
from dpa.spark.stage import input_table

_WRITE_SECONDS = 300
"""How long a JVM may take to end that writes its archive; on an idle machine it takes ten seconds."""

_FILES = {"csv": "a,1\nb,2\n", "json": '{"word": "a", "n": 1}\n', "text": "what a job has Spark load\nis to be there\n"}
"""An input of each format that Spark reads, by the format's name."""

_QUERY = """
SELECT lower(word) AS word, count(*) AS count
FROM (SELECT explode(regexp_extract_all(value, '[a-z]+', 0)) AS word FROM input)
GROUP BY lower(word)
"""


def make_archive(file: Path) -> None:
    """Make the archive, in place of an older one. Sessions that run meanwhile are undisturbed.

    Raises:
        TableError: Spark does not start, or the archive cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=file.parent) as directory:
            written = Path(directory, file.name)
            options = f'-Djava.io.tmpdir="{directory}" -XX:ArchiveClassesAtExit="{written}" {QUIET}'
            conf = {"spark.driver.defaultJavaOptions": options}  # a JVM that uses an archive writes none
            with spark_session("archive", "local[2]", conf, stop_seconds=_WRITE_SECONDS):
                _use_spark(Path(directory))
            written.rename(file)
    except OSError as error:
        raise TableError(f"the archive of Spark's classes: {error}") from None


def _use_spark(directory: Path) -> None:
    """Have Spark load the classes that jobs need."""
    with spark_session("archive") as spark:
        for kind, content in _FILES.items():
            (directory / f"input.{kind}").write_text(content, encoding="utf-8")
            load(spark, Source(kind, str(directory / f"input.{kind}"))).toArrow()
        with input_table(lambda: spark, Source("text", str(directory), glob="*.text", where="value > ''")) as table:
            frames = {"input": load(spark, Source("parquet", table.paths))}
            check_reference(spark, frames, _QUERY, "word")
            counts: pa.Table = compute(spark, frames, _QUERY)
            spark_loads(spark, counts["word"].combine_chunks(), counts["count"].to_numpy(), 2)


def main() -> int:
    """Make the archive, and say where it is, or why there is none. Returns the exit status."""
    try:
        file = archive_file()
        make_archive(file)
    except DpaError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    print(f"{file}: {file.stat().st_size / 2**20:.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
