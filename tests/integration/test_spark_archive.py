"""The archives of classes that the installation makes, by the Java that every machine has: a test makes them, which
takes as long as several sessions."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from pathlib import Path
from dpa.spark import archive, spark_session
from dpa.spark._java import jvm_options

file, log = Path(sys.argv[1]), Path(sys.argv[2])
archive.archive_file = lambda: file
assert archive.main() == 0
assert {entry.name for entry in file.parent.iterdir()} == {"spark.jsa", "spark-java.jsa"}
options = f'{jvm_options(file)} -Xlog:class+load=info:file="{log}"'
with spark_session("archived", "local[1]", {"spark.driver.defaultJavaOptions": options}) as spark:
    assert spark.range(10).count() == 10
"""


@pytest.mark.slow
def test_without_an_installed_java_a_session_takes_javas_and_sparks_classes_out_of_archives(tmp_path: Path) -> None:
    archive, log = tmp_path / "cache" / "spark.jsa", tmp_path / "classes.log"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment.pop("JAVA_HOME", None)
    environment["PATH"] = str(_programs_but_java(tmp_path / "bin"))
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, archive, log], env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(f"{archive}: ")
    loaded = log.read_text().splitlines()
    assert any(line.endswith(" java.lang.Object source: shared objects file") for line in loaded)
    of_spark = [line for line in loaded if " org.apache.spark." in line]
    shared = [line for line in of_spark if "source: shared objects file (top)" in line]
    assert len(shared) > len(of_spark) / 2 > 500


def _programs_but_java(directory: Path) -> Path:
    """A directory with a link to every program on the PATH except `java`."""
    directory.mkdir()
    for place in os.get_exec_path():
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            link = directory / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program)
    return directory
