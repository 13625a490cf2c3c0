"""What makes a reducer slow, without processes: how long it waits, and where it cannot be done."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
import pytest
from builders import map_task

from dpa.aggregates import Count
from dpa.errors import ConfigError
from dpa.protocol.assembly import BalanceOptions, SignalSettings
from dpa.routing.groupings.options import GroupingOptions
from dpa.runtime.plan import RunPlan
from dpa.runtime.slowness import Slowness


def plan(**slow: Any) -> RunPlan:
    options = BalanceOptions(), GroupingOptions(), SignalSettings()
    return RunPlan((), pa.schema([]), map_task(None, Count()), 1, 3, *options, 10, 10, 0.1, **slow)


@pytest.mark.parametrize(("slow", "waits"), [({}, []), ({"slowdown": (5.0, 1.0, 2.5)}, [1.0, 0.375])])
def test_a_reducer_waits_for_as_long_as_it_would_take_longer(slow: dict[str, Any], waits: list[float]) -> None:
    slept: list[float] = []
    for reducer in range(3):
        slowness = Slowness(plan(**slow), reducer, slept.append)
        slowness.prolong(0.25)
        slowness.end()
    assert slept == waits


def test_where_processes_cannot_be_pinned_a_crowded_reducer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    Slowness(plan(crowded=(2,)), 1)
    with pytest.raises(ConfigError, match=r"parallelism.crowded: \w+ cannot pin reducer 2 to a processor"):
        Slowness(plan(crowded=(2,)), 2)
