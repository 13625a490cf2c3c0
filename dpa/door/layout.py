"""Where the stages of a graph, its edges and their labels are drawn: arithmetic only, in pixels.

The usual layered drawing (Sugiyama, Tagawa and Toda 1981): a stage lies one layer to the right of the last that feeds
it. An edge has a slot in each layer that it passes, so it is never drawn over a stage. Slots of a layer are ordered by
the mean position of their neighbours to the left and to the right in turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

_SWEEPS = 6

Point = tuple[float, float]
Bend = tuple[Point, Point, Point]
"""A cubic Bezier curve from where the one before it ends: two control points, and its end."""
Pass = tuple[int, int]
"""The slot of an edge in a layer that it passes: the edge's number and the layer."""


@dataclass(frozen=True)
class Sizes:
    """Of the parts of a drawing, in pixels.

    Attributes:
        width, height: of a stage.
        gap: between two layers.
        space: between two slots of a layer, and around the drawing.
        port: at most, between two edges that leave or enter a stage.
        label_height: of the label of an edge.
    """

    width: float
    height: float
    gap: float
    port: float
    label_height: float
    space: float = 24.0

    def left(self, layer: int) -> float:
        return self.space + layer * (self.width + self.gap)

    def tall(self, slot: str | Pass) -> float:
        return self.height if isinstance(slot, str) else 0.0


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


def layout(stages: Sequence[str], edges: Sequence[tuple[str, str]], sizes: Sizes) -> Layout:
    """The drawing of a graph; each of `stages` comes after those that feed it."""
    layers: dict[str, int] = {}
    for stage in stages:
        layers[stage] = max((layers[source] + 1 for source, target in edges if target == stage), default=0)
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
    middles = _middles(columns, sizes)
    bottoms = [middles[slot] + sizes.tall(slot) / 2 for column in columns for slot in column]
    corners = {stage: (sizes.left(layers[stage]), middles[stage] - sizes.height / 2) for stage in stages}
    paths = tuple(_path(number, chain, chains, layers, middles, sizes) for number, chain in enumerate(chains))
    labels = _labels(paths, sizes.label_height)
    bottoms += [y + sizes.label_height / 2 for _, y in labels]
    width = sizes.left(len(columns)) - sizes.gap + sizes.space
    return Layout(width, max(bottoms, default=0.0) + sizes.space, corners, paths, labels)


def bends(path: Sequence[Point], gap: float, arrow: float) -> list[Bend]:
    """A path as curves that are level where they leave and enter a layer. The last one leaves room for an arrowhead of
    the length `arrow`."""
    (end, level) = path[-1]
    return [
        ((x + gap / 2, y), (right - gap / 2, below), (right, below))
        for (x, y), (right, below) in pairwise([*path[:-1], (end - arrow, level)])
    ]


def _order(columns: list[list[str | Pass]], chains: Sequence[Sequence[str | Pass]]) -> None:
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
            means = {slot: fmean([places[other] for other in neighbours.get(slot, [slot])]) for slot in column}
            column.sort(key=means.__getitem__)


def _middles(columns: Sequence[Sequence[str | Pass]], sizes: Sizes) -> dict[str | Pass, float]:
    """The vertical middle of each slot. Layers are centred."""
    heights = [sum(sizes.tall(slot) + sizes.space for slot in column) - sizes.space for column in columns]
    tallest, found = max(heights, default=0.0), {}
    for column, height in zip(columns, heights, strict=True):
        top = sizes.space + (tallest - height) / 2
        for slot in column:
            found[slot] = top + sizes.tall(slot) / 2
            top += sizes.tall(slot) + sizes.space
    return found


def _path(
    number: int,
    chain: Sequence[str | Pass],
    chains: Sequence[Sequence[str | Pass]],
    layers: dict[str, int],
    middles: dict[str | Pass, float],
    sizes: Sizes,
) -> tuple[Point, ...]:
    """The points of an edge. The ports at which edges leave and enter a stage are ordered, so that none cross there."""
    source, target = chain[0], chain[-1]
    assert isinstance(source, str) and isinstance(target, str)
    leaving = sorted((middles[other[1]], each) for each, other in enumerate(chains) if other[0] == source)
    entering = sorted((middles[other[-2]], each) for each, other in enumerate(chains) if other[-1] == target)
    points = [(sizes.left(layers[source]) + sizes.width, middles[source] + _port(number, leaving, sizes))]
    for slot in chain[1:-1]:
        assert not isinstance(slot, str)
        points += [(sizes.left(slot[1]), middles[slot]), (sizes.left(slot[1]) + sizes.width, middles[slot])]
    return (*points, (sizes.left(layers[target]), middles[target] + _port(number, entering, sizes)))


def _port(number: int, ordered: Sequence[tuple[float, int]], sizes: Sizes) -> float:
    """The distance of an edge's port from the middle of its stage."""
    place = [each for _, each in ordered].index(number)
    step = min(sizes.port, sizes.height / (len(ordered) + 1))
    return (place - (len(ordered) - 1) / 2) * step


def _labels(paths: Sequence[Sequence[Point]], height: float) -> tuple[Point, ...]:
    """In the middle of the first gap of each edge. Labels of one gap are moved apart, as little as possible."""
    middles = [((path[0][0] + path[1][0]) / 2, (path[0][1] + path[1][1]) / 2) for path in paths]
    found = list(middles)
    for gap in {x for x, _ in middles}:
        numbers = sorted((y, number) for number, (x, y) in enumerate(middles) if x == gap)
        for (_, number), y in zip(numbers, _apart([y for y, _ in numbers], height), strict=True):
            found[number] = (gap, y)
    return tuple(found)


def _apart(places: Sequence[float], least: float) -> list[float]:
    """The numbers, at least `least` apart and none below half of it, that differ from the ascending `places` in the
    least squares. Where places are too close, they form a group around their mean."""
    groups: list[tuple[float, int]] = []
    for rank, place in enumerate(places):
        mean, number = place - rank * least, 1
        while groups and groups[-1][0] >= mean:  # pool adjacent violators
            before, many = groups.pop()
            mean, number = (before * many + mean * number) / (many + number), many + number
        groups.append((mean, number))
    means = [max(mean, least / 2) for mean, number in groups for _ in range(number)]
    return [mean + rank * least for rank, mean in enumerate(means)]
