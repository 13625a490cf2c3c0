"""The driver of one run, a process of its own that can be killed. It says on its standard output, a word a line, what
the job is at."""

from __future__ import annotations

import json
import sys
from typing import Any

from dpa import Flow
from dpa.errors import DpaError
from dpa.telemetry.observers import Observer
from experiments.chaos.jobs import TOPOLOGIES

RECOVERY = "recovery"
"""What a job is at from a death until records flow again."""


class Says(Observer):
    """Says what the job is at."""

    def __init__(self) -> None:
        self._recovers = False

    def phase(self, name: str, detail: str = "") -> None:
        """A phase begins; tasks that start again are a part of a recovery."""
        print(RECOVERY if self._recovers and name == "startup" else name, flush=True)

    def warn(self, message: str) -> None:
        """Something died, or records flow again."""
        print(f"# {message}", file=sys.stderr, flush=True)
        if message.startswith("records flow again"):
            print("stream", flush=True)
        elif "generation" in message and "begins" in message:
            self._recovers = True
            print(RECOVERY, flush=True)


def run(given: dict[str, Any], *, resume: bool) -> None:
    """Run the job of a specification, or go on with it behind its checkpoints."""
    topology = TOPOLOGIES[given["topology"]]
    flow = Flow(given["name"], **given["sections"])
    topology.steps(flow, given["file"], given["write"], given["consistency"])
    path = given["sections"]["checkpoint"]["path"] if resume else None
    flow.run(Says(), address=given["address"], resume=path)


def main() -> None:
    """`python -m experiments.chaos.driver SPECIFICATION [resume]`, a text of JSON."""
    given, *rest = sys.argv[1:]
    try:
        run(json.loads(given), resume=bool(rest))
    except DpaError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
