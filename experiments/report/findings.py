"""The sentences of the results page, which `findings.yaml` holds: what each result file answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import yaml
from pydantic import TypeAdapter


@dataclass(frozen=True)
class Finding:
    """What one result file says.

    Attributes:
        result: the name of the result file.
        title: the heading.
        measured: one sentence on what was measured.
        concluded: one sentence on what follows from it.
        measures: the code that was measured, beside the experiment's own: names in `Findings.code`, or paths.
        missed: the names of the targets that `concluded` takes for missed.
        stale: why it has not been measured again although more of that code has changed than agreed.
        command: what measures it from now on, if that is another than the one that did.
    """

    result: str
    title: str
    measured: str
    concluded: str
    measures: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    stale: str = ""
    command: str = ""


@dataclass(frozen=True)
class Question:
    """A heading of the page with the findings that answer it; `about` explains what they have in common."""

    title: str
    findings: tuple[Finding, ...]
    about: str = ""


@dataclass(frozen=True)
class Row:
    """A row of the README's table: a target of a result file beside the figures that it compares.

    Attributes:
        measured: what was measured, in a user's words.
        result, target: the name of the result file, and of its target.
        peer: what dpa is compared with.
        ours, theirs: where both figures are in the result file (`Result.figure`).
        unit: `s`, or `M/s` for figures in records a second.
    """

    measured: str
    result: str
    target: str
    peer: str
    ours: str
    theirs: str
    unit: str = "s"


@dataclass(frozen=True)
class Findings:
    """All that is written by hand; `code` names parts of the code, each with its files and directories."""

    summary: tuple[Row, ...]
    questions: tuple[Question, ...]
    code: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def all(self) -> tuple[Finding, ...]:
        """The findings, in the order of the page."""
        return tuple(finding for question in self.questions for finding in question.findings)


def load_findings() -> Findings:
    """The sentences of `findings.yaml`.

    Raises:
        pydantic.ValidationError: the file lacks a key, or a value is not text.
    """
    text = Path(__file__).with_name("findings.yaml").read_text(encoding="utf-8")
    return TypeAdapter(Findings).validate_python(yaml.safe_load(text))
