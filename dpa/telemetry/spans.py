"""Spans of OpenTelemetry: of each epoch and each checkpoint of a run. They go where the program that runs the job has
its spans go. A program that makes none imports nothing for them."""

import sys
import time
from typing import Any

from dpa._secrets import hidden
from dpa._util.version import VERSION
from dpa.protocol.wire.epochs import OpenEpoch
from dpa.telemetry.observers import Observer
from dpa.telemetry.tracker import TrackedSnapshot


def spans_of(job: str) -> "list[EpochSpans]":
    """What makes a job's spans; empty in a program that has not set OpenTelemetry up, for which it is imported."""
    trace = sys.modules.get("opentelemetry.trace")
    return [] if trace is None else [EpochSpans(job, trace.get_tracer("dpa", VERSION))]


class EpochSpans(Observer):
    """Observes a run, in the thread and so in the span in which it was called."""

    def __init__(self, job: str, tracer: Any) -> None:
        self._job, self._tracer = job, tracer
        self._generation = -1

    def update(self, snapshot: TrackedSnapshot) -> None:
        now = snapshot.epoch
        if now is None:
            return
        if snapshot.generation != self._generation:  # all numbers begin again, and what was open has no end
            self._generation, self._began = snapshot.generation, time.time() - snapshot.at
            self._open: OpenEpoch | None = now if snapshot.generation else OpenEpoch(1, 0.0)
            self._read, self._tried = 0, -1.0
        for tried in snapshot.checkpoint_tries:
            if tried.at > self._tried:
                self._tried = tried.at
                about = {"dpa.checkpoint": tried.number, "dpa.bytes": tried.size}
                self._span("checkpoint", tried.at, tried.at + tried.seconds, about, tried.error)
        if self._open is not None and now.number > self._open.number:
            self._epoch(self._open, now.began, now.number - 1, snapshot.records.read)
            self._open = now
        if self._open is not None and snapshot.phase == "done":
            self._epoch(self._open, snapshot.at, now.number, snapshot.records.read)
            self._open = None

    def _epoch(self, first: OpenEpoch, end: float, last: int, read: int) -> None:
        """Of all epochs that have ended from one snapshot to the next."""
        about = {"dpa.epoch": last, "dpa.epochs": last - first.number + 1, "dpa.rows": read - self._read}
        self._read = read
        self._span("epoch", first.began, end, about)

    def _span(self, name: str, start: float, end: float, about: dict[str, int], error: str | None = None) -> None:
        own = {"dpa.job": self._job, "dpa.generation": self._generation, **about}
        made = self._tracer.start_span(f"dpa.{name}", start_time=self._nanoseconds(start), attributes=own)
        if error is not None:
            from opentelemetry.trace import StatusCode

            made.set_status(StatusCode.ERROR, hidden(error))
        made.end(self._nanoseconds(end))

    def _nanoseconds(self, at: float) -> int:
        return int((self._began + at) * 1e9)
