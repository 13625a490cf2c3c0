"""Tables of a plan: the tasks of a stage with what each would receive of the sample, its hot keys, and what is placed
on which node."""

from __future__ import annotations

from collections.abc import Iterator

from dpa.driver.forecast_stages import StageForecast
from dpa.driver.placing import PlacementForecast
from dpa.report._plan_words import advice, level
from dpa.result.content import Bar, Table
from dpa.result.text import count, key_text, megabytes, one_line, percent, skew
from dpa.routing.groupings.options import RING

MAX_TASKS = 64
_MAX_NODES = 32


def tasks(stage: StageForecast) -> Iterator[Table]:
    """The skew of a stage with its tasks, and its hot keys; nothing if none of its tasks can have more than another."""
    if level(stage) is None:
        return
    is_ring = stage.grouping == RING
    how = "without balancing" if is_ring else f"by the grouping `{stage.grouping}`, on tasks of equal speed"
    most, total = max(stage.loads), sum(stage.loads)
    owned = [
        (count(tokens), percent(share)) if is_ring else ()
        for tokens, share in zip(stage.tokens or stage.loads, stage.shares or stage.loads, strict=True)
    ]
    rows = [
        (str(task), *own, count(load), percent(load / total), Bar(load / most))
        for task, (own, load) in enumerate(zip(owned, stage.loads, strict=True))
    ]
    title = f"{one_line(stage.name, 60)}: forecast skew S {skew(stage.skew)}, {how}: {advice(stage)}"
    head = ("#task", *(("#tokens", "#ring") if is_ring else ()), "#records", "#share", "")
    yield Table(title, head, rows, most=MAX_TASKS, more=" tasks")
    keys = [(key_text(hot.key), percent(hot.share), count(hot.records)) for hot in stage.hot]
    yield Table("hot keys of the sample", ("key", "#share", "#records"), keys)


def placement(found: PlacementForecast) -> Iterator[Table]:
    """What is placed where, and what other allocators would give."""
    nodes = []
    for node in found.nodes:
        names = ", ".join(f"{number} {one_line(stage, 30)}" for stage, number in node.tasks.items()) or "none"
        traffic = (megabytes(node.sent), megabytes(node.received))
        size = f"{one_line(node.name, 24)} ({node.processors:.3g})"
        nodes.append((size, percent(node.busy), Bar(min(node.busy, 1.0)), *traffic, one_line(names, 100)))
    title = (
        f"placement: allocator {found.chosen.name}, costs {found.origin}; at the rate that single tasks and nodes "
        f"allow; a node has at most {found.tolerance:.3g} times its share of all costs (the tolerance)"
    )
    head = ("node", "#busy", "", "#MB/s out", "#in", "tasks")
    yield Table(title, head, nodes, most=_MAX_NODES, more=" nodes")
    if len(found.nodes) == 1:
        return
    judged = [
        (each.name, *["-"] * 4, "refuses")
        if each.refusal is not None
        else (
            each.name,
            percent(each.kept),
            megabytes(each.crossing),
            percent(each.busiest),
            f"{each.speed:.2f}",
            "chosen" if each is found.chosen else "",
        )
        for each in (found.chosen, *found.others)
    ]
    head = ("allocator", "#traffic inside", "#MB/s between", "#busiest node", "#speed", "")
    yield Table("what the allocators would give", head, judged)
