"""Turns Spark's exceptions into a `TableError` of a line or two. Their own text carries plans, stack traces and log
entries, which do not help the author of a job file."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from dpa._util.disk import is_full
from dpa.errors import SparkLostError, TableError
from dpa.sources.paths import without_file_scheme

_SPARK_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers on which pyspark prints each exception with its JVM stack trace before it raises it."""

_READING = re.compile(r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (\S+?)\.\s")
"""Spark names a file that it cannot read around the cause, which does not name it."""

_LONGEST = 400

_MEMORY = "give it more memory, such as `spark.conf: {spark.driver.memory: 4g}`"

_STARVED = ("OutOfMemoryError", "Java heap space", "GC overhead limit exceeded", "TaskResultLost")


@contextmanager
def as_table_error(what: str, hint: str = "") -> Iterator[None]:
    """Turn an exception of Spark's in this block into a `TableError` that starts with `what` and ends with `hint`, or
    into a `SparkLostError` if the JVM has ended."""
    try:
        from pyspark.logger import PySparkLogger

        with logging_only(map(PySparkLogger.getLogger, _SPARK_LOGGERS), lambda record: False):
            yield
    except _raised() as error:
        if not (type(error).__module__.startswith("pyspark") or hasattr(error, "java_exception")):
            lost = "Spark's JVM has ended, or does not answer any more"
            raise SparkLostError(f"{what}: {lost}; if it ran out of memory, {_MEMORY}") from None
        text = str(error)
        remedy = f"; {_MEMORY}" if any(word in text for word in _STARVED) else ""
        full = "the disk is full: " if is_full(error) else ""
        raise TableError(f"{what}: {full}{brief(text)}{remedy}{hint and f' ({hint})'}") from None


def tidying_up() -> AbstractContextManager[None]:
    """Ignore Spark's exceptions in this block: if the JVM has ended, nothing needs cleaning."""
    return suppress(*_raised())


def spark_errors() -> tuple[type[Exception], ...]:
    """What Spark's calls raise: pyspark's exceptions, and py4j's where pyspark does not translate."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JError)


def _raised() -> tuple[type[Exception], ...]:
    """These, and what calls raise once the JVM has ended."""
    return (*spark_errors(), ConnectionError, EOFError)


def brief(text: str) -> str:
    """The line of an exception's text that says what is wrong, with the file that could not be read."""
    causes = re.findall(r"^Caused by: (.+)$", text, flags=re.MULTILINE)
    python = re.findall(r"^(\w[\w.]*(?:Error|Exception|Interrupt)\b.*)$", text, flags=re.MULTILINE)
    if "Traceback (most recent call last)" in text and python:
        line = python[-1]
    elif causes:
        line = causes[-1]
    else:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        line = next((line for line in lines if not line.startswith("An error occurred while calling")), "")
    line = re.sub(r"^:?\s*(?:[\w$]+\.)+[\w$]*(?:Exception|Error): ", "", line)
    line = re.sub(r"^\[[A-Z0-9_.]+\] ", "", line)
    place = re.search(r"\(line \d+, pos \d+\)", line)
    line = line.split(" SQLSTATE:")[0].rstrip(" .;")
    line = f"{line} {place.group()}" if place and place.group() not in line else line
    line = line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ..."
    file = _READING.search(text)
    return f"{without_file_scheme(file.group(1))} cannot be read: {line}" if file else line


def quoted(column: str) -> str:
    """A name of a column or view in which Spark SQL takes dots, blanks and backticks literally."""
    return f"`{column.replace('`', '``')}`"


@contextmanager
def logging_only(loggers: Iterable[logging.Logger], wanted: Callable[[logging.LogRecord], bool]) -> Iterator[None]:
    loggers = list(loggers)
    for logger in loggers:
        logger.addFilter(wanted)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(wanted)
