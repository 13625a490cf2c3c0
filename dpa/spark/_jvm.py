"""Options of the JVM that a session of our own runs in: for jobs of seconds, at no cost for those of hours."""

from __future__ import annotations

import sys
from pathlib import Path

_COMPILE_LATER = {
    "Tier4InvocationThreshold": 500_000,
    "Tier4MinInvocationThreshold": 60_000,
    "Tier4CompileThreshold": 1_500_000,
    "Tier4BackEdgeThreshold": 4_000_000,
}
"""HotSpot's thresholds for its optimizing compiler, a hundred times its defaults. In a job of seconds that compiler
would take a quarter of the processor time, for code that is hardly used afterwards; what is done for every row of a
long job is compiled all the same, a moment later."""


QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Has a JVM say nothing about archives: neither making one nor going without is anything to complain of."""


def jvm_options(archive: Path) -> str:
    """The options, as a command line has them; `archive` need not be there."""
    options = [f"-XX:{flag}={value}" for flag, value in _COMPILE_LATER.items()]
    if archive.exists():  # a JVM that does not find one uses none, not even its own
        options += [f'-XX:SharedArchiveFile="{archive}"', QUIET]
    return " ".join(options)


def archive_file() -> Path:
    """Where the archive of Spark's classes is, if it has been made: with this Python's packages, of which Spark is
    one."""
    import pyspark

    return Path(sys.prefix, "var", "cache", "dpa", f"spark-{pyspark.__version__}.jsa")
