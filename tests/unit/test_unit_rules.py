"""The guard of `conftest.py` itself: what unit tests must not do fails, and says what to do instead."""

import subprocess
import time

import pytest

Failed = pytest.fail.Exception


@pytest.mark.parametrize("statement", ["import ray", "from pyspark.sql import SparkSession", "import ray.actor"])
def test_a_unit_test_cannot_import_ray_or_spark(statement: str) -> None:
    with pytest.raises(Failed, match=r"must not import (ray|pyspark)"):
        exec(statement)


def test_ray_is_refused_also_where_the_package_imports_it_when_it_is_needed() -> None:
    from dpa.runtime.cluster import require_alive

    with pytest.raises(Failed, match="must not import ray"):
        require_alive()


def test_a_unit_test_cannot_sleep() -> None:
    with pytest.raises(Failed, match="must not sleep"):
        time.sleep(0.001)


@pytest.mark.parametrize("command", ["spark-submit", ["/opt/spark/bin/spark-class", "Main"]])
def test_a_unit_test_cannot_start_spark(command: object) -> None:
    with pytest.raises(Failed, match="must not start a JVM"):
        subprocess.run(command, check=False)  # type: ignore[call-overload]


def test_a_unit_test_cannot_start_a_java_that_is_no_fake(tmp_path) -> None:
    java = tmp_path / "java"
    java.write_bytes(b"\x7fELF")
    java.chmod(0o755)
    with pytest.raises(Failed, match="must not start a JVM"):
        subprocess.run([java, "-version"], check=False)


def test_other_programs_may_be_started() -> None:
    assert subprocess.run(["true"], check=True).returncode == 0
