"""What a plan says of a graph, as words and tables, for the terminal and the picture alike: records, and how even.

The numbers are `dpa.driver.forecast`'s; here they are only judged and written out."""

from collections.abc import Iterator
from enum import Enum

from dpa.driver.forecast import Basis, Estimate, Forecast, StageForecast
from dpa.driver.placing import PlacementForecast
from dpa.measure.skew import EVEN, UNEVEN
from dpa.result import HotKey
from dpa.result.text import Bar, Table, count, key_text, megabytes, one_line, percent, plural, short, skew
from dpa.routing.groupings.options import RING

MAX_TASKS = 64
_MAX_NODES = 32
_KEY_CHARACTERS = 24
_WIDENED = 5  # most columns that a plan names as read as another type than some files have


class Level(Enum):
    """How even the tasks of a stage are, in words."""

    EVEN = "even"
    SLIGHTLY_UNEVEN = "slightly uneven"
    UNEVEN = "uneven"


def level(stage: StageForecast) -> Level | None:
    """None if nothing can be uneven: the stage has one task, or receives no records, or none by key."""
    if stage.skew is None or stage.tasks < 2 or not any(stage.loads):
        return None
    if stage.skew < EVEN:
        return Level.EVEN
    return Level.UNEVEN if stage.skew > UNEVEN else Level.SLIGHTLY_UNEVEN


def verdict(stage: StageForecast) -> Iterator[str]:
    """S of a stage with a word for it, `S 0.512: uneven`, and the key that alone is too much for a task, `hot key the`.
    Empty where nothing can be uneven."""
    found, hot = level(stage), _too_hot(stage)
    if found is not None:
        yield f"S {skew(stage.skew)}: {found.value}"
    if hot is not None:
        yield f"hot key {key_text(hot.key, _KEY_CHARACTERS)}"


def advice(stage: StageForecast) -> str:
    """What S of a stage means, and what helps against it. Empty where nothing can be uneven."""
    found = level(stage)
    hot = _too_hot(stage)
    if found is None:
        return ""
    if hot is None:
        return "already even" if found is Level.EVEN else found.value
    alone = f"the key {key_text(hot.key)} alone is more than one task's even share"
    if not stage.mergeable:
        return f"{alone}; its states cannot be merged, so only a finer key helps"
    if stage.strategy == "adaptive":
        less = "; a combiner may leave nothing to split" if stage.combinable else ""
        return f"{alone}; dpa will split it over tasks if its records have to wait{less}"
    if stage.combinable:
        return f"{alone}; only the strategy `adaptive`, a grouping that splits keys, or a combiner helps"
    return f"{alone}; only the strategy `adaptive` or a grouping that splits keys helps"


def facts(stage: StageForecast, forecast: Forecast) -> Iterator[str]:
    each = f" x {stage.resources}" if stage.resources.amounts() else ""
    yield plural(stage.tasks, "task") + each
    if stage.kind != "source":
        yield volume(forecast.estimates[stage.name])
        return
    if stage.rate is not None:
        yield volume(forecast.estimates[stage.name])
    if stage.rows is not None:
        yield plural(stage.rows, "row")
    if stage.rows != stage.sampled:
        yield f"{count(stage.sampled)} sampled" if stage.rows is not None else f"{plural(stage.sampled, 'row')} sampled"
    if stage.widened:
        yield f"files differ: {', '.join(stage.widened[:_WIDENED])}"
    if len(stage.widened) > _WIDENED:
        yield f"{len(stage.widened) - _WIDENED} more"


def volume(estimate: Estimate) -> str:
    """`~12.3k records/s` (an estimate), `~24.0M records`, `1,234 records` or `sample: 260 records`."""
    about = "" if estimate.exact else "~"
    if estimate.basis is Basis.PER_SECOND:
        return f"{about}{short(estimate.amount)} records/s"
    if estimate.basis is Basis.SAMPLE:
        return f"sample: {plural(round(estimate.amount), 'record')}"
    return plural(round(estimate.amount), "record") if estimate.exact else f"{about}{short(estimate.amount)} records"


def _too_hot(stage: StageForecast) -> HotKey | None:
    """The most frequent key, if it makes its one task uneven by itself."""
    has_one_owner = stage.grouping in (RING, "key")
    if not has_one_owner or not stage.hot_keys or level(stage) in (None, Level.EVEN):
        return None
    return stage.hot_keys[0] if stage.hot_keys[0].share * stage.tasks > 1 else None


def tasks(stage: StageForecast) -> Iterator[Table]:
    """The skew of a stage with its tasks, and its hot keys. Empty where nothing can be uneven."""
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
