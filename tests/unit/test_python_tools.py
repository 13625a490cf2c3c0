"""What Python's own tools show of dpa: completion, `dir`, reprs, and tracebacks, which end at the user's line."""

import os
import rlcompleter
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

import dpa
from dpa import Flow, Job
from dpa._secrets import HIDDEN
from dpa.errors import ConfigError, DpaError, ProtocolError, traced_from_caller

ROOT = Path(__file__).parents[2]


def completed(text: str, **names: Any) -> set[str]:
    """What a plain REPL offers after a tab."""
    completer, found = rlcompleter.Completer(names), []
    while (offered := completer.complete(text, len(found))) is not None:
        found.append(offered.rstrip("()"))
    return {*found}


def test_all_names_are_listed() -> None:
    assert {*dpa.__all__} <= {*dir(dpa)}


def test_completion_finds_names_that_are_not_imported_yet() -> None:
    program = "import dpa, rlcompleter; print(*map(rlcompleter.Completer({'dpa': dpa}).complete, ['dpa.Fl'], [0]))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("dpa.Flow")


def test_completion_finds_the_calls_of_a_flow() -> None:
    flow = Flow("shop")
    rows = flow.read([{"a": 1}])
    assert {"flow.read", "flow.run"} <= completed("flow.", flow=flow)
    assert {"rows.map", "rows.key_by", "rows.show"} <= completed("rows.", rows=rows)
    assert {"keyed.reduce", "keyed.agg"} <= completed("keyed.", keyed=rows.key_by("a"))


# --- reprs


def test_a_job_is_shown_by_what_it_does_and_one_that_is_a_graph_by_its_steps() -> None:
    job = Job(name="visits", input="visits.csv", key="page", reducer="count")
    assert repr(job) == "<Job 'visits': read visits.csv, reduce count by page>"
    assert job._repr_html_().count("<rect") == 2
    flow = Flow("shop")
    flow.read([{"a": 1}], name="orders").key_by("a").reduce("count", name="counts")
    assert repr(flow.job()) == "<Job 'shop': orders, counts>"
    assert repr(flow) == "<Flow 'shop': orders, counts>"
    assert flow.job()._repr_html_() == flow._repr_html_()


@pytest.mark.parametrize("path", ["s3://me:hunter22@bucket/a.parquet", "https://store/a.parquet?sig=hunter22"])
def test_no_repr_has_a_secret(path: str) -> None:
    flow = Flow("shop")
    rows = flow.read(path)
    counted = rows.key_by("a").reduce("count")
    shown = [repr(flow), repr(rows), repr(counted), flow._repr_html_(), repr(flow.job()), flow.job()._repr_html_()]
    shown.append(repr(Job(input=path, key="a", reducer="count")))
    assert HIDDEN in repr(rows) and not [text for text in shown if "hunter22" in text]


# --- tracebacks

PROGRAM = """
import sys, traceback
from dpa import Flow, Job, tumbling
from dpa.testing import LocalBackend

def halves(row):
    return {"half": 1 // 0}

def run(what):
    flow = Flow("shop")
    rows = flow.read("missing.csv", in_place=True) if what == "input" else flow.read([{"a": 1}])
    if what == "window":
        rows.window("10s")  # HERE
    if what == "duration":
        tumbling("soon")  # HERE
    if what == "expression":
        rows.select("a +")  # HERE
    if what == "option":
        Job(input="a.csv", key="a", reducer="count", paralelism=2)  # HERE
    if what == "schema":
        rows.map(halves).schema  # HERE
    if what == "look":
        rows.map(halves).head()  # HERE
    if what == "file":
        Job.from_file("missing.yaml")  # HERE
    if what == "user code":
        rows = rows.map(halves)
    rows.key_by("nope" if what == "column" else "a" if what == "input" else "half").reduce("count")
    flow.run(backend=LocalBackend())  # HERE

for what in sys.argv[1:]:
    try:
        run(what)
    except Exception:
        traceback.print_exc()
    print("---", file=sys.stderr)
"""

MESSAGES = {
    "input": "missing.csv: no such file or directory",
    "window": "windows are made as",
    "duration": "not 'soon'",
    "expression": "this is no SQL expression",
    "option": "did you mean 'parallelism'?",
    "schema": "declare them",
    "look": "halves.map failed on record {'a': 1}",
    "file": "cannot read the job file",
    "column": "has no column 'nope'",
    "user code": "halves.map failed on record {'a': 1}",
}


def failed(directory: Path, *whats: str, **environment: str) -> list[list[str]]:
    """What Python prints of each error."""
    (directory / "program.py").write_text(PROGRAM, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, "program.py", *whats]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env, cwd=directory)
    *printed, rest = done.stderr.split("---\n")
    assert rest == "" and len(printed) == len(whats)
    return [each.splitlines() for each in printed]


def test_a_traceback_ends_at_the_line_of_the_user(tmp_path: Path) -> None:
    for (what, expected), lines in zip(MESSAGES.items(), failed(tmp_path, *MESSAGES), strict=True):
        message = next(place for place, line in enumerate(lines) if line.startswith("dpa."))
        frames = [line for line in lines[:message] if line.startswith("  File ")]
        assert [Path(line.split('"')[1]).name for line in frames] == ["program.py", "program.py", "errors.py"], what
        [own] = [line for line in lines[:message] if line.endswith("# HERE")]
        assert lines.index(own) == lines.index(frames[1]) + 1, what
        assert expected in "\n".join(lines[message:])
        assert "During handling" not in "\n".join(lines)


def test_nothing_is_left_out_with_dpa_log(tmp_path: Path) -> None:
    [lines] = failed(tmp_path, "column", DPA_LOG="debug")
    assert any("driver" in line for line in lines if line.startswith("  File "))


class Sample:
    @traced_from_caller
    def fail(self, error: Exception) -> None:
        self._fail(error)

    def _fail(self, error: Exception) -> None:
        raise error


def depth(found: TracebackType | None) -> int:
    return 0 if found is None else 1 + depth(found.tb_next)


@pytest.mark.parametrize(
    ("error", "frames"), [(ConfigError("x"), 2), (ProtocolError("x"), 4), (ZeroDivisionError("x"), 4)]
)
def test_bugs_keep_all_frames(error: Exception, frames: int) -> None:
    with pytest.raises(type(error)) as caught:
        Sample().fail(error)
    assert depth(caught.value.__traceback__) == frames


def test_the_cause_of_an_error_stays() -> None:
    error = DpaError("x")
    error.__cause__ = ValueError("why")
    with pytest.raises(DpaError) as caught:
        Sample().fail(error)
    assert isinstance(caught.value.__cause__, ValueError)
