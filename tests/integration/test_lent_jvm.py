"""The JVM of Spark that the session of `dpa up` keeps: programs that borrow it one after another from this process,
which plays the keeper. No Ray runs. A JVM that one test has left is lent to the next."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from programs_for_tests import PATIENCE, begun, has_ended, printed, python_path, wait_until

from dpa._util.lending import Lender, lent

PRELUDE = """
import json, os, sys
from functools import partial
from pathlib import Path
from dpa._util.lending import borrowed
from dpa.spark import spark_session

def session(conf={}):
    return spark_session("job", "local[2]", conf, lend=partial(borrowed, Path(sys.argv[1])))

def jvm(spark):
    return spark.sparkContext._gateway.proc.pid
"""

JOB = """
from pyspark.sql import functions as f

with session(*map(json.loads, sys.argv[2:])) as spark:
    found = {
        "jvm": jvm(spark),
        "rows": spark.range(100).groupBy((f.col("id") % 7).alias("k")).count().count(),
        "views": [table.name for table in spark.catalog.listTables()],
        "conf": [spark.conf.get("spark.sql.shuffle.partitions"), spark.conf.get("spark.sql.ansi.enabled")],
        "udf": spark.catalog.functionExists("told"),
        "cached": spark.sparkContext._jsc.sc().getPersistentRDDs().size(),
        "at": spark.sparkContext._jvm.java.lang.System.getProperty("user.dir"),
        "told": os.environ.get("TOLD"),
    }
    def told(number):
        import telling
        return telling.WORD
    spark.udf.register("told", told)
    [[found["word"]]] = spark.sql("SELECT told(1)").collect()
    spark.range(9).createOrReplaceTempView("left_view")
    spark.range(9).createOrReplaceGlobalTempView("left_global_view")
    spark.sql("CREATE TABLE left_table USING parquet AS SELECT 1 AS one")
    spark.range(9).cache().count()
    spark.conf.set("spark.sql.ansi.enabled", "false")
print(json.dumps(found))
"""


CALLBACKS = """
import time
with session() as spark:
    rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    batches = []
    query = rates.writeStream.foreachBatch(lambda rows, _: batches.append(rows.count())).start()
    while not batches:
        time.sleep(0.05)
    system = spark.sparkContext._jvm.java.lang.System
    for _ in range(3):  # callbacks of the job before are collected
        system.gc()
        system.runFinalization()
        time.sleep(0.1)
    seen = len(batches)
    while query.isActive and len(batches) < seen + 2:
        time.sleep(0.05)
    assert query.isActive, query.exception()
    query.stop()
    print(json.dumps(jvm(spark)))
"""

WHO = """
with session() as spark:
    assert spark.range(3).count() == 3
    print(json.dumps(jvm(spark)))
"""
"""The least that shows which JVM a job has, and that it works."""


class Borrowers:
    """Programs that borrow from one lender."""

    def __init__(self, place: Path) -> None:
        self.place, self.home = place, place / "keeper"
        self.home.mkdir()
        self.lender = Lender(self.home)
        (place / "telling.py").write_text("WORD = 'first'")

    def begin(self, text: str, *words: str, **variables: str) -> subprocess.Popen[str]:
        variables |= {"PYTHONPATH": f"{self.place}{os.pathsep}{python_path()}", "PYTHONDONTWRITEBYTECODE": "1"}
        return begun(PRELUDE + text, self.place, str(self.home), *words, **variables)

    def run(self, text: str, *words: str, **variables: str) -> Any:
        return printed(self.begin(text, *words, **variables))

    @property
    def kept(self) -> int | None:
        return lent(self.home)


@pytest.fixture(scope="module")
def borrowers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Borrowers]:
    made = Borrowers(tmp_path_factory.mktemp("borrowers"))
    with made.lender.lending():
        yield made
    assert [entry.name for entry in made.home.iterdir()] == ["lender"], "nothing else is left"


def test_a_second_job_has_the_jvm_of_the_first_and_nothing_that_the_first_left_in_spark(borrowers: Borrowers) -> None:
    conf = json.dumps({"spark.sql.shuffle.partitions": "3"})
    first = borrowers.run(JOB, conf)
    (borrowers.place / "telling.py").write_text("WORD = 'second'")
    second = borrowers.run(JOB, conf)
    fresh = {"rows": 7, "views": [], "conf": ["3", "true"], "udf": False, "cached": 0, "at": str(borrowers.place)}
    assert first == {**fresh, "jvm": borrowers.kept, "told": None, "word": "first"}
    assert second == {**first, "word": "second"}, "UDFs import modules as they are on disk now"
    third = borrowers.run(JOB, "{}", TOLD="something")
    assert third == {**second, "jvm": borrowers.kept, "conf": ["200", "true"], "told": "something"}
    assert third["jvm"] != second["jvm"], "other settings, another JVM in its place"
    wait_until(lambda: has_ended(second["jvm"]))


def test_callbacks_of_a_job_stay_while_those_of_the_one_before_are_collected(borrowers: Borrowers) -> None:
    assert borrowers.run(CALLBACKS) == borrowers.run(CALLBACKS)


BUSY = """
import threading, time
with session() as spark:
    slow = spark.range(0, 1 << 50, 1, 8).selectExpr("hash(id) AS h")
    threading.Thread(target=lambda: slow.groupBy("h").count().count(), daemon=True).start()
    tracker = spark.sparkContext.statusTracker()
    while not tracker.getActiveStageIds():
        time.sleep(0.01)
    print(json.dumps(jvm(spark)), flush=True)
    if sys.argv[2] == "waits":
        sys.stdin.read()
"""


def test_a_jvm_in_which_a_job_may_still_run_is_not_lent_again(borrowers: Borrowers) -> None:
    used = []
    for how in ("waits", "leaves"):  # and is killed, and ends by itself
        busy = borrowers.begin(BUSY, how)
        assert busy.stdout is not None
        used.append(int(busy.stdout.readline()))
        if how == "waits":
            busy.kill()
        busy.communicate(timeout=PATIENCE)
        wait_until(lambda: has_ended(used[-1]))
    assert len({*used, borrowers.run(WHO)}) == 3


FAILS = """
with session() as spark:
    print(json.dumps(jvm(spark)), flush=True)
    spark.sql("nonsense")
"""


TWO = """
import subprocess
with session() as spark:
    other = subprocess.run([sys.executable, "-c", sys.argv[2], sys.argv[1]], capture_output=True, text=True)
    print(json.dumps([jvm(spark), json.loads(other.stdout), spark.range(5).count()]))
"""


def test_a_job_that_fails_leaves_its_jvm_and_of_two_at_once_one_has_it_and_the_other_its_own(
    borrowers: Borrowers,
) -> None:
    output, errors = borrowers.begin(FAILS).communicate(timeout=PATIENCE)
    assert "ParseException" in errors
    one, other, rows = borrowers.run(TWO, PRELUDE + WHO)
    assert one == int(output) == borrowers.kept != other
    assert rows == 5
    wait_until(lambda: has_ended(other))
