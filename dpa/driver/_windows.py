"""Which steps work in windows: a window holds for all steps after it, as in Beam, until another one, or `none`; and
which stages close windows by what time.

Rows in windows have the columns `window_start` and `window_end`, which are the last parts of the key of every step by
key. What such a step makes of a window is of the last microsecond before its end, for a window that follows."""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from dpa.config import JobFile
from dpa.config.stages import NO_WINDOW
from dpa.execution.emission import Emission
from dpa.execution.receivers.stateless import StatelessReceiver
from dpa.execution.windowing import Assign, Windowing
from dpa.executors import name_of
from dpa.logical.compilation import Compiled
from dpa.logical.step import Keying, Step
from dpa.operators import JoinOptions, RowKind, RowOperator
from dpa.protocol.graph import ClosingWindows
from dpa.routing.keys import names_of
from dpa.sources.event_time import SourceTime
from dpa.windows.options import END, WINDOW, TimeOptions, Windows, micros
from dpa.windows.times import EventTime


@dataclass(frozen=True)
class _Rows:
    """What is known of the rows of a step: their windows, or None; the columns of their time, one for each input that
    they come from; and the kinds of these times, event time or processing time."""

    windows: Windows | None = None
    times: frozenset[EventTime] = frozenset()
    kinds: frozenset[str] = frozenset()


def in_windows(steps: Sequence[Step], file: JobFile) -> tuple[Step, ...]:
    """The steps, each knowing its windows; `steps` are in the order of the rows. ConfigError if rows have no time where
    windows need it, if rows of different windows meet, or if sessions need states that cannot be merged."""
    found: dict[str, _Rows] = {}
    made = []
    for step in steps:
        knowing, found[step.name] = _one(step, [found[feed.step] for feed in step.feeds], file)
        made.append(knowing)
    return tuple(made)


def _one(step: Step, rows: Sequence[_Rows], file: JobFile) -> tuple[Step, _Rows]:
    """The step, knowing its windows, and what is known of its rows."""
    config = step.config
    if config.read is not None:
        return step, _read(config.read.time)
    times = frozenset[EventTime]().union(*(each.times for each in rows))
    kinds = frozenset[str]().union(*(each.kinds for each in rows))
    if config.window == NO_WINDOW:
        return step, _Rows(None, times, kinds)
    if isinstance(config.window, Windows):
        _require_one_kind(step, "window", kinds, file)
        operator = RowOperator(RowKind.WINDOW, Assign(config.window, _time(step, times, file)), on_batches=True)
        return replace(step, receiver=StatelessReceiver(operator)), _Rows(config.window, times, kinds)
    windows = {each.windows for each in rows}
    if len(windows) > 1:
        both = " and some in ".join(sorted("none" if each is None else each.describe() for each in windows))
        mend = "let all pass one step `window` before, or end windows by `window: none`"
        raise file.error(step.at("from"), f"some of its rows are in {both}: {mend}")
    own = next(iter(windows))
    if step.receiver.has_timers and not times:
        raise file.error(step.at(step.word), "its rows have no time, which timers need: name it in `time` of the input")
    if own is not None or step.receiver.has_timers:
        _require_one_kind(step, step.word, kinds, file)
    if own is None or not step.receiver.keeps_states:
        return step, _Rows(own, times, kinds)
    return _by_key(step, own, file), _Rows(own, frozenset({EventTime(END, is_end=True)}), kinds)


def _read(time: TimeOptions | None) -> _Rows:
    if time is None:
        return _Rows()
    return _Rows(None, frozenset({EventTime(time.column, time.unit)}), frozenset({time.by}))


def _require_one_kind(step: Step, key: str, kinds: frozenset[str], file: JobFile) -> None:
    """Windows by the clock and windows by event time have nothing to do with each other."""
    if len(kinds) > 1:
        why = "some of its rows have event time, and some processing time"
        mend = "give all inputs before it the same `by` in `time`, or combine them after `window: none`"
        raise file.error(step.at(key), f"{why}: {mend}")


def _time(step: Step, times: frozenset[EventTime], file: JobFile) -> EventTime:
    if not times:
        raise file.error(step.at("window"), "its rows have no time: name the column with it in `time` of the input")
    if len(times) > 1:
        names = " and ".join(sorted(repr(time.column) for time in times))
        raise file.error(step.at("window"), f"its rows come from inputs whose times are {names}: give both one name")
    return next(iter(times))


def _by_key(step: Step, windows: Windows, file: JobFile) -> Step:
    receiver = step.receiver
    if windows.is_session and (receiver.has_sides or not receiver.can_merge):
        why = "sessions of a key become one when a record comes between them, and then their states are merged"
        what = receiver.noun if receiver.has_sides else name_of(receiver.executor)
        raise file.error(step.at(step.word), f"{what} cannot be in sessions: {why}; use windows of a `size`")
    feeds = tuple(replace(feed, keying=_keying(step, feed.keying, file)) for feed in step.feeds)
    if isinstance(receiver.executor, JoinOptions):
        left, right = receiver.executor.on
        receiver = replace(receiver, executor=replace(receiver.executor, on=((*left, *WINDOW), (*right, *WINDOW))))
    windowing = Windowing(windows, step.balance.hash_seed)
    return replace(step, feeds=feeds, receiver=replace(receiver, windowing=windowing))


def _keying(step: Step, keying: Keying, file: JobFile) -> Keying:
    names = names_of(keying.key)
    for name in WINDOW:
        if name in names:
            raise file.error(step.at("key_by"), f"the window is a part of every key here: leave {name!r} out")
    values = None if keying.values is None else tuple(name for name in keying.values if name not in WINDOW)
    return replace(keying, key=(*names, *WINDOW), values=values)


def with_event_time(compiled: Compiled, steps: Sequence[Step], opened: Collection[str]) -> Compiled:
    """The job whose stages know their event time, if it has windows or timers; `opened`: sources whose input is
    open."""
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
            stages.append(replace(stage, input=replace(stage.input, time=found)))
        elif windowing is not None or step.receiver.has_timers:
            windows = None if windowing is None else windowing.windows
            lateness, back = (0, 0) if windows is None else (windows.lateness_us, windows.past_end_us)
            stages.append(replace(stage, windows=ClosingWindows(lateness, back)))
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
