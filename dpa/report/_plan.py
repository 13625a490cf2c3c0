"""`--plan`: the resolved job, its graph with forecast rates and skews, and the tasks of each stage that may be uneven,
on the terminal or as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from dpa._util.secrets import as_yaml, without_secrets
from dpa.report._data import jsonable
from dpa.report._files import dump_json

if TYPE_CHECKING:
    from rich.console import Console

    from dpa.driver.forecast_stages import Estimate, Forecast


def show_plan(forecast: Forecast, stream: TextIO, *, width: int | None = None) -> None:
    """Print a forecast on `stream`, in `width` columns (the terminal's if None). Characters that the
    stream's encoding lacks are escaped."""
    from rich.console import Console

    from dpa.report._stage_table import TIED

    console = Console(file=stream, width=width, markup=False, highlight=False, emoji=False)
    with console.capture() as captured:  # rich ends the process when the reader of the stream has gone
        _print_plan(forecast, console)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = "".join(f"{line.rstrip()}\n" for line in captured.get().replace(TIED, " ").splitlines())
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def _print_plan(forecast: Forecast, console: Console) -> None:
    from dpa.report._plan_nodes import placement
    from dpa.report._plan_tasks import tasks
    from dpa.report._plan_tree import trees

    resolved = as_yaml(forecast.config, width=console.width)
    console.print("resolved job", style="bold")
    console.print("".join(f"  {line}\n" for line in resolved.splitlines()), soft_wrap=True)
    for tree in trees(forecast, console.width):
        console.print(tree)
    for stage in forecast.stages:
        for place, part in enumerate(tasks(stage, console.options.ascii_only)):
            if place == 0:
                console.print()
            console.print(part)
    for part in () if forecast.placement is None else placement(forecast.placement, console.options.ascii_only):
        console.print(part)


def plan_json(forecast: Forecast) -> str:
    """A forecast as strict JSON in ASCII, as docs/report.md describes it."""
    estimates = [forecast.estimates[stage.name] for stage in forecast.stages]
    stages = _with_estimates(forecast.stages, estimates)
    edges = _with_estimates(forecast.edges, forecast.edge_estimates)
    plan: dict[str, Any] = jsonable(
        {
            "schema": "dpa-plan-2",
            "config": forecast.config,
            "stages": stages,
            "edges": edges,
            "placement": None if forecast.placement is None else dataclasses.asdict(forecast.placement),
        }
    )
    return dump_json({**plan, "config": without_secrets(plan["config"])})


def _with_estimates(parts: Sequence[Any], estimates: Sequence[Estimate]) -> list[dict[str, Any]]:
    """Stages or edges, each with its estimate, as plain data."""
    return [
        {**dataclasses.asdict(part), "estimate": dataclasses.asdict(estimate)}
        for part, estimate in zip(parts, estimates, strict=True)
    ]
