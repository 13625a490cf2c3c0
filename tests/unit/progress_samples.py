"""Snapshots of a run that is under way, a clock and a terminal for the views that show it."""

from __future__ import annotations

import io
from dataclasses import replace

import report_samples as samples

from dpa.protocol.graph import REDUCER
from dpa.protocol.wire.metrics import Snapshot
from dpa.telemetry.observers import Observer
from dpa.telemetry.tracker import RunTracker


class Clock:
    """Time as the test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def at_share(share: float, **changes: object) -> Snapshot:
    return replace(samples.snapshot(samples.SECONDS * share, rounds=0), **changes)


def show(view: Observer, *snapshots: Snapshot) -> None:
    """Have a view show snapshots, the oldest first."""
    tracker = RunTracker()
    for snapshot in snapshots:
        view.update(tracker.update(snapshot))


def working_off(at: float, processed: int) -> Snapshot:
    """A snapshot with all rows read and 24 million records emitted, of which `processed` are processed."""
    last = samples.snapshot(samples.SECONDS)
    reducer = replace(last[REDUCER].tasks[0], processed=processed, queue=24_000_000 - processed)
    return replace(samples.with_stage(last, REDUCER, tasks=(reducer,), decisions=()), at=at)
