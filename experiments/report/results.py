"""The committed result files, read and checked: what was reached of each target, and where it was measured."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from experiments.harness import RESULTS, Target


@dataclass(frozen=True)
class Result:
    """One result file; `stamp` says where it comes from, as `experiments.harness` writes it."""

    name: str
    stamp: dict[str, Any]
    targets: tuple[Target, ...]
    has_picture: bool
    data: dict[str, Any] = field(default_factory=dict)

    def figure(self, path: str) -> float:
        """A figure of the data, of several measurements the median: `systems/system=dpa/seconds` is the `seconds` of
        the first entry of the list `systems` whose `system` is `dpa`.

        Raises:
            LookupError: the data has nothing there.
        """
        found: Any = self.data
        for step in path.split("/"):
            wanted = [part.split("=", 1) for part in step.split(";")] if "=" in step else []
            try:
                found = (
                    next(entry for entry in found if all(entry[k] == v for k, v in wanted)) if wanted else found[step]
                )
            except (KeyError, StopIteration):
                raise LookupError(f"{self.name}.json has no {path!r}: nothing is at {step!r}") from None
        return float(median(found) if isinstance(found, list) else found)

    def target(self, name: str) -> Target:
        """The target of that name.

        Raises:
            LookupError: the result file has none.
        """
        for target in self.targets:
            if target.name == name:
                return target
        raise LookupError(f"{self.name}.json has no target {name!r}, only {[target.name for target in self.targets]}")

    @property
    def missed(self) -> list[Target]:
        """The targets that were not reached."""
        return [target for target in self.targets if not target.met]


def load_results(directory: Path = RESULTS) -> dict[str, Result]:
    """All result files of a directory, by name."""
    results = {}
    for file in sorted(directory.glob("*.json")):
        document = json.loads(file.read_text(encoding="utf-8"))
        targets = tuple(Target(**target) for target in document["targets"])
        results[file.stem] = Result(
            file.stem, document["stamp"], targets, file.with_suffix(".png").exists(), document["data"]
        )
    return results
