"""The committed result files, read and checked: what was reached of each target, and where it was measured."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.harness import RESULTS, Target


@dataclass(frozen=True)
class Result:
    """One result file; `stamp` says where it comes from, as `experiments.harness` writes it."""

    name: str
    stamp: dict[str, Any]
    targets: tuple[Target, ...]
    has_picture: bool

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
        results[file.stem] = Result(file.stem, document["stamp"], targets, file.with_suffix(".png").exists())
    return results
