"""The placement in a plan: what runs on which node, and what other allocators would give; drawn with rich."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from dpa.driver.placing import AllocatorForecast, PlacementForecast
from dpa.report._stage_table import FAINT
from dpa.report._text import bar, megabytes, one_line, percent

_BAR_COLUMNS = 10
_MAX_NODES = 64


def placement(found: PlacementForecast, ascii_only: bool) -> Iterator[RenderableType]:
    """What is placed where, and what others would give."""
    yield Text()
    yield Text.assemble(
        ("placement", "bold"),
        f": allocator {found.chosen.name}, costs {found.origin}; at the rate that single tasks and nodes allow",
    )
    yield Text(f"a node has at most {found.tolerance:.3g} times its share of all costs (the tolerance)", FAINT)
    yield _nodes(found, ascii_only)
    if len(found.nodes) > _MAX_NODES:
        yield Text(f"and {len(found.nodes) - _MAX_NODES} more nodes", FAINT)
    if len(found.nodes) == 1:
        yield Text("one node bears all tasks; declare placement.nodes, or name a cluster, to see them placed", FAINT)
        return
    yield Text()
    yield Text("what the allocators would give", FAINT)
    yield _allocators((found.chosen, *found.others))


def _nodes(found: PlacementForecast, ascii_only: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=FAINT)
    table.add_column("node", no_wrap=True)
    table.add_column("busy", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for title in ("MB/s out", "in"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("tasks")
    for node in found.nodes[:_MAX_NODES]:
        drawn = bar(min(node.busy, 1.0), _BAR_COLUMNS, ascii_only=ascii_only)
        tasks = ", ".join(f"{count} {one_line(stage, 30)}" for stage, count in node.tasks.items()) or "none"
        size = f"{one_line(node.name, 24)} ({node.processors:.3g})"
        table.add_row(size, percent(node.busy), drawn, megabytes(node.sent), megabytes(node.received), tasks)
    return table


def _allocators(judged: tuple[AllocatorForecast, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style=FAINT)
    table.add_column("allocator", no_wrap=True)
    for title in ("traffic inside", "MB/s between", "busiest node", "speed", ""):
        table.add_column(title, justify="right", no_wrap=True)
    for each in judged:
        if each.refusal is not None:
            table.add_row(each.name, "-", "-", "-", "-", Text("refuses", FAINT))
            continue
        table.add_row(
            each.name,
            percent(each.kept),
            megabytes(each.crossing),
            percent(each.busiest),
            f"{each.speed:.2f}",
            "chosen" if each is judged[0] else "",
        )
    return table
