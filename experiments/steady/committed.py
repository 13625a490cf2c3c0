"""The committed result, of which a part can be measured anew while the others stay: all parts together take an hour."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.harness import stamp
from experiments.steady.outcome import Outcome, Outcomes


@dataclass(frozen=True)
class Measured:
    """Runs, and for each part of them where they are from: `commit`, whether it was `dirty`, and `configuration`."""

    found: Outcomes
    origins: Mapping[str, Mapping[str, Any]]

    @classmethod
    def now(cls, found: Outcomes, configuration: Mapping[str, Any]) -> Measured:
        """Runs that were made at the present commit."""
        return cls(found, dict.fromkeys(found.parts, _origin(stamp("", dict(configuration), 0.0))))

    @classmethod
    def read(cls, path: Path) -> Measured:
        """What a result file has."""
        document = json.loads(path.read_text(encoding="utf-8"))
        runs = [
            replace(run, redistributions=tuple(run.redistributions), reasons=tuple(run.reasons))
            for run in (Outcome(**run) for run in document["data"]["runs"])
        ]
        found = Outcomes(tuple(runs))
        origins = document["data"].get("origins")
        return cls(found, origins or dict.fromkeys(found.parts, _origin(document["stamp"])))

    def updated(self, newer: Measured, order: Iterable[str]) -> Measured:
        """With the newer runs in place of those of their parts; parts in the given order."""
        both = {**dict.fromkeys(self.found.parts, self), **dict.fromkeys(newer.found.parts, newer)}
        parts = [part for part in order if part in both]
        runs = [run for part in parts for run in both[part].found.of(part).runs]
        return Measured(Outcomes(tuple(runs)), {part: both[part].origins[part] for part in parts})

    @property
    def text(self) -> str:
        """The origins, in words."""
        said: dict[str, list[str]] = {}
        for part, origin in self.origins.items():
            changed = " (with changes)" if origin["dirty"] else ""
            said.setdefault(f"commit {origin['commit'][:12]}{changed}, --repeats {origin['repeats']}", []).append(part)
        return "Measured at " + "; ".join(f"{where}: {' and '.join(parts)}" for where, parts in said.items()) + "."


def _origin(made: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a stamp."""
    asked = {key: made["configuration"][key] for key in ("repeats", "peers", "seed")}
    return {"commit": made["commit"], "dirty": made["dirty"], **asked}
