"""The time of rows on its way to the protocol: what sources know of it, and which stages close windows by it."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace

from dpa.execution.emission import Emission
from dpa.logical.compilation import Compiled
from dpa.logical.step import Step
from dpa.protocol.graph import ClosingWindows
from dpa.sources.event_time import SourceTime
from dpa.windows.options import TimeOptions, Windows, micros
from dpa.windows.times import EventTime


def with_event_time(compiled: Compiled, steps: Sequence[Step], opened: Collection[str]) -> Compiled:
    """A job whose stages know the event time that they have, if it has windows or timers; nothing changes if it has
    none.

    Args:
        compiled: the job without.
        steps: its steps.
        opened: the sources whose input is open.
    """
    if not any(isinstance(step.config.window, Windows) or step.receiver.has_timers for step in steps):
        return compiled
    by_name, stages, tasks = {step.name: step for step in steps}, [], dict(compiled.tasks)
    for stage in compiled.graph.stages:
        step = by_name[stage.name]
        windowing = step.receiver.windowing
        if step.config.read is not None and step.config.read.time is not None:
            emission = tasks[stage.name]
            assert isinstance(emission, Emission)
            found = step.processing_time or _of_source(step.config.read.time, is_open=stage.name in opened)
            tasks[stage.name] = replace(emission, time=found)
            stages.append(replace(stage, time=found))
        elif windowing is not None or step.receiver.has_timers:
            windows = None if windowing is None else windowing.windows
            lateness, back = (0, 0) if windows is None else (windows.lateness_us, windows.past_end_us)
            publishes_closed = step.publishes == "final" and step.receiver.emits_when_closed
            closing = ClosingWindows(lateness, back, publishes_closed=publishes_closed)
            stages.append(replace(stage, windows=closing))
        else:
            stages.append(replace(stage, emits_at_end=step.receiver.keeps_states))
    return Compiled(replace(compiled.graph, stages=tuple(stages)), tasks)


def _of_source(options: TimeOptions, *, is_open: bool) -> SourceTime:
    out_of_order = options.out_of_order if options.out_of_order is not None else 0.0 if is_open else None
    return SourceTime(
        EventTime(options.column, options.unit),
        out_of_order=None if out_of_order is None else micros(out_of_order),
        max_ahead=micros(options.max_ahead),
        idle=options.idle,
        clock=time.time,
    )
