"""Jobs whose result is checked against Spark, and what is published and reported if that cannot be done."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import executors_for_tests as executors
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from programs_for_tests import PATIENCE

from dpa import Flow, Job, session
from dpa.aggregates import Sum
from dpa.driver import reference
from dpa.errors import ConfigError
from dpa.spark import compute
from dpa.testing import LocalBackend

pytestmark = pytest.mark.usefixtures("ray", "spark")

WORDS = pa.table({"word": ["a", "b", "a", "c"]})
QUERY = "SELECT word, count(*) AS count FROM input GROUP BY word"
BROKEN = "SELECT word, count(*) DIV (count(*) - 1) AS count FROM input GROUP BY word"


def counting(reference: Any, **sections: Any) -> Job:
    few = {"mappers": 1, "reducers": 2}
    return Job(input=WORDS, key="word", reducer="count", parallelism=few, reference=reference, **sections)


def test_a_reference_that_fails_publishes_nothing_and_the_report_keeps_what_is_known(tmp_path: Path) -> None:
    path = tmp_path / "out"
    output = {"path": str(path), "mode": "overwrite"}
    counting(None, output=output, name="old").run(backend=LocalBackend())
    old = {entry.name: entry.read_bytes() for entry in path.iterdir()}
    report = counting({"sql": BROKEN}, output=output).run(check=False).report
    assert (report.status, report.reference.checked) == ("failed", False)
    assert report.error is not None and "Division by zero" in report.error
    assert {entry.name: entry.read_bytes() for entry in path.iterdir()} == old
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
    assert (report.main.output.path, report.main.output.unpublished, report.main.output.rows) == (None, str(path), 3)
    assert (report.records.processed, sum(reducer.keys for reducer in report.main.tasks)) == (4, 3)
    assert {hot.key for hot in report.main.hot_keys} == {"a", "b", "c"}
    assert report.records_per_second > 0
    assert all(getattr(report.seconds, phase) > 0 for phase in ("startup", "load", "stream", "merge", "reference"))


BEGAN, ENDED = threading.Event(), threading.Event()
"""Whether Spark has begun to compute a reference, and whether it has ended."""


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def noted(*given: Any, **named: Any) -> pa.Table:
        BEGAN.set()
        try:
            return compute(*given, **named)
        finally:
            ENDED.set()

    BEGAN.clear()
    ENDED.clear()
    monkeypatch.setattr(reference, "compute", noted)


def late_words(record: dict[str, str]) -> Iterator[tuple[str, None]]:
    assert ENDED.wait(60), "the reference waits for the end of the stream"
    yield record["word"], None


def no_words(record: dict[str, str]) -> Iterator[tuple[str, None]]:
    assert BEGAN.wait(60)
    raise ValueError("no word")


@pytest.mark.usefixtures("computed")
def test_a_query_is_computed_while_the_job_runs() -> None:
    assert counting({"sql": QUERY}, mapper=late_words).run(backend=LocalBackend()).report.reference.matches


@pytest.mark.usefixtures("computed")
def test_a_job_that_fails_cancels_its_query(spark: Any) -> None:
    endless = f"SELECT r.word, count(*) AS count FROM ({QUERY}) r CROSS JOIN range(1000000000000000) GROUP BY r.word"
    report = counting({"sql": endless}, mapper=no_words).run(backend=LocalBackend(), check=False).report
    assert report.error is not None and "no word" in report.error
    assert ENDED.is_set()
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()


@pytest.mark.parametrize("orders", [[], [{"item": "pen", "price": 2}]], ids=["no orders", "an order"])
def test_a_reference_sees_declared_columns_whether_there_are_rows_or_not(orders: list[Any]) -> None:
    flow = Flow("orders")
    types = {"item": "string", "price": "decimal128(10, 2)"}
    given = flow.read(orders, name="orders", schema=types)
    dear = given.flat_map(lambda row: [row] if row["price"] > 1 else [], schema=types, name="dear")
    dear.reference("SELECT item, price FROM orders WHERE price > 1")
    sums = dear.key_by("item").reduce(Sum("price"), name="sums")
    sums.reference("SELECT item, cast(sum(price) AS decimal(20, 2)) AS price FROM orders GROUP BY item")
    result = flow.run(backend=LocalBackend())
    assert result.report.status == "ok"
    assert result.table("dear").schema == pa.schema({"item": pa.string(), "price": pa.decimal128(10, 2)})
    assert result.table("sums").schema == pa.schema({"item": pa.string(), "price": pa.decimal128(20, 2)})


def parquet(path: Path) -> dict[str, Any]:
    pq.write_table(WORDS, path / "words.parquet")
    return {"input": {"format": "parquet", "path": str(path / "words.parquet")}}


def csv(path: Path) -> dict[str, Any]:
    (path / "words.csv").write_text("word\na\nb\n", encoding="utf-8")
    return {"input": {"format": "csv", "path": str(path / "words.csv"), "options": {"header": "true"}}}


def records(path: Path) -> dict[str, Any]:
    return {"input": {"format": "records", "records": [{"word": "a"}]}}


@pytest.mark.parametrize("source", [parquet, csv, records], ids=lambda source: source.__name__)
@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "SELECT wrd, count(*) AS count FROM input GROUP BY wrd",
            "`wrd` cannot be resolved.*columns of `input`.* are word",
        ),
        ("SELECT word count(*) FROM", "yntax error"),
        ("SELECT word AS Word FROM input", "has no column 'word'; did you mean 'Word'"),
    ],
)
def test_a_wrong_query_is_found_before_anything_runs(
    source: Callable[[Path], dict[str, Any]], sql: str, message: str, tmp_path: Path
) -> None:
    job = tmp_path / "job.yaml"
    sections = json.dumps({"key": "word", "reducer": "count", **source(tmp_path)})
    job.write_text(sections[:-1] + f',\n"reference": {{"sql": "{sql}"}}}}', encoding="utf-8")
    for step in (lambda: Job.from_file(job).validate(), lambda: Job.from_file(job).run()):
        with pytest.raises(ConfigError, match=rf"job.yaml:2: reference.sql: .*{message}"):
            step()


def fails_at_b(record: dict[str, Any]) -> list[tuple[str, str]]:
    if record["word"] == "b":
        raise ValueError("not this one")
    return [(record["word"], record["word"])]


@pytest.mark.parametrize("on_error", ["skip", "dead_letter"])
@pytest.mark.parametrize("sql", ["SELECT wrd FROM input", "SELECT word AS w, 1 AS count FROM input GROUP BY word"])
def test_a_wrong_query_is_found_though_a_job_ends_before_and_left_records_out(
    tmp_path: Path, on_error: str, sql: str
) -> None:
    letters = {"dead_letters": {"path": str(tmp_path / "letters")}} if on_error == "dead_letter" else {}
    output = {"path": str(tmp_path / "out")}
    job = counting({"sql": sql}, mapper=fails_at_b, on_error=on_error, output=output, **letters)
    with pytest.raises(ConfigError, match="reference query"):
        job.run(backend=LocalBackend())
    assert not (tmp_path / "out").exists()


def test_a_wrong_query_is_found_while_the_one_before_is_computed() -> None:
    flow = Flow()
    words = flow.read(WORDS, name="words").key_by("word")
    slow = "SELECT word, sum(id % 7) AS n FROM words, range(40000000000) GROUP BY word"
    words.agg(n="count(*)", name="first").reference(slow)
    words.agg(n="count(*)", name="second").reference("SELECT wrd FROM words")
    with pytest.raises(ConfigError, match=r"stages.second.reference.sql: .*wrd"):
        flow.run(backend=LocalBackend())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "the reference query: .*`wrd` cannot be resolved"),
        ({"spark": {"master": "nowhere"}}, "Spark's JVM did not start: Master must"),
    ],
)
def test_what_is_wrong_with_a_query_or_spark_ends_a_job_that_runs_before_spark_does(
    tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    (tmp_path / "never.py").write_text("import time\n\ndef never(record):\n    time.sleep(600)\n", encoding="utf-8")
    pq.write_table(WORDS, tmp_path / "words.parquet")
    asked = {
        "input": {"path": "words.parquet"},
        "mapper": "never:never",
        "key": "word",
        "reducer": "count",
        "output": {"path": "out"},
        "reference": {"sql": "SELECT wrd FROM input"},
        **wrong,
    }
    (tmp_path / "job.yaml").write_text(json.dumps(asked), encoding="utf-8")
    command = [sys.executable, "-m", "dpa.run", "job.yaml"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 2 and "startup" in ended.stderr, ended.stderr
    assert re.search(f"reference.sql: {message}", ended.stderr), ended.stderr
    assert not (tmp_path / "out").exists()


def minds(record: dict[str, Any]) -> list[tuple[str, int]]:
    if record["n"] == 3:
        raise ValueError("not this one")
    return [(record["word"], record["n"])]


class MindsFive(Sum):
    def reduce(self, groups: Any) -> pa.RecordBatch:
        if 5 in groups.values.column("value").to_pylist():
            raise ValueError("not this one either")
        return super().reduce(groups)


def test_a_reference_leaves_out_what_user_code_has_failed_on(tmp_path: Path) -> None:
    table = pa.table({"word": ["a", "b", "a", "a", "b", "c"], "n": [1, 2, 3, 3, 5, 6]})
    query = "SELECT word, sum(n) AS value FROM input GROUP BY word"
    given: dict[str, Any] = {"input": table, "mapper": minds, "key": "word", "reference": {"sql": query}}
    given |= {"on_error": "dead_letter", "dead_letters": {"path": str(tmp_path / "dead"), "mode": "overwrite"}}
    reference = Job(reducer=MindsFive(), **given).run(backend=LocalBackend()).report.reference
    assert (reference.checked, reference.matches, reference.left_out, reference.rows) == (True, True, 3, 2)
    del given["dead_letters"]
    reference = Job(reducer="sum", **{**given, "on_error": "skip"}).run(backend=LocalBackend()).report.reference
    assert not reference.checked and reference.why_not is not None and "skipped in mapper" in reference.why_not


def test_a_reference_leaves_out_all_sessions_of_a_key_on_which_user_code_has_failed(tmp_path: Path) -> None:
    at = pa.array([second * 1_000_000 for second in (0, 4, 8, 1, 20)], pa.timestamp("us"))
    table = pa.table({"word": ["a", "a", "a", "b", "b"], "n": [1, -3, 5, 2, 4], "at": at})
    flow = Flow("visits", on_error="dead_letter", dead_letters={"path": str(tmp_path / "dead")})
    rows = flow.read(table, name="visits", time="at").window(session(5)).key_by("word", value="n")
    sums = rows.reduce(executors.SlowSumOfGood(0.0), name="sums")
    window = "session_window.start AS window_start, session_window.end AS window_end"
    sums.reference(f"SELECT word, {window}, sum(n) AS value FROM visits GROUP BY word, session_window(at, '5 seconds')")
    result = flow.run(backend=LocalBackend())
    assert sorted(result.table("sums").column("value").to_pylist()) == [1, 2, 4, 5]
    reference = result.report.reference
    assert (reference.checked, reference.matches, reference.left_out, reference.rows) == (True, True, 1, 2)
