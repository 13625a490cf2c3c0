"""What an earlier run measured, as a graph to be placed: its `report.json` is the profile of a job.

Costs and traffic are those of the stream's seconds, so the graph's rate is the one that the run had."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpa._util.version import REPORT
from dpa.errors import PlacementError
from dpa.placement.model import GroupEdge, TaskGraph, TaskGroup
from dpa.placement.relaxations import Division, divided


@dataclass(frozen=True)
class Profile:
    """What a job's stages cost and send each other.

    Attributes:
        costs: for each stage, sources first, the processors that each of its tasks kept busy.
        traffic: bytes a second between two stages, both ways.
    """

    costs: Mapping[str, tuple[float, ...]]
    traffic: Mapping[tuple[str, str], float]

    @classmethod
    def of_report(cls, path: Path) -> Profile:
        """Raises PlacementError if there is no such file, or the run did not end, or was not on Ray."""
        try:
            report = json.loads(path.read_text(encoding="utf-8"))
            return cls.of_document(report)
        except OSError as error:
            raise PlacementError(f"no profile at {path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise PlacementError(f"{path} is not the report.json of a run that ended: {error}") from None

    @classmethod
    def of_document(cls, report: Mapping[str, Any]) -> Profile:
        """Raises ValueError if the report has no measurements."""
        if report["schema"] != REPORT:
            raise ValueError(f"its schema is {report['schema']!r}, and this dpa reads {REPORT!r}; run the job again")
        seconds = report["seconds"]["stream"]
        if not seconds > 0:
            raise ValueError("its stream took no time")
        if not report.get("traffic"):
            raise ValueError("it has no `traffic`; run the job again on Ray, with --report")
        costs = {
            stage["name"]: tuple(task["cpu_seconds"] / seconds for task in stage["tasks"]) for stage in report["stages"]
        }
        if not any(map(sum, costs.values())):
            raise ValueError("no task has used any processor time")
        traffic: dict[tuple[str, str], float] = {}
        order = list(costs)
        for each in report["traffic"]:
            ends = tuple(sorted((each["source"], each["target"]), key=order.index))
            if ends[0] != ends[1]:
                traffic[ends[0], ends[1]] = traffic.get((ends[0], ends[1]), 0.0) + each["bytes"] / seconds
        return cls(costs, traffic)

    def graph(self, tasks: Mapping[str, int], *, divide: bool = True) -> Division:
        """The graph of a run in which stages have as many tasks as these. With `divide`, a stage with as many tasks as
        it had is divided into groups of tasks that cost about the same, which is where a hot key shows (task allocation
        paper, section 5); else its tasks are taken to be alike. Raises PlacementError if a stage was not measured."""
        for name in tasks:
            if name not in self.costs:
                raise PlacementError(f"there is no cost of stage {name!r}, only of {', '.join(self.costs)}")
        groups = [TaskGroup(name, count, sum(self.costs[name])) for name, count in tasks.items()]
        edges = [
            GroupEdge(one, other, size)
            for (one, other), size in self.traffic.items()
            if one in tasks and other in tasks
        ]
        same = {name: self.costs[name] for name, count in tasks.items() if divide and len(self.costs[name]) == count}
        return divided(TaskGraph(tuple(groups), tuple(edges)), same)
