"""The tasks of a stage of a plan: what each owns of the ring and would receive of the sample, and the hot keys; drawn
with rich."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from dpa.driver.forecast_stages import StageForecast
from dpa.report._plan_words import advice, level
from dpa.report._stage_table import BAR_COLUMNS, FAINT
from dpa.report._text import bar, count, key_text, one_line, percent, plural, skew
from dpa.routing.groupings.options import RING

MAX_TASKS = 64


def tasks(stage: StageForecast, ascii_only: bool) -> Iterator[RenderableType]:
    """The skew of a stage, its tasks and its hot keys; nothing if none of its tasks can have more than another."""
    if level(stage) is None:
        return
    is_ring = stage.grouping == RING
    how = "without balancing" if is_ring else f"by the grouping `{stage.grouping}`, on tasks of equal speed"
    judged = f": forecast skew S {skew(stage.skew)}, {how}: {advice(stage)}"
    yield Text.assemble((one_line(stage.name, 60), "bold"), judged)
    yield _table(stage, is_ring, ascii_only)
    if len(stage.loads) > MAX_TASKS:
        yield Text(f"and {plural(len(stage.loads) - MAX_TASKS, 'more task')}", FAINT)
    if stage.hot:
        yield Text("hot keys of the sample")
        keys = Table.grid(padding=(0, 2))
        for hot in stage.hot:
            keys.add_row(Text(f"  {key_text(hot.key)}"), percent(hot.share), count(hot.records))
        yield keys


def _table(stage: StageForecast, is_ring: bool, ascii_only: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=FAINT)
    for title in ("task", *(("tokens", "ring") if is_ring else ()), "records", "share"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("")  # of the bars, which may be cut on a narrow terminal
    most, total = max(stage.loads), sum(stage.loads)
    for task, load in enumerate(stage.loads[:MAX_TASKS]):
        owned = (count(stage.tokens[task]), percent(stage.shares[task])) if is_ring else ()
        drawn = Text(bar(load / most, BAR_COLUMNS, ascii_only=ascii_only), no_wrap=True, overflow="crop")
        table.add_row(str(task), *owned, count(load), percent(load / total), drawn)
    return table
