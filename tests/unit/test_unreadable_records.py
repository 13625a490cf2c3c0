"""Records that a reader cannot read: by `on_error` they fail the job, with their place, or become dead letters that are
replayed as rows once the input is described as it is; and they are noted once, whatever is read again."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from builders import map_task
from kafka_broker import make_topic, produce
from typer.testing import CliRunner

from dpa import Job
from dpa.aggregates import Count
from dpa.config import parse
from dpa.dead_letters.__main__ import app
from dpa.dead_letters._letters import FoundLetters
from dpa.errors import ConfigError, DpaError
from dpa.execution.emission import Emission
from dpa.protocol.task.user_code import UserCode
from dpa.protocol.wire.events import StepDone
from dpa.protocol.wire.instructions import CloseSplit, NextStep, OpenSplit
from dpa.sources.lines import LineFormat
from dpa.sources.splits import NumberedSplit
from dpa.sources.watched import WatchedFiles
from dpa.testing import LocalBackend
from dpa.tolerance import ErrorCount, Letter, Letters, Origin, Tolerance

LINES = b'{"k": "a", "n": 1}\nnull\n{"k": "b", "n": "two"}\n{"k": "b", "n": 4}\n{"k": "c"\n{"k": "a", "n": 7}\n'


def job_of(place: Path, content: bytes = LINES, **more: Any) -> dict[str, Any]:
    (place / "in").mkdir(exist_ok=True)
    (place / "in" / "file").write_bytes(content)
    os.utime(place / "in" / "file", (100, 100))
    return {
        "input": {"format": "json", "path": str(place / "in"), "watch": {"columns": {"k": "string", "n": "int64"}}},
        "key": "k",
        "reducer": {"use": "sum", "args": {"column": "n"}},
        "output": {"path": str(place / "out"), "mode": "overwrite"},
        **more,
    }


def run(document: dict[str, Any]) -> Any:
    return Job(file=parse(document)).run(backend=LocalBackend())


def sums(place: Path) -> dict[str, Any]:
    table = pq.read_table(place / "out")
    return dict(zip(*table.to_pydict().values(), strict=True))


def invoked(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments])
    if result.exception is not None:
        raise result.exception
    return result.output


def test_a_line_that_cannot_be_read_fails_the_job_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(DpaError, match=r"in/file, line 2: cannot be read as json: it is no object"):
        run(job_of(tmp_path))


def test_lines_become_dead_letters_and_are_replayed_by_columns_that_are_mended(tmp_path: Path) -> None:
    kept = {"on_error": "dead_letter", "dead_letters": {"path": str(tmp_path / "dead"), "mode": "overwrite"}}
    result = run(job_of(tmp_path, **kept))
    assert sums(tmp_path) == {"a": 8, "b": 4}
    assert result.report.records.processed + result.report.records.dead == result.report.records.emitted
    [count] = result.report.errors
    assert (count.step, count.error, count.records, count.kept) == ("mapper", "UnreadableRecord", 3, True)
    letters = FoundLetters.read(str(tmp_path / "dead")).letters
    assert [(letter.record, letter.split, letter.offset, letter.rows) for letter in letters] == [
        ("null", 0, 1, 1),
        ('{"k": "b", "n": "two"}', 0, 2, 1),
        ('{"k": "c"', 0, 4, 1),
    ]
    assert {letter.file for letter in letters} == {str(tmp_path / "in" / "file")}
    assert "in/file, byte 24: cannot be read as json" in letters[1].message
    assert re.search(r"mapper +UnreadableRecord +3 ", invoked(str(tmp_path / "dead"), "list"))
    shown = invoked(str(tmp_path / "dead"), "show", "--limit", "1")
    assert "null" in shown and "it is no object of JSON" in shown
    text = {**job_of(tmp_path, **kept), "reducer": "count"}
    text["input"]["watch"]["columns"]["n"] = "string"
    run(job_of(tmp_path, **kept) | {"reducer": "count"})
    (tmp_path / "mended.yaml").write_text(yaml.safe_dump(text))
    said = invoked(str(tmp_path / "dead"), "replay", str(tmp_path / "mended.yaml"))
    assert "3 records replayed" in said and "2 dead letters left" in said
    assert sums(tmp_path) == {"a": 2, "b": 2}
    assert [letter.record for letter in FoundLetters.read(str(tmp_path / "dead")).letters] == ["null", '{"k": "c"']


def test_lines_that_are_skipped_are_counted_and_bounded(tmp_path: Path) -> None:
    result = run(job_of(tmp_path, on_error="skip"))
    assert sums(tmp_path) == {"a": 8, "b": 4}
    [count] = result.report.errors
    assert (count.records, count.kept) == (3, False)
    with pytest.raises(DpaError, match=r"3 records were left out, and `max_errors` allows 2: 3 in mapper: .*byte 19"):
        run(job_of(tmp_path, on_error="skip", max_errors=2))


def test_letters_come_with_the_step_that_passes_them_and_once(tmp_path: Path) -> None:
    """A split is given back in the middle, and read on from there: what lies behind is noted by whoever reads it."""
    job_of(tmp_path, b"1\n{}\n2\n3\n{}\n{}\n4\n5\n")
    columns = pa.schema([("k", pa.string())])
    feed = WatchedFiles(str(tmp_path / "in"), LineFormat("json", tolerates=True), columns)
    [split] = feed.poll(100).splits
    rest, noted = NumberedSplit(split, 7), list[tuple[str, int | None]]()
    for step_rows, steps in ((1, 1), (1, 1), (5, 9)):
        letters = Letters()
        reading = Tolerance("input", letters)
        edge = map_task(None, Count(), key="k", values=None)
        code = UserCode(Emission((edge,), letters=letters, reading=reading), 0, lambda: 0.0)
        code.carry_out(OpenSplit(cast(Any, rest)))
        read = 0
        for _ in range(steps):
            done = code.carry_out(NextStep(step_rows))
            assert isinstance(done, StepDone)
            if done.failed is not None:
                noted += [(letter.record, letter.offset) for letter in done.failed.letters]
            if done.step is None:
                break
            read += done.step.read
        code.carry_out(CloseSplit())
        rest = rest.after(read)
    assert noted == [("1", 0), ("2", 2), ("3", 3), ("4", 6), ("5", 7)] and rest.rows == 0


def test_offsets_of_letters_count_the_lines_that_give_no_row() -> None:
    letters = Letters(reads=(0, "file", 10), before=lambda row: row // 2)
    letter = Letter("s", "", "", None, "", "E", "", "", None)
    letters.add(ErrorCount("s", "E", True, 1, ""), letter, Origin(5, 1))
    failed = letters.take()
    assert failed is not None and failed.letters[0].offset == 10 + 5 + 2


def test_records_of_kafka_become_dead_letters_and_are_replayed_with_their_keys(kafka: str, tmp_path: Path) -> None:
    topic = f"t{uuid4().hex}"
    make_topic(kafka, topic, 1)
    produce(kafka, topic, [b'{"n": 1}', b'{"n": 2} {"n": 3}', b"", b'{"n": "4"}', None, b'{"n": 5}'], key=b"k")
    section = {"servers": kafka, "topic": topic, "key": "string", "value": "json", "columns": {"n": "int64"}}
    document = {
        "input": {"format": "kafka", "kafka": section},
        **{"key": "key", "reducer": "count", "output": {"path": str(tmp_path / "out")}},
    }
    with pytest.raises(DpaError, match=rf"partition 0 of the topic {topic}, offset 1: cannot be read as declared"):
        run(document)
    kept = {"on_error": "dead_letter", "dead_letters": str(tmp_path / "dead")}
    run({**document, **kept})
    assert sums(tmp_path) == {"k": 3}
    letters = FoundLetters.read(str(tmp_path / "dead")).letters
    assert [letter.offset for letter in letters] == [1, 2, 3]
    section["columns"] = {"n": "string"}
    (tmp_path / "mended.yaml").write_text(yaml.safe_dump({**document, **kept}))
    assert "2 dead letters left" in invoked(str(tmp_path / "dead"), "replay", str(tmp_path / "mended.yaml"))
    assert sums(tmp_path) == {"k": 4}


def test_what_has_no_records_to_leave_out_is_refused() -> None:
    stages = {"in": {"read": {"format": "parquet", "path": "x"}, "on_error": "skip"}}
    with pytest.raises(ConfigError, match="of topics of Kafka, and of lines that are watched, alone"):
        parse({"stages": stages})
    watched = {"format": "csv", "path": "x", "watch": {}, "options": {"sep": ";;"}}
    with pytest.raises(ConfigError, match="`sep` of watched CSV is one character of ASCII"):
        parse({"input": watched, "reducer": "count"})
