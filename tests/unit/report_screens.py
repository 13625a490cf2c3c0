"""The README's pictures of a terminal: `python tests/unit/report_screens.py` draws them from a recorded run.

With `--run` the job runs again first, on Ray and with Spark, and is recorded. A recording is plain data: the report,
and some snapshots of the stream, which the moving picture shows at the speed of the run.
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

from progress_samples import Clock, Terminal
from pydantic import TypeAdapter
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

import dpa.report
from dpa.protocol.wire.metrics import Snapshot
from dpa.report._files import jsonable
from dpa.report._panel import Panel, RichProgress
from dpa.result import Report
from dpa.telemetry.observers import Observer
from dpa.telemetry.tracker import RunTracker, TrackedSnapshot

ROOT = Path(__file__).parents[2]
JOB, OVERRIDE = "configs/clicks.yaml", "balance.first_table=ring"
"""The first table is not planned from a sample, so that the picture has an overloaded reducer to begin with."""
RECORDING = Path(__file__).with_suffix(".json")
COLUMNS, LIVE_COLUMNS, LINES = 100, 78, 40
FRAMES, FILM_SECONDS = 14, 6.0
"""At most as many snapshots are kept, of the first seconds of the stream."""
LAST_SECONDS = 2.0
"""For which the moving picture shows the last snapshot, before it begins again."""
_LINE_PIXELS = 24.4
"""The height of a line in the SVG that rich exports."""
_FONT = "DejaVu Sans Mono, Menlo, Consolas, monospace"


def screens() -> dict[Path, str]:
    """The pictures that belong in docs, as SVG by path, drawn from the recording."""
    found = json.loads(RECORDING.read_text(encoding="utf-8"))
    return {
        ROOT / "docs" / "run-live.svg": _moving(found["live"], "run-live"),
        ROOT / "docs" / "run.svg": _picture(_table(found["report"]), "run"),
    }


def _panels(found: dict[str, Any]) -> dict[float, Console]:
    """The panel at each of the recorded snapshots, by the seconds of the stream."""
    clock = Clock()
    progress = RichProgress(None, found["name"], clock, console=_console(LIVE_COLUMNS), refresh_thread=False)
    began = clock.now
    for name, _, at in found["phases"]:
        clock.now = began + at
        progress.phase(name)
    kind = TypeAdapter(list[Snapshot], config={"arbitrary_types_allowed": True})
    streaming, tracker, panels = clock.now, RunTracker(), {}
    for snapshot in kind.validate_python(found["snapshots"]):
        clock.now = streaming + snapshot.at
        progress.update(tracker.update(snapshot))
        panels[snapshot.at] = _console(LIVE_COLUMNS)
        panels[snapshot.at].print(Panel(progress.state, clock()))
    return panels


def _moving(found: dict[str, Any], name: str) -> str:
    """A film of the panel: one below the other in a strip, which is moved behind a window as high as one of them."""
    panels = {at: console.export_text(styles=True).splitlines() for at, console in _panels(found).items()}
    height, strip = max(map(len, panels.values())), _console(LIVE_COLUMNS)
    for lines in panels.values():
        strip.print(Text.from_ansi("\n".join([*lines, *[""] * (height - len(lines))])))
    drawn, (first, *_, last) = _picture(strip, name), panels
    pixels, seconds = _LINE_PIXELS * height, last - first + LAST_SECONDS
    frames = [(100 * (at - first) / seconds, -pixels * place) for place, at in enumerate(panels)]
    steps = " ".join(f"{share:.2f}% {{ transform: translateY({y:.1f}px) }}" for share, y in frames)
    film = (
        f"@keyframes {name}-film {{ {steps} }}\n"
        # A reader that shows no motion, or wants none, sees the middle of the run.
        f".{name}-matrix {{ transform: translateY({frames[len(frames) // 2][1]:.1f}px) }}\n"
        "@media not (prefers-reduced-motion) {\n"
        f".{name}-matrix {{ animation: {name}-film {seconds:.1f}s step-end infinite }}\n}}\n</style>"
    )
    cut = pixels * (len(panels) - 1)
    lower = re.compile(
        r'(viewBox="0 0 \d+ |<rect fill="#292929"[^>]* height="|<rect x="0" y="0"[^>]* height=")([\d.]+)'
    )
    return lower.sub(lambda match: f"{match[1]}{float(match[2]) - cut:.1f}", drawn).replace("</style>", film)


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


def _console(columns: int = COLUMNS) -> Console:
    return Console(file=Terminal(), record=True, width=columns, height=LINES, force_terminal=True, color_system="256")


def _picture(console: Console, name: str) -> str:
    """What was printed as SVG, in fonts that readers have: nothing is fetched."""
    plain = re.sub(r"\s*(<!--.*?-->|@font-face \{\{.*?\}\})", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    code = plain.replace("Fira Code, monospace", _FONT)
    drawn = console.export_svg(title=f"dpa run {JOB} --set {OVERRIDE}", code_format=code, unique_id=name)
    return "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"


class _Recorder(Observer):
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
        """What the panel showed while the stream began."""
        until = next(place for place, (name, *_) in enumerate(self.phases) if name == "stream")
        begin = [found for found in self.snapshots if found.at <= FILM_SECONDS]
        kept = [asdict(found) for found in begin[:: -(-len(begin) // FRAMES)]]
        for found in kept:
            for name in ("mapped_rate", "processed_rate", "news"):
                del found[name]
            for stage, name in product(found["stages"], ("is_source", "counted", "load", "rate", "redistributions")):
                del stage[name]
        return {"name": "clicks", "phases": self.phases[: until + 1], "snapshots": jsonable(kept)}


def record() -> None:
    """Run the job, and keep what the screens show of it."""
    from dpa.job import Job

    recorder = _Recorder()
    report = Job.from_file(ROOT / JOB, [OVERRIDE]).run(recorder, check=False).report
    found = {"live": recorder.live(), "report": jsonable({**report.to_dict(), "config": {}, "versions": {}})}
    RECORDING.write_text(json.dumps(found, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if "--run" in sys.argv[1:]:
        record()
    for path, drawing in screens().items():
        path.write_text(drawing, encoding="utf-8")
        print(f"wrote {path}")
