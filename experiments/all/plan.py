"""What is to be measured, and why the rest is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from experiments.report.ages import Age, History, ages_of
from experiments.report.findings import load_findings
from experiments.report.results import load_results


@dataclass(frozen=True)
class Measurement:
    """A result file that a command makes again.

    Attributes:
        name: of the result file.
        command: what measures it.
        seconds: how long that took.
        age: how old the result is; None if its commit is unknown here.
        is_dirty: whether it was measured with changes that no commit has.
        left_out: why it is not measured again, or nothing.
    """

    name: str
    command: str
    seconds: float
    age: Age | None
    is_dirty: bool = False
    left_out: str = ""

    @property
    def is_chosen(self) -> bool:
        """Whether it is to be measured."""
        return not self.left_out

    @property
    def changed(self) -> float:
        """The share of the measured code that has changed since; all of it where that is unknown."""
        return 1.0 if self.age is None or self.is_dirty else self.age.share


def measurements(history: History) -> list[Measurement]:
    """All results, in the order of their page: what evaluates others' results comes behind them."""
    results, findings = load_results(), load_findings()
    ages = ages_of(results, findings, history)
    stamps = {name: results[name].stamp for name in ages}
    commands = {finding.result: finding.command for finding in findings.all}
    return [
        Measurement(name, commands[name] or stamp["command"], stamp["seconds"], ages[name], stamp["dirty"])
        for name, stamp in stamps.items()
    ]


def selected(
    found: Sequence[Measurement], names: Sequence[str], max_changed: float = 0.0, *, again: bool = False
) -> list[Measurement]:
    """The measurements with those left out that are not asked for or that are fresh enough.

    Args:
        found: all of them.
        names: those to measure; none for all.
        max_changed: the share of the measured code that may have changed.
        again: leave out nothing that is asked for.

    Raises:
        SystemExit: there is no such result.
    """
    known = [each.name for each in found]
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"there is no result {', '.join(unknown)}; there are {', '.join(known)}")

    def why_not(each: Measurement) -> str:
        if names and each.name not in names:
            return "not asked for"
        if again or each.changed > max_changed:
            return ""
        return "fresh enough" if each.changed else "its code is the same"

    return [replace(each, left_out=why_not(each)) for each in found]
