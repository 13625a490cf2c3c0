"""Where a graph is drawn: nothing over anything else, and from left to right."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
import report_samples as samples
from hypothesis import given
from hypothesis import strategies as st

from dpa.report._layout import GAP, HEIGHT, LABEL_HEIGHT, WIDTH, layout

Box = tuple[float, float, float, float]
Edges = list[tuple[str, str]]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[str], Edges]:
    """Up to nine stages in order, with edges from earlier to later ones."""
    names = [f"stage {place}" for place in range(draw(st.integers(1, 9)))]
    pairs = [pair for pair in combinations(names, 2) if draw(st.booleans())]
    return names, pairs


def overlap(one: Box, other: Box) -> bool:
    left, top, width, height = one
    x, y, wide, high = other
    return left < x + wide and x < left + width and top < y + high and y < top + height


@given(graphs())
def test_no_stage_lies_over_another_and_all_are_in_the_drawing(graph: tuple[list[str], Edges]) -> None:
    placed = layout(*graph)
    boxes = [(x, y, WIDTH, HEIGHT) for x, y in placed.stages.values()]
    assert not any(overlap(one, other) for one, other in combinations(boxes, 2))
    assert all(x >= 0 and y >= 0 and x + WIDTH <= placed.width and y + HEIGHT <= placed.height for x, y, *_ in boxes)


@given(graphs())
def test_an_edge_joins_its_stages_from_left_to_right_and_passes_through_no_stage(
    graph: tuple[list[str], Edges],
) -> None:
    placed = layout(*graph)
    for (source, target), path in zip(graph[1], placed.paths, strict=True):
        (left, top), (right, bottom) = placed.stages[source], placed.stages[target]
        assert path[0][0] == left + WIDTH and top < path[0][1] < top + HEIGHT
        assert path[-1][0] == right and bottom < path[-1][1] < bottom + HEIGHT
        assert [x for x, _ in path] == sorted(x for x, _ in path)
        for (x, y), (end, level) in list(pairwise(path))[1::2]:
            assert y == level and end - x == WIDTH
            assert not any(overlap((x, y, WIDTH, 0.1), (a, b, WIDTH, HEIGHT)) for a, b in placed.stages.values())


@given(graphs())
def test_labels_lie_in_gaps_and_not_over_each_other(graph: tuple[list[str], Edges]) -> None:
    placed = layout(*graph)
    for x, y in placed.labels:
        assert all(abs(x - (left + WIDTH / 2)) >= (WIDTH + GAP) / 2 for left, _ in placed.stages.values())
        assert 0 < y < placed.height
    for (x, y), (other_x, other_y) in combinations(placed.labels, 2):
        assert x != other_x or abs(y - other_y) >= LABEL_HEIGHT - 1e-6


@pytest.mark.parametrize(
    ("edges", "columns"), [(samples.CHAIN, [1, 1, 1]), (samples.DIAMOND, [2, 2, 2, 1])], ids=["chain", "diamond"]
)
def test_a_stage_lies_to_the_right_of_all_that_feed_it(edges: Edges, columns: list[int]) -> None:
    placed = layout(samples.stages_of(edges), edges)
    lefts = [x for x, _ in placed.stages.values()]
    assert [lefts.count(x) for x in sorted(set(lefts))] == columns
    assert all(placed.stages[source][0] < placed.stages[target][0] for source, target in edges)
