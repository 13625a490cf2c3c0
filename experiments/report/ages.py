"""How old results are, from git: the commits since the one that was measured, and the lines of the measured code that
have changed.

A result measures the code that its finding names (`measures`), and its experiment's own. Lines that are added and lines
that are removed count alike; a file that was moved counts by its changes.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import TypeAdapter

from experiments.report.findings import Finding, Findings
from experiments.report.results import Result

ROOT = Path(__file__).parents[2]
AGES = Path(__file__).with_name("ages.json")

MAX_CHANGED = 0.3
"""The most lines of the code that a result measures, as a share of all, that may have changed since its commit."""

_NO_CODE = (":(exclude)experiments/results", ":(exclude)docs", ":(exclude)*.md", ":(exclude)experiments/report")


class HistoryError(Exception):
    """git knows nothing of the commit that was measured."""


@dataclass(frozen=True)
class Age:
    """How old a result is.

    Attributes:
        date: of the commit that was measured, as `2026-01-31`.
        commits: commits since then that change more than results and documents.
        changed: lines of the measured code that were added or removed since then.
        lines: lines of the measured code.
    """

    date: str
    commits: int
    changed: int
    lines: int

    @property
    def share(self) -> float:
        """Changed lines by all."""
        return self.changed / max(1, self.lines)

    @property
    def is_stale(self) -> bool:
        """Whether more has changed than agreed."""
        return self.share > MAX_CHANGED


@dataclass(frozen=True)
class Ages:
    """The ages of all results, by name, as they were when the page was made: at `commit`. None: the commit that was
    measured is not in the history."""

    commit: str
    results: Mapping[str, Age | None]


class History:
    """A repository whose working tree is compared with the commits that were measured."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._changes = lru_cache(maxsize=None)(self._changes_since)
        self._about = lru_cache(maxsize=None)(self._about_commit)

    @property
    def is_whole(self) -> bool:
        """Whether there is a repository with all its commits."""
        try:
            return self._git("rev-parse", "--is-shallow-repository").strip() == "false"
        except HistoryError:
            return False

    @property
    def commit(self) -> str:
        """The commit that is checked out."""
        return self._git("rev-parse", "HEAD").strip()

    @property
    def has_changes(self) -> bool:
        """Whether the working tree differs from the commit in more than results, as their stamps have it."""
        return bool(self._git("status", "--porcelain", "--", ":/", ":(top,exclude)experiments/results"))

    def age(self, commit: str, paths: Iterable[str]) -> Age:
        """The age of a result.

        Args:
            commit: the commit that was measured.
            paths: files and directories of the code that it measures.

        Raises:
            HistoryError: there is no such commit.
        """
        below = tuple(paths)
        changed = sum(lines for file, lines in self._changes(commit) if _lies_in(file, below))
        lines = sum(_count_lines(self._root / file) for file in self._git("ls-files", "--", *below).splitlines())
        return Age(*self._about(commit), changed, lines)

    def _about_commit(self, commit: str) -> tuple[str, int]:
        """Its date, and the commits since then that change more than results and documents."""
        commits = self._git("rev-list", "--count", f"{commit}..HEAD", "--", ".", *_NO_CODE)
        return self._git("log", "-1", "--format=%cs", commit).strip(), int(commits)

    def _changes_since(self, commit: str) -> list[tuple[str, int]]:
        """Of each file that differs, the lines that were added and removed."""
        fields = iter(self._git("diff", "--numstat", "-M", "-z", commit, "--", ".", *_NO_CODE).split("\0"))
        found = []
        for field in fields:
            if not field:
                continue
            added, removed, file = field.split("\t")
            if not file:  # moved: the old and the new path follow
                _, file = next(fields), next(fields)
            found.append((file, 0 if added == "-" else int(added) + int(removed)))
        return found

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=self._root, capture_output=True, text=True, check=False)
        if done.returncode:
            raise HistoryError(f"git {arguments[0]}: {done.stderr.strip()}")
        return done.stdout


def measured_code(finding: Finding, findings: Findings, command: str) -> tuple[str, ...]:
    """The files and directories whose code a result measures, that of its experiment among them.

    Args:
        finding: what names the code.
        findings: where parts of the code have names.
        command: what makes the result, such as `python -m experiments.cg --figure 4`.
    """
    module = command.split()[2].replace(".", "/")
    own = f"{module}.py" if (ROOT / f"{module}.py").exists() else module
    return (own, *(path for name in finding.measures for path in findings.code.get(name, (name,))))


def ages_of(results: Mapping[str, Result], findings: Findings, history: History) -> dict[str, Age | None]:
    """The age of each result, by name; None: the commit that was measured is not in the history."""
    found: dict[str, Age | None] = {}
    for finding in findings.all:
        stamp = results[finding.result].stamp
        try:
            found[finding.result] = history.age(stamp["commit"], measured_code(finding, findings, stamp["command"]))
        except HistoryError:
            found[finding.result] = None
    return found


def load_ages() -> Ages:
    """The ages that the page shows."""
    return TypeAdapter(Ages).validate_json(AGES.read_text(encoding="utf-8"))


def save_ages(ages: Ages) -> None:
    """Keep the ages that the page shows: they would change with every commit."""
    AGES.write_text(json.dumps(asdict(ages), indent=1) + "\n", encoding="utf-8")


def _lies_in(file: str, paths: Iterable[str]) -> bool:
    return any(file == path or file.startswith(f"{path}/") for path in paths)


def _count_lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0
