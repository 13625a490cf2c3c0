"""Every public method that users call has a docstring with an example, and the examples are true."""

import doctest
import inspect
import pydoc
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import dpa
from dpa import aggregates
from dpa._looks import Looks
from dpa.flow import Flow, KeyedRows, Stream
from dpa.job import Job, Runnable
from dpa.testing import LocalBackend

CLASSES = (Flow, Stream, KeyedRows, Looks, Job, Runnable)
OF = {Looks: Stream, Runnable: Job}


class Running(dpa.Process[int, Any]):
    def zero(self) -> int:
        return 0

    def process(self, key: Any, state: int, value: Any) -> tuple[int, Iterable[dict[str, Any]]]:
        return state + 1, [{"item": key}]


NAMES = {
    **{name: getattr(dpa, name) for name in dpa.__all__},
    "KeyedRows": KeyedRows,
    **{"dpa": dpa, "pl": pl, "Running": Running, "Count": aggregates.Count, "Sum": aggregates.Sum},
}


def examples() -> Iterator[Any]:
    for kind in CLASSES:
        for name, member in vars(kind).items():
            if not name.startswith("_") and (callable(member) or isinstance(member, classmethod)):
                yield pytest.param(kind, name, id=f"{kind.__name__}.{name}")


@pytest.mark.parametrize(("kind", "name"), [*examples()])
def test_the_example_runs_of(
    kind: type, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dpa.job.RayBackend", lambda *options: LocalBackend())
    text, before = inspect.getdoc(getattr(kind, name)) or "", inspect.getdoc(OF.get(kind, kind)) or ""
    called = re.findall(rf"`(\w+\.(?:[^`]*\.)?{name}\b[^`]*)`", text)
    assert called or ">>>" in text, "it has no example"
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    names = dict(NAMES)
    for part in (before, text):
        made = parser.get_doctest(part, names, f"{kind.__name__}.{name}", None, 0)
        runner.run(made, clear_globs=False)
        names = made.globs
    assert runner.summarize(verbose=False).failed == 0, capsys.readouterr().out
    for example in called:
        found = eval(" ".join(example.split()), names)
        if isinstance(found, Stream):
            assert found.head().num_rows > 0, f"{example} gives no rows"


def test_help_shows_what_a_call_takes() -> None:
    assert [*inspect.signature(Stream.filter).parameters] == ["self", "condition", "more", "name", "options"]
    assert [*inspect.signature(Job.from_file).parameters] == ["path", "overrides"]
    assert "orders.filter" in pydoc.render_doc(Stream.filter)
