"""The archive of Spark's classes, by Java: a test makes one, which takes as long as several sessions."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from pathlib import Path
from dpa.spark import spark_session
from dpa.spark._jvm import jvm_options
from dpa.spark.archive import make_archive

archive, log = Path(sys.argv[1]), Path(sys.argv[2])
make_archive(archive)
assert [entry.name for entry in archive.parent.iterdir()] == [archive.name]
options = f'{jvm_options(archive)} -Xlog:class+load=info:file="{log}"'
with spark_session("archived", "local[1]", {"spark.driver.defaultJavaOptions": options}) as spark:
    assert spark.range(10).count() == 10
"""


@pytest.mark.slow
def test_a_session_takes_sparks_classes_out_of_the_archive(tmp_path) -> None:
    archive, log = tmp_path / "cache" / "spark.jsa", tmp_path / "classes.log"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, archive, log], env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    loaded = [line for line in log.read_text().splitlines() if " org.apache.spark." in line]
    shared = [line for line in loaded if "source: shared objects file (top)" in line]
    assert len(shared) > len(loaded) / 2 > 500
