"""Views of a running job that need no terminal: none, and a few log lines, which keep logs of batch systems short."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from dpa.result.text import one_line, outcomes, percent, plural, short
from dpa.telemetry.observers import Observer
from dpa.telemetry.tracker import News, Redistribution, TrackedSnapshot

MIN_LINE_SECONDS = 1.0
"""Progress lines are at least this far apart."""
MAX_LINE_SECONDS = 30.0  # while records are read or processed, a progress line comes at least this often
REDISTRIBUTION_LINES = 20
"""Redistributions that the plain view names; later ones are only counted."""


class ProgressDisplay(Observer):
    """A view of one run, here of nothing: enter it, announce each phase as it begins, hand it snapshots in order,
    report the run's status, leave it. It can show ten snapshots a second.

    The last snapshot of a phase comes before the next phase is announced. A view that an exception leaves needs no
    status."""

    def __enter__(self) -> ProgressDisplay:
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        return None

    def ended(self, status: str) -> None:
        """The run has ended: `ok`, `failed` or `mismatch`, as in `Report.status`."""
        return None


def is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


class PlainProgress(ProgressDisplay):
    """Log lines: at each phase; at every tenth of the input, then of the records still to be processed, or every 30
    seconds; and for the first redistributions."""

    def __init__(
        self,
        stream: TextIO | None,
        name: str,
        clock: Callable[[], float] = time.monotonic,
        *,
        after: float = 0.0,
        apart: float = MIN_LINE_SECONDS,
    ) -> None:
        """`after`: seconds before the first line, unless it is a warning; `apart`: between two lines of progress."""
        self._stream = stream
        self._after, self._apart = after, apart
        self._held_back: list[str] = []
        self._name = one_line(name)
        self._clock = clock
        self._began = self._last_line = clock()
        self._phase = ""
        self._tenth = 0
        self._named = 0
        self._newest = TrackedSnapshot("", 0.0, 0, ())
        self._status = "ok"

    def __enter__(self) -> PlainProgress:
        self._began = self._last_line = self._clock()
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        phase = self._phase or "startup"
        if kind is not None:
            self._write(f"stopped in {phase} by {kind.__name__}")
        elif self._status == "failed":
            self._write(f"failed in {phase}")
        else:
            self._end_phase()
            self._write("done" if self._status == "ok" else "done, but the result differs from the reference")

    def phase(self, name: str) -> None:
        self._end_phase()
        self._phase = one_line(name)
        self._last_line = self._clock()
        self._write(self._phase)

    def update(self, snapshot: TrackedSnapshot) -> None:
        for found in snapshot.news:
            _, whose, why = happened(found)
            line = f"{whose}: {one_line(why)}"
            if isinstance(found, Redistribution):
                self._named += 1
                line = f"redistribution {self._named} for {line}"
            if self._named <= REDISTRIBUTION_LINES or not isinstance(found, Redistribution):
                self._write(line)
            elif self._named == REDISTRIBUTION_LINES + 1:
                self._write("more redistributions follow; from here on they are only counted")
        self._newest = snapshot
        waited = self._clock() - self._last_line
        tenth = 10 + int(10 * snapshot.share_processed) if snapshot.all_read else int(10 * (snapshot.share_read or 0.0))
        if waited >= MAX_LINE_SECONDS or (tenth > self._tenth and waited >= self._apart):
            self._tenth = tenth
            self._last_line = self._clock()
            self._write(f"{self._phase or 'stream'}: {_progress(snapshot)}")

    def ended(self, status: str) -> None:
        self._status = status

    def warn(self, message: str) -> None:
        self._after = 0.0
        self._write(f"warning: {one_line(message)}")

    def _end_phase(self) -> None:
        if self._phase != "stream":
            return
        newest = self._newest
        rows, records = plural(newest.records.read, "row"), plural(newest.records.handled, "record")
        # No duration and no rate: this clock sees the end one poll late, and the table has the exact ones.
        self._write(
            f"stream ended: {rows} read, {records} processed, {plural(newest.redistributions, 'redistribution')}"
        )
        if decided := outcomes(newest.decisions):
            self._write(f"decisions: {decided}")
        self._phase = ""

    def _write(self, line: str) -> None:
        passed = self._clock() - self._began
        self._held_back.append(f"[{passed:7.1f} s] {self._name}: {line}\n")
        if self._stream is None or passed < self._after:
            return
        text, self._held_back = "".join(self._held_back), []
        try:
            encoding = getattr(self._stream, "encoding", None) or "utf-8"
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self._stream.flush()
        except (OSError, ValueError):  # without a reader the job continues
            self._stream = None


def happened(found: News, limit: int = 500) -> tuple[float, str, str]:
    """The seconds of the stream at which something happened, to whom, in up to `limit` characters, and why."""
    whose = one_line(found.stage, limit)
    if isinstance(found, Redistribution):
        return found.decision.at, f"{whose} {found.decision.reducer}", found.decision.reason
    return found.at, whose, f"{found.who}: {found.reason}"


def _progress(now: TrackedSnapshot) -> str:
    share = now.share_read
    read = f"{short(now.records.read)} rows" if share is None else f"{percent(share)} of {plural(now.rows, 'row')}"
    processed = f"{short(now.records.handled)} of {short(now.records.emitted)} emitted records processed"
    parts = [f"{read} read", f"{processed} ({short(now.processed_rate)}/s)"]
    if now.longest is not None:
        parts.append(f"longest queue {short(now.longest.queue)} ({now.longest.stage} {now.longest.index})")
    parts.append(plural(now.redistributions, "redistribution"))
    if now.left_out:
        parts.append(f"{plural(now.left_out, 'record')} left out")
    if now.is_graph and now.bottleneck.stage is not None:
        parts.append(f"{now.bottleneck.stage} limits the run")
    return ", ".join(parts)
