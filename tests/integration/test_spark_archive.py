"""The archives of classes that the installation makes; where it could not, the test does, which takes as long as
several sessions."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from dpa.spark import archive, spark_session
from dpa.spark._java import archive_file, jvm_options

if not archive_file().exists():
    assert archive.main() == 0
options = f'{jvm_options(archive_file())} -Xlog:class+load=info:file="{sys.argv[1]}"'
with spark_session("archived", "local[1]", {"spark.driver.defaultJavaOptions": options}) as spark:
    assert spark.range(10).count() == 10
"""


@pytest.mark.slow
def test_a_session_takes_javas_and_sparks_classes_out_of_archives(tmp_path: Path) -> None:
    log = tmp_path / "classes.log"
    ended = subprocess.run([sys.executable, "-c", PROGRAM, log], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    loaded = log.read_text().splitlines()
    made_for_this_java = "after another Java was installed: python -m dpa.spark.archive"
    assert any(line.endswith(" java.lang.Object source: shared objects file") for line in loaded), made_for_this_java
    of_spark = [line for line in loaded if " org.apache.spark." in line]
    shared = [line for line in of_spark if "source: shared objects file (top)" in line]
    assert len(shared) > len(of_spark) / 2 > 500, made_for_this_java
