"""Where a graph is drawn: nothing over anything else, and from left to right."""

from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise

import pytest
import report_samples as samples
from hypothesis import given
from hypothesis import strategies as st

from dpa.door.layout import Sizes, bends, layout

USUAL = Sizes(width=168, height=98, gap=104, port=12, label_height=17)
LARGE = Sizes(width=240, height=40, gap=150, space=10, port=30, label_height=90)
"""Of labels that are higher than stages."""

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


@pytest.mark.parametrize("sizes", [USUAL, LARGE], ids=["usual", "large labels"])
@given(graphs())
def test_nothing_lies_over_anything_else_and_edges_join_their_stages(
    sizes: Sizes, graph: tuple[list[str], Edges]
) -> None:
    placed = layout(*graph, sizes)
    boxes = [(x, y, sizes.width, sizes.height) for x, y in placed.stages.values()]
    assert not any(overlap(one, other) for one, other in combinations(boxes, 2))
    assert all(x >= 0 and y >= 0 and x + w <= placed.width and y + h <= placed.height for x, y, w, h in boxes)
    for (source, target), path in zip(graph[1], placed.paths, strict=True):
        (left, top), (right, bottom) = placed.stages[source], placed.stages[target]
        assert path[0][0] == left + sizes.width and top < path[0][1] < top + sizes.height
        assert path[-1][0] == right and bottom < path[-1][1] < bottom + sizes.height
        assert [x for x, _ in path] == sorted(x for x, _ in path)
        for (x, y), (end, level) in list(pairwise(path))[1::2]:
            assert y == level and end - x == sizes.width
            assert not any(overlap((x, y, sizes.width, 0.1), box) for box in boxes)
    for x, y in placed.labels:
        label = (x - (sizes.gap - 30) / 2, y - sizes.label_height / 2, (sizes.gap - 30), sizes.label_height)
        assert not any(overlap(label, box) for box in boxes)
        assert label[1] >= -1e-6 and label[1] + label[3] <= placed.height
    for (x, y), (other_x, other_y) in combinations(placed.labels, 2):
        assert x != other_x or abs(y - other_y) >= sizes.label_height - 1e-6


def test_labels_that_have_no_room_lie_around_the_middle_of_their_edges_and_others_on_theirs() -> None:
    placed = layout(["a", "b", "c", "d"], [("a", "b"), ("a", "c"), ("a", "d")], replace(LARGE, label_height=40))
    on_edges = [(path[0][1] + path[1][1]) / 2 for path in placed.paths]
    assert on_edges == [50, 80, 110]
    assert [y for _, y in placed.labels] == pytest.approx([40, 80, 120])
    alone = layout(["a", "b"], [("a", "b")], USUAL)
    assert alone.labels[0][1] == alone.paths[0][0][1]


@given(graphs())
def test_curves_begin_and_end_level_at_every_layer_and_end_before_the_arrowhead(graph: tuple[list[str], Edges]) -> None:
    for path in layout(*graph, USUAL).paths:
        curves = bends(path, USUAL.gap, 7)
        starts = [path[0], *(end for _, _, end in curves)]
        assert [end for _, _, end in curves] == [*path[1:-1], (path[-1][0] - 7, path[-1][1])]
        assert all(
            one[1] == start[1] and two[1] == end[1] for start, (one, two, end) in zip(starts, curves, strict=False)
        )


@pytest.mark.parametrize(
    ("edges", "columns"), [(samples.CHAIN, [1, 1, 1]), (samples.DIAMOND, [2, 2, 2, 1])], ids=["chain", "diamond"]
)
def test_a_stage_lies_to_the_right_of_all_that_feed_it(edges: Edges, columns: list[int]) -> None:
    lefts = {name: x for name, (x, _) in layout(samples.stages_of(edges), edges, USUAL).stages.items()}
    assert [count for _, count in sorted(Counter(lefts.values()).items())] == columns
    assert all(lefts[source] < lefts[target] for source, target in edges)
