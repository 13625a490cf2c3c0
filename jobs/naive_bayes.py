"""Naive Bayes, the running example of consistent grouping: count how often a feature and a class come together.

The stream job counts (feature, class) pairs; `python -m jobs.naive_bayes RESULT` makes the classifier of the counts.
The
classes are what the standard library's source lines are: import, definition, comment or other code. The features are a
line's words but for the first, which would give the class away.
"""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pyarrow.dataset as ds

from dpa.executors import Record

PRIOR = "*"
"""The feature that every line has: its counts are how often each class comes."""

SEPARATOR = "\t"
_HELD_OUT = 10
"""Every so many-th line is kept for testing, by a hash-free rule: its length."""


def features(line: str) -> tuple[str, list[str]] | None:
    """The class of a source line and its features, or None for a line that has none."""
    words = line.split()
    if len(words) < 2:
        return None
    first = words[0]
    if first in ("import", "from"):
        label = "import"
    elif first in ("def", "class", "async"):
        label = "definition"
    else:
        label = "comment" if first.startswith("#") else "code"
    return label, sorted(set(words[1:]))


def held_out(line: str) -> bool:
    """Whether a line is for testing and not for training."""
    return len(line) % _HELD_OUT == 0


def pairs(record: Record) -> Iterator[tuple[str, int]]:
    """Each feature of the line in the column `value` with its class, and the class itself."""
    line = record["value"]
    found = features(line)
    if found is None or held_out(line):
        return
    label, words = found
    yield f"{PRIOR}{SEPARATOR}{label}", 1
    for word in words:
        yield f"{word}{SEPARATOR}{label}", 1


@dataclass
class Classifier:
    """A multinomial naive Bayes classifier with add-one smoothing."""

    priors: Counter[str] = field(default_factory=Counter)
    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    @classmethod
    def of_counts(cls, pairs: dict[str, int]) -> Classifier:
        """Make the classifier of the job's result: `feature<TAB>class` and how often it came."""
        made = cls()
        for pair, number in pairs.items():
            feature, _, label = pair.rpartition(SEPARATOR)
            if feature == PRIOR:
                made.priors[label] += number
            else:
                made.counts[label][feature] += number
        return made

    def classify(self, words: list[str]) -> str:
        """The most likely class of a line with these features."""

        def score(label: str) -> float:
            counts, total = self.counts[label], self._totals[label]
            return math.log(self.priors[label]) + sum(math.log((counts[word] + 1) / total) for word in words)

        return max(sorted(self.priors), key=score)

    @cached_property
    def _totals(self) -> dict[str, int]:
        """The denominator of each class: all its counts, and one for each feature there is."""
        vocabulary = len(set().union(*self.counts.values()))
        return {label: counts.total() + vocabulary for label, counts in self.counts.items()}


def main(result: str, sources: str) -> None:
    """Print how well the classifier does on the lines that were kept out of training."""
    if not Path(result).is_dir():
        sys.exit(f"there is no result in {result}: run `python -m dpa.run configs/naive_bayes.yaml` first")
    table = ds.dataset(result).to_table()
    classifier = Classifier.of_counts(dict(zip(table["pair"].to_pylist(), table["value"].to_pylist(), strict=True)))
    right: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for path in sorted(Path(sources).glob("*.py")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            found = features(line)
            if found is None or not held_out(line):
                continue
            label, words = found
            seen[label] += 1
            right[label] += classifier.classify(words) == label
    for label, number in sorted(seen.items()):
        print(f"{label:<12}{right[label] / number:7.1%} of {number:,} lines right")
    most = max(seen.values()) / seen.total()
    print(
        f"{'all':<12}{right.total() / seen.total():7.1%} of {seen.total():,} lines right",
        f"(always the same class: {most:.1%})",
    )


if __name__ == "__main__":
    import sysconfig

    main(sys.argv[1] if len(sys.argv) > 1 else "out/naive_bayes", sysconfig.get_paths()["stdlib"])
