"""The tables that the command prints: what it would do, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.all.plan import Measurement
from experiments.harness import markdown_table


def listed(measurements: Sequence[Measurement]) -> str:
    """The age of each result, and whether it would be measured."""
    rows = [(each.name, *_age(each), f"{each.seconds:.0f} s", each.left_out or "**yes**") for each in measurements]
    chosen = [each.seconds for each in measurements if each.is_chosen]
    head = ("result", "measured", "commits since", "lines changed", "of the code", "took", "to be measured")
    return f"{markdown_table(head, rows)}\n\n{len(chosen)} to be measured, {sum(chosen) / 60:.0f} min by earlier times"


def summed_up(measurements: Sequence[Measurement], ends: Mapping[str, str]) -> str:
    """How each ended."""
    rows = [(each.name, ends.get(each.name) or each.left_out or "not begun", each.command) for each in measurements]
    return markdown_table(("result", "", "again"), rows)


def _age(measurement: Measurement) -> tuple[str, str, str, str]:
    age = measurement.age
    if age is None:
        return ("unknown", "", "", "")
    return (age.date, f"{age.commits:,}", f"{age.changed:,}", f"{age.share:.0%}")
