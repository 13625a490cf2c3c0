"""The stages in the live panel, a line each: records, rate, queue, and what the tasks do with their time."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from dpa.report._queues import FAINT, LONGEST, grid
from dpa.report._text import one_line, plural, short
from dpa.telemetry.tracker import StageTotals, Totals

NAME_COLUMNS = 20


@dataclass(frozen=True)
class StageLines:
    """The stages of a run, in at most `height` lines below a heading. If there are more, the one that limits the run
    and those that do the most, and a line that counts the rest."""

    totals: Totals
    height: int

    @property
    def lines(self) -> int:
        """Lines that are drawn, the heading included."""
        return 1 + min(len(self.totals.stages), self.height)

    def render(self) -> RenderableType:
        """A heading, and the lines."""
        table: Table = grid()
        for title in ("stage", "tasks", "records", "rate", "queued", "busy", "blocked"):
            table.add_column(Text(title, FAINT), justify="left" if title == "stage" else "right", no_wrap=True)
        table.show_header = True
        stages, limit = self.totals.stages, self.totals.bottleneck.stage
        shown = self._shown()
        for stage in stages:
            if stage in shown:
                table.add_row(*_cells(stage), style=LONGEST if stage.name == limit else "")
        if len(shown) < len(stages):
            table.add_row(Text(f"and {plural(len(stages) - len(shown), 'more stage')}", FAINT))
        return table

    def _shown(self) -> list[StageTotals]:
        stages, limit = self.totals.stages, self.totals.bottleneck.stage
        if len(stages) <= self.height:
            return list(stages)
        by_load = sorted(stages, key=lambda stage: (stage.name != limit, -stage.load.busy - stage.load.blocked))
        return by_load[: self.height - 1]


def _cells(stage: StageTotals) -> tuple[str, ...]:
    return (
        one_line(stage.name, NAME_COLUMNS),
        str(stage.tasks),
        short(stage.records),
        f"{short(stage.rate)}/s",
        "" if stage.is_source else short(stage.queue),
        f"{stage.load.busy:.0%}",
        f"{stage.load.blocked:.0%}",
    )
