"""`--plan`: the resolved job, its graph with forecast rates and skews, and the tasks of each stage that may be uneven,
on the terminal or as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from dpa._util.as_yaml import as_yaml
from dpa.report._data import document

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from dpa.driver.forecast_stages import Estimate, Forecast


def show_plan(forecast: Forecast, stream: TextIO, *, width: int | None = None) -> None:
    """Print a forecast on `stream`, in `width` columns (the terminal's if None). Characters that the
    stream's encoding lacks are escaped."""
    from dpa.report._terminal import print_parts

    print_parts(lambda console: _parts(forecast, console), stream, width)


def _parts(forecast: Forecast, console: Console) -> Iterator[RenderableType]:
    from rich.text import Text

    from dpa.report._plan_tables import placement, tasks
    from dpa.report._plan_tree import trees
    from dpa.report._terminal import FAINT, table

    yield Text("resolved job", "bold")
    yield "".join(f"  {line}\n" for line in as_yaml(forecast.config, width=console.width).splitlines())
    yield from trees(forecast, console.width)
    for found in (found for stage in forecast.stages for found in tasks(stage)):
        yield from table(found, console, f"\n{found.title}")
    for found in placement(forecast.placement) if forecast.placement is not None else ():
        yield from table(found, console, f"\n{found.title}")
    if forecast.placement is not None and len(forecast.placement.nodes) == 1:
        yield Text("one node bears all tasks; declare placement.nodes, or name a cluster, to see them placed", FAINT)


def plan_json(forecast: Forecast) -> str:
    """A forecast as strict JSON in ASCII, as docs/report.md describes it."""
    return document(
        {
            "schema": "dpa-plan-2",
            "config": forecast.config,
            "stages": _with_estimates(forecast.stages, [forecast.estimates[stage.name] for stage in forecast.stages]),
            "edges": _with_estimates(forecast.edges, forecast.edge_estimates),
            "placement": None if forecast.placement is None else dataclasses.asdict(forecast.placement),
        }
    )


def _with_estimates(parts: Sequence[Any], estimates: Sequence[Estimate]) -> list[dict[str, Any]]:
    """Stages or edges, each with its estimate, as plain data."""
    return [
        {**dataclasses.asdict(part), "estimate": dataclasses.asdict(estimate)}
        for part, estimate in zip(parts, estimates, strict=True)
    ]
