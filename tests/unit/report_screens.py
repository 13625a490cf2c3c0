"""The README's pictures of a terminal: `python tests/unit/report_screens.py` draws them from a recorded run.

With `--run` the job runs again first, on Ray and with Spark, and is recorded. A recording is plain data: the report,
and of the stream its first snapshot and one of its middle.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from progress_samples import Clock, Terminal, show
from pydantic import TypeAdapter
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

import dpa.report
from dpa.protocol.wire.metrics import Snapshot
from dpa.report._files import jsonable
from dpa.report._panel import Panel, RichProgress
from dpa.result import Report
from dpa.telemetry.observers import Unobserved
from dpa.telemetry.tracker import TrackedSnapshot

ROOT = Path(__file__).parents[2]
JOB = "configs/first_letter.yaml"
RECORDING = Path(__file__).with_suffix(".json")
COLUMNS, LINES = 100, 40
_FONT = "DejaVu Sans Mono, Menlo, Consolas, monospace"


def screens() -> dict[Path, str]:
    """The pictures that belong in docs, as SVG by path, drawn from the recording."""
    found = json.loads(RECORDING.read_text(encoding="utf-8"))
    return {
        ROOT / "docs" / "run-live.svg": _picture(_live(found["live"]), "run-live"),
        ROOT / "docs" / "run.svg": _picture(_table(found["report"]), "run"),
    }


def _live(found: dict[str, Any]) -> Console:
    """The panel at the last of the recorded snapshots."""
    console, clock = _console(), Clock()
    progress = RichProgress(None, found["name"], clock, console=console, refresh_thread=False)
    began = clock.now
    for name, detail, at in found["phases"]:
        clock.now = began + at
        progress.phase(name, detail)
    kind = TypeAdapter(list[Snapshot], config={"arbitrary_types_allowed": True})
    snapshots = kind.validate_python(found["snapshots"])
    show(progress, *snapshots)
    clock.now += snapshots[-1].at
    console.print(Panel(progress.state, clock()))
    return console


def _table(found: dict[str, Any]) -> Console:
    """What the command prints at the end, in the colours of a terminal."""
    stream, console = Terminal(), _console()
    known = {name: os.environ.get(name) for name in ("TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR")}
    try:
        for name in known:
            os.environ.pop(name, None)
        os.environ["TERM"] = "xterm-256color"
        dpa.report.show(TypeAdapter(Report).validate_python(found), stream, width=COLUMNS)
    finally:
        for name, value in known.items():
            os.environ.pop(name, None)
            os.environ.update({name: value} if value is not None else {})
    console.print(Text.from_ansi(stream.getvalue()))
    return console


def _console() -> Console:
    return Console(file=Terminal(), record=True, width=COLUMNS, height=LINES, force_terminal=True, color_system="256")


def _picture(console: Console, name: str) -> str:
    """What was printed as SVG, in fonts that readers have: nothing is fetched."""
    plain = re.sub(r"\s*(<!--.*?-->|@font-face \{\{.*?\}\})", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    code = plain.replace("Fira Code, monospace", _FONT)
    drawn = console.export_svg(title=f"python -m dpa.run {JOB}", code_format=code, unique_id=name)
    return "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"


class _Recorder(Unobserved):
    """Keeps the phases with their times, and all snapshots."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.phases: list[tuple[str, str, float]] = []
        self.snapshots: list[TrackedSnapshot] = []

    def phase(self, name: str, detail: str = "") -> None:
        """Note when a phase began."""
        self.phases.append((name, detail, round(time.monotonic() - self._began, 3)))

    def update(self, snapshot: TrackedSnapshot) -> None:
        """Keep a snapshot."""
        self.snapshots.append(snapshot)

    def live(self) -> dict[str, Any]:
        """What the panel showed in the middle of the stream."""
        until = next(place for place, (name, *_) in enumerate(self.phases) if name == "stream")
        middle = next(found for found in self.snapshots if 2 * found.at >= self.snapshots[-1].at)
        kept = [asdict(found) for found in (self.snapshots[0], middle)]
        for found in kept:
            for name in ("mapped_rate", "processed_rate", "news"):
                del found[name]
            for stage, name in product(found["stages"], ("is_source", "counted", "load", "rate", "redistributions")):
                del stage[name]
        return {"name": "first_letter", "phases": self.phases[: until + 1], "snapshots": jsonable(kept)}


def record() -> None:
    """Run the job, and keep what the screens show of it."""
    from dpa.job import Job

    recorder = _Recorder()
    report = Job.from_file(ROOT / JOB).run(recorder, check=False).report
    found = {"live": recorder.live(), "report": jsonable({**report.to_dict(), "config": {}, "versions": {}})}
    RECORDING.write_text(json.dumps(found, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if "--run" in sys.argv[1:]:
        record()
    for path, drawing in screens().items():
        path.write_text(drawing, encoding="utf-8")
        print(f"wrote {path}")
