"""What is shown of a result while Spark still computes its reference, and after that."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dpa import Flow
from dpa.driver.reference import Reference
from dpa.errors import ReferenceMismatchError
from dpa.run import app
from dpa.testing import LocalBackend

JOB = """
name: early
input: {format: records, records: [{word: a}, {word: b}, {word: a}]}
key: word
reducer: count
output: {path: out}
reference: {function: "early_reference:counts", baseline: false}
"""
COUNTS = pa.table({"word": ["a", "b"], "count": [2, 1]})


@pytest.fixture
def computes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What Spark, which is not started, does in turn when it computes a reference."""
    turns: list[Any] = []
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(JOB, encoding="utf-8")
    Path("early_reference.py").write_text("def counts(frame):\n    return frame\n", encoding="utf-8")
    monkeypatch.setattr("dpa.job.runs_here", lambda spec: True)
    monkeypatch.setattr(Reference, "_computed", lambda *given: turns.pop()())
    return turns


def ran(*options: str) -> int:
    with pytest.raises(SystemExit) as ended:
        app(["job.yaml", "--progress", "none", *options])
    return int(str(ended.value.code))


@pytest.mark.parametrize("status", [0, 3])
def test_a_result_is_shown_before_its_reference_is_there(
    computes: list[Any], capsys: pytest.CaptureFixture[str], status: int
) -> None:
    seen: list[str] = []

    def computed() -> pa.Table:
        seen.extend(capsys.readouterr())
        assert not Path("out").exists(), "nothing is published before the reference is there"
        return COUNTS if status == 0 else COUNTS.slice(1)

    computes.append(computed)
    assert ran() == status
    shown, said = seen
    assert (
        re.match(r"early: ran in .*, not checked by Spark yet", shown)
        and "2 rows, not published yet" in shown
        and "reference:" not in shown
    )
    assert "Spark still computes the reference" in said
    then = capsys.readouterr().out
    assert then.startswith("early: ok in " if status == 0 else "early: mismatch in ")
    verdict = "reference: match" if status == 0 else "reference: MISMATCH"
    assert then.splitlines().count(verdict) == 1 and "not published" not in then and "rate" not in then
    assert len(list(Path("out").glob("*.parquet"))) > 0


def test_json_is_the_report_alone(computes: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    computes.append(lambda: COUNTS)
    assert ran("--json") == 0
    assert capsys.readouterr().out.startswith("{")


def test_an_interrupt_says_that_the_result_shown_was_not_published(
    computes: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> pa.Table:
        raise KeyboardInterrupt

    computes.append(interrupted)
    assert ran() == 130
    assert "the result above was not published: Spark had not yet" in capsys.readouterr().err
    assert not Path("out").exists()


@pytest.mark.parametrize("seconds, is_said", [(0.1 + 0.2, True), (0.3000001, False), (0.30000000015, False)])
def test_differences_that_are_rounding_are_said_to_be_that(computes: list[Any], seconds: float, is_said: bool) -> None:
    flow = Flow("sums")
    summed = flow.read([{"word": "a", "seconds": 0.3}]).key_by("word").agg(seconds="sum(seconds)")
    summed.reference(function="early_reference:counts", baseline=False)
    computes.append(lambda: pa.table({"word": ["a"], "seconds": [seconds]}))
    with pytest.raises(ReferenceMismatchError) as refused:
        flow.run(backend=LocalBackend())
    assert str(refused.value).endswith("rounding; to allow it, give the reference `tolerance: 1e-09`") is is_said
