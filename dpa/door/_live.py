"""What a view has of tasks and of what changes by itself while a job runs: their figures, the lag, checkpoints and the
open epoch. A finished job's tasks have the same figures."""

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, TypeAlias

from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.metrics import Lag, TaskStats
from dpa.protocol.wire.use import TaskUse
from dpa.result import TaskReport
from dpa.result.text import one_line
from dpa.telemetry.tracker import TrackedSnapshot, TrackedStage

Part: TypeAlias = dict[str, Any]
"""Of a view."""

STATES = ("busy", "blocked", "waiting")
_OF_A_TASK = ("queue", *(field.name for field in fields(TaskReport) if field.name != "emitted"))
_TASKS_A_SECOND = 64  # how many tasks are shown anew
_MOST_CHANNELS = 100  # of an input: those that are read with the greatest lag


class LiveTasks:
    """The tasks of a generation. Of many, some are shown anew each time, in turn: so the difference of two views stays
    small."""

    def __init__(self) -> None:
        self._shown: dict[Address, tuple[float, Part]] = {}

    def shown(self, now: TrackedSnapshot) -> dict[str, Part]:
        """By stage and number."""
        number = sum(len(stage.present) for stage in now.stages)
        every = number / _TASKS_A_SECOND if number > _TASKS_A_SECOND else 0.0
        before, self._shown = self._shown, {}
        found: dict[str, Part] = {stage.name: {} for stage in now.stages}
        for stage in now.stages:
            for task in stage.present_tasks:
                address = Address(stage.name, task.index)
                at, shown = before.get(address, (now.at - every * (0.618 * task.index % 1), None))
                if shown is None or now.at - at >= every:
                    at, shown = at if shown is None else now.at, _task(task, stage, now)
                self._shown[address] = at, shown
                found[stage.name][str(task.index)] = shown
        return found


def _task(task: TaskStats, stage: TrackedStage, now: TrackedSnapshot) -> Part:
    records = task, now.use.get(Address(task.stage, task.index), TaskUse())
    found = {name: plain(getattr(each, name)) for each in records for name in _OF_A_TASK if hasattr(each, name)}
    found |= {name: round(found[name], 1) for name in found if name.endswith("_seconds")}
    found |= {name: found[name] >> 20 << 20 for name in ("peak_memory", "state_memory")}
    parts = zip(STATES, stage.parts.get(task.index, (0.0, 0.0, 0.0)), strict=True)
    return {**found, "emitted": sum(task.emitted), **{name: round(part, 2) for name, part in parts}}


def lag(found: Mapping[str, Lag]) -> Part:
    """Of the channels that are the most seconds behind, at most `_MOST_CHANNELS`."""
    greatest = sorted(found.items(), key=lambda each: (-each[1].seconds, -each[1].records, each[0]))
    return {channel or "all": plain(each) for channel, each in greatest[:_MOST_CHANNELS]}


def tries(now: TrackedSnapshot) -> Part:
    """The last checkpoints by the start of their cuts; seconds since the newest was written, or the stream began, and
    how many it took."""
    last = now.checkpoint_tries
    written = next((each for each in reversed(last) if each.error is None), None)
    return {
        "age": round(now.at if written is None else now.at - written.at - written.seconds, 1),
        "duration": None if written is None else plain(written.seconds),
        "tries": {f"{each.at:.2f}": plain(each) for each in last},
    }


def open_epoch(now: TrackedSnapshot) -> Part:
    """Its number, and the seconds since it began; the number of the newest that was committed, and how long that
    took."""
    epoch = now.epoch
    return {"open": None if epoch is None else plain(epoch) | {"age": round(now.at - epoch.began, 1)}}


def plain(value: Any) -> Any:
    """A record as an object of its fields, a float to four digits after the point, None for one that JSON lacks, and a
    text without control characters; anything else as it is."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return round(value, 4) if math.isfinite(value) else None
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return one_line(value) if isinstance(value, str) else value
