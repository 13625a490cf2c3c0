"""The loads: how many tasks what is due would keep busy all the time, from moment to moment."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Load:
    """A load over time.

    Attributes:
        seconds: how long it lasts.
        tasks: how many tasks it would keep busy all the time, at each of some moments in seconds.
        turns: when it changes its direction: it rises from one, falls from the next.
        begins: how many tasks there are at first.
    """

    name: str
    seconds: float
    tasks: Callable[[Floats], Floats]
    turns: tuple[float, ...]
    begins: int = 1

    def due(self, service_seconds: float) -> Floats:
        """The moment at which each record is due, in seconds, if a task takes so long for one; shape (records,)."""
        at = np.arange(0.0, self.seconds + 0.005, 0.01)
        made = np.concatenate([[0.0], np.cumsum(self.tasks(at[:-1])) * 0.01 / service_seconds])
        return np.interp(np.arange(1, int(made[-1]) + 1), made, at)

    def ideal(self, target: float) -> Floats:
        """The least number of tasks of which none is busy for more than a share of its time, for each second; shape
        (seconds,)."""
        return np.ceil(self.tasks(np.arange(self.seconds) + 0.5) / target - 1e-9)


LOW, HIGH = 0.5, 4.5
"""Of waves."""


def _wave(name: str, seconds: float, half: float) -> Load:
    turns = tuple(float(at) for at in np.arange(0.0, seconds, half))
    return Load(name, seconds, lambda at: np.where(at % (2 * half) < half, HIGH, LOW), turns)


STEP = Load("step", 120.0, lambda at: np.where((at >= 20) & (at < 70), HIGH, 0.8), (20.0, 70.0))
RAMP = Load("ramp", 110.0, lambda at: 1 + 7 * np.minimum(at / 60, 1.0), (0.0,), begins=2)
SHORT_WAVE = _wave("square wave of 6 s", 90.0, 3.0)
LONG_WAVE = _wave("square wave of 80 s", 160.0, 40.0)
DAY = Load("diurnal", 240.0, lambda at: 4 - 3.5 * np.cos(2 * math.pi * at / 120), (0.0, 60.0, 120.0, 180.0))
CROWD = Load(
    "flash crowd",
    120.0,
    lambda at: np.where(at < 20, 1.0, 1 + 6 * np.exp(-np.maximum(at - 35, 0) / 10)),
    (20.0, 35.0),
    2,
)
LOADS = (STEP, RAMP, SHORT_WAVE, LONG_WAVE, DAY, CROWD)
"""By which the targets are set."""


def _drawn(seed: int) -> tuple[Load, ...]:
    """Loads of the same kinds, of other heights and lengths."""
    draw = np.random.default_rng(seed)
    low, high = draw.uniform(0.5, 2.0, 5), draw.uniform(3.0, 9.0, 5)
    begins = [math.ceil(load / 0.75) for load in low]
    first, stays = draw.uniform(10, 40), draw.uniform(40, 80)
    rises, half, day, decays = draw.uniform(20, 120), draw.uniform(45, 75), draw.uniform(100, 250), draw.uniform(5, 30)
    peak = first + draw.uniform(5, 20)
    return (
        Load(
            "drawn step",
            first + stays + 60,
            lambda at: np.where((at >= first) & (at < first + stays), high[0], low[0]),
            (first, first + stays),
            begins[0],
        ),
        Load(
            "drawn ramp",
            rises + 60,
            lambda at: low[1] + (high[1] - low[1]) * np.minimum(at / rises, 1.0),
            (0.0,),
            begins[1],
        ),
        Load(
            "drawn square wave",
            4 * half,
            lambda at: np.where(at % (2 * half) < half, high[2], low[2]),
            (0.0, half, 2 * half, 3 * half),
            begins[2],
        ),
        Load(
            "drawn day",
            1.5 * day,
            lambda at: (high[3] + low[3] - (high[3] - low[3]) * np.cos(2 * math.pi * at / day)) / 2,
            (0.0, day / 2, day),
            begins[3],
        ),
        Load(
            "drawn crowd",
            peak + 4 * decays + 60,
            lambda at: low[4] + np.where(at < first, 0, high[4] - low[4]) * np.exp(-np.maximum(at - peak, 0) / decays),
            (first, peak),
            begins[4],
        ),
    )


HELD_OUT = _drawn(2018)
"""Loads that the policy was not made by."""
