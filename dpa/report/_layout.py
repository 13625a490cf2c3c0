"""Where the stages of a graph, its edges and their labels are drawn: arithmetic only, in pixels.

The usual layered drawing (Sugiyama, Tagawa and Toda 1981): a stage lies one layer to the right of the last that feeds
it; an edge that passes layers has a slot of its own in each; slots of a layer are ordered by the mean position of what
they are joined to, to the left and to the right in turn. So nothing is drawn over a stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

WIDTH, HEIGHT = 168.0, 98.0
"""Of a stage."""
GAP = 104.0
"""Between two layers."""
SPACE = 24.0
"""Between two slots of a layer, and around the drawing."""
PORT = 12.0
"""Between two edges that leave or enter a stage."""
LABEL_WIDTH, LABEL_HEIGHT = 44.0, 17.0
_SWEEPS = 6

Point = tuple[float, float]
Pass = tuple[int, int]
"""The slot of an edge in a layer that it passes: the edge's number and the layer."""


@dataclass(frozen=True)
class Layout:
    """A drawing of `width` by `height`.

    Attributes:
        stages: the upper left corner of each stage.
        paths: for each edge, the points that it passes from left to right: from a gap's left end to its right, then
            straight through the layer.
        labels: the centre of each edge's label.
    """

    width: float
    height: float
    stages: dict[str, Point]
    paths: tuple[tuple[Point, ...], ...]
    labels: tuple[Point, ...]


def layers_of(stages: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The layer of each stage; `stages` are in an order in which each comes after those that feed it."""
    layers: dict[str, int] = {}
    for stage in stages:
        layers[stage] = max((layers[source] + 1 for source, target in edges if target == stage), default=0)
    return layers


def layout(stages: Sequence[str], edges: Sequence[tuple[str, str]]) -> Layout:
    """The drawing of a graph, of which `stages` are in an order in which each comes after those that feed it."""
    layers = layers_of(stages, edges)
    columns: list[list[str | Pass]] = [[] for _ in range(max(layers.values(), default=0) + 1)]
    for stage in stages:
        columns[layers[stage]].append(stage)
    chains: list[list[str | Pass]] = []
    for number, (source, target) in enumerate(edges):
        passed: list[Pass] = [(number, layer) for layer in range(layers[source] + 1, layers[target])]
        for slot in passed:
            columns[slot[1]].append(slot)
        chains.append([source, *passed, target])
    _order(columns, chains)
    middles = _middles(columns)
    height = max((bottom for column in columns for bottom in _bottoms(column, middles)), default=0.0) + SPACE
    corners = {stage: (_left(layers[stage]), middles[stage] - HEIGHT / 2) for stage in stages}
    paths = tuple(_path(number, chain, chains, layers, middles) for number, chain in enumerate(chains))
    return Layout(_left(len(columns)) - GAP + SPACE, height, corners, paths, _labels(paths))


def _order(columns: list[list[str | Pass]], chains: Sequence[Sequence[str | Pass]]) -> None:
    """Order the slots of each layer by the mean position of their neighbours to the left and to the right in turn."""
    before: dict[str | Pass, list[str | Pass]] = {}
    after: dict[str | Pass, list[str | Pass]] = {}
    for chain in chains:
        for one, next_ in pairwise(chain):
            after.setdefault(one, []).append(next_)
            before.setdefault(next_, []).append(one)
    for sweep in range(_SWEEPS):
        neighbours, ordered = (before, columns) if sweep % 2 == 0 else (after, columns[::-1])
        for column in ordered:
            places = {slot: place / max(len(each), 1) for each in columns for place, slot in enumerate(each)}

            means = {slot: _mean([places[other] for other in neighbours.get(slot, [slot])]) for slot in column}
            column.sort(key=means.__getitem__)


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def _tall(slot: str | Pass) -> float:
    return HEIGHT if isinstance(slot, str) else 0.0


def _middles(columns: Sequence[Sequence[str | Pass]]) -> dict[str | Pass, float]:
    """The vertical middle of each slot; every layer is centred."""
    heights = [sum(_tall(slot) + SPACE for slot in column) - SPACE for column in columns]
    tallest, found = max(heights, default=0.0), {}
    for column, height in zip(columns, heights, strict=True):
        top = SPACE + (tallest - height) / 2
        for slot in column:
            found[slot] = top + _tall(slot) / 2
            top += _tall(slot) + SPACE
    return found


def _bottoms(column: Iterable[str | Pass], middles: dict[str | Pass, float]) -> Iterable[float]:
    return (middles[slot] + _tall(slot) / 2 for slot in column)


def _left(layer: int) -> float:
    return SPACE + layer * (WIDTH + GAP)


def _path(
    number: int,
    chain: Sequence[str | Pass],
    chains: Sequence[Sequence[str | Pass]],
    layers: dict[str, int],
    middles: dict[str | Pass, float],
) -> tuple[Point, ...]:
    """The points of an edge, which leaves and enters stages at ports, ordered so that edges do not cross there."""
    source, target = chain[0], chain[-1]
    assert isinstance(source, str) and isinstance(target, str)
    leaving = sorted((middles[other[1]], each) for each, other in enumerate(chains) if other[0] == source)
    entering = sorted((middles[other[-2]], each) for each, other in enumerate(chains) if other[-1] == target)
    points = [(_left(layers[source]) + WIDTH, middles[source] + _port(number, leaving))]
    for slot in chain[1:-1]:
        assert not isinstance(slot, str)
        points += [(_left(slot[1]), middles[slot]), (_left(slot[1]) + WIDTH, middles[slot])]
    return (*points, (_left(layers[target]), middles[target] + _port(number, entering)))


def _port(number: int, ordered: Sequence[tuple[float, int]]) -> float:
    """How far from the middle of a stage an edge is joined to it."""
    place = [each for _, each in ordered].index(number)
    step = min(PORT, HEIGHT / (len(ordered) + 1))
    return (place - (len(ordered) - 1) / 2) * step


def _labels(paths: Sequence[Sequence[Point]]) -> tuple[Point, ...]:
    """The middle of the gap that an edge passes first; labels of one gap are moved apart."""
    middles = [((path[0][0] + path[1][0]) / 2, (path[0][1] + path[1][1]) / 2) for path in paths]
    found = list(middles)
    for gap in {x for x, _ in middles}:
        numbers = sorted((y, number) for number, (x, y) in enumerate(middles) if x == gap)
        lowest = -LABEL_HEIGHT
        for y, number in numbers:
            lowest = max(y, lowest + LABEL_HEIGHT)
            found[number] = (gap, lowest)
    return tuple(found)
