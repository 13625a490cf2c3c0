"""The results page and the README's table as Markdown: the findings' sentences, and figures from result files alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from experiments.harness import Target, markdown_table
from experiments.report.ages import MAX_CHANGED, Age, Ages
from experiments.report.findings import Finding, Findings
from experiments.report.results import Result

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results.md"
README = ROOT / "README.md"

COMMAND = "python -m experiments.report"
MISSED = "**missed**"

_BEGIN, _END = f"<!-- made by {COMMAND} -->", "<!-- end -->"


def render_page(results: Mapping[str, Result], findings: Findings, ages: Ages) -> str:
    """The page `docs/results.md`; it shows the ages that are given, as those of now change with every commit.

    Raises:
        ValueError: a result file has no finding, or a finding no longer fits its result file.
    """
    found = findings.all
    if left := results.keys() - {finding.result for finding in found}:
        raise ValueError(
            f"result files without a finding: {sorted(left)}; add them to experiments/report/findings.yaml"
        )
    parts = [
        "# Results",
        f"`{COMMAND}` makes this page from the files in [experiments/results](../experiments/results). The "
        "*table* of a result has every figure and target, the seed and machine, and the command that repeats it; its "
        "*data* have the configuration too. Compare times only within one run.",
        f"The share of the measured code that has changed since is as of commit {ages.commit[:12]}. Above "
        f"{MAX_CHANGED:.0%} a result is repeated, or says why not yet. "
        "`python -m experiments.all --list` shows the shares of today; without `--list` it measures again.",
        f"{_counted(results.values())} The targets that are missed:",
        _all_missed(results, found),
    ]
    for question in findings.questions:
        parts += [f"## {question.title}", *([question.about] if question.about else [])]
        parts += [_section(finding, results[finding.result], ages) for finding in question.findings]
    return "\n\n".join(parts) + "\n"


def render_table(results: Mapping[str, Result], findings: Findings) -> str:
    """The README's table: a figure of dpa's, the peer's, and what was wanted of their ratio, *met* or *missed*."""
    cells = []
    for row in findings.summary:
        result = results[row.result]
        target = result.target(row.target)
        ours, theirs = (_figure(result.figure(path), row.unit) for path in (row.ours, row.theirs))
        cells.append(
            (row.measured, ours, f"{row.peer}: {theirs}", target.reached, f"{target.wanted}: {_verdict(target)}")
        )
    return markdown_table(("2 cores", "dpa", "the other", "ratio", "target"), cells)


def _figure(value: float, unit: str) -> str:
    return f"{value / 1e6:.3g} M/s" if unit == "M/s" else f"{value:.3g} {unit}"


def with_table(readme: str, results: Mapping[str, Result], findings: Findings) -> str:
    """The README's text with its table renewed.

    Raises:
        ValueError: the text does not have the two comments between which the table lies, or more than once.
    """
    before, begin, rest = readme.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end or _BEGIN in after:
        raise ValueError(f"the README must have {_BEGIN!r} and, below it, {_END!r} exactly once")
    return f"{before}{_BEGIN}\n{render_table(results, findings)}\n\n{_counted(results.values())}\n{_END}{after}"


def _counted(results: Iterable[Result]) -> str:
    targets = [target for result in results for target in result.targets]
    met = sum(target.met for target in targets)
    return f"Of the {len(targets)} targets of all experiments {met} are met and {len(targets) - met} are missed."


def _all_missed(results: Mapping[str, Result], findings: Iterable[Finding]) -> str:
    rows = [
        (f"[{finding.result}](#{_anchor(finding.title)})", target.name, target.wanted, target.reached)
        for finding in findings
        for target in results[finding.result].missed
    ]
    return markdown_table(("result", "target", "wanted", "reached"), rows)


def _section(finding: Finding, result: Result, ages: Ages) -> str:
    missed = {target.name for target in result.missed}
    if missed != set(finding.missed):
        raise ValueError(
            f"the conclusion on {result.name} was written for {sorted(finding.missed)} missed, and missed are "
            f"{sorted(missed)}; read it again in experiments/report/findings.yaml"
        )
    files = f"../experiments/results/{result.name}"
    said = [
        f"{finding.measured} *{finding.concluded}*",
        _targets_met(result),
        f"[Table]({files}.md), [data]({files}.json).",
        _origin(result, ages.results[result.name]),
        f"**Not measured again yet:** {finding.stale}" if finding.stale else "",
    ]
    picture = f"\n![{finding.title}]({files}.png)" if result.has_picture else ""
    return f"### {finding.title}\n\n{' '.join(filter(None, said))}{picture}"


def _targets_met(result: Result) -> str:
    if not result.targets:
        return ""
    met = len(result.targets) - len(result.missed)
    if not result.missed:
        return f"All {met} targets are met." if met > 1 else "The target is met."
    return f"**{len(result.missed)} of {len(result.targets)} targets missed.**"


def _origin(result: Result, age: Age | None) -> str:
    commit = f"Commit {result.stamp['commit'][:12]}"
    if age is None:
        return f"{commit}, which is not in this history."
    since = f"since then {age.commits} commits have changed {age.share:.0%} of the measured code"
    return f"{commit} of {age.date}; {since if age.commits else 'the measured code has not changed since'}."


def _verdict(target: Target) -> str:
    return "met" if target.met else MISSED


def _anchor(heading: str) -> str:
    """What Markdown makes of a heading for links."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
