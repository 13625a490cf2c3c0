"""Which stage limits a run: by hand for the usual shapes, and as laws for graphs of any shape and load."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa.measure.bottleneck import BLOCKED, StageLoad, bottleneck, held_up

Edges = list[tuple[str, str]]

CHAIN = [("read", "parse"), ("parse", "count")]
FAN_OUT = [("read", "slow"), ("read", "quick")]


def load(name: str, busy: float, blocked: float = 0.0, busiest: float | None = None) -> StageLoad:
    return StageLoad(name, busy, blocked, busy if busiest is None else busiest)


@pytest.mark.parametrize(
    ("loads", "edges", "stage", "words"),
    [
        (
            [load("read", 0.3, 0.6), load("parse", 0.4, 0.5), load("count", 0.9, busiest=0.97)],
            CHAIN,
            "count",
            "count limits the run: its busiest task, 0, is busy 97% of the time, the average 90%, while parse, which "
            "feeds it, is blocked 50% of the time",
        ),
        ([load("read", 0.3, 0.6), load("parse", 0.95), load("count", 0.99)], CHAIN, "parse", "while read"),
        ([load("read", 0.3, 0.6), load("slow", 0.9), load("quick", 0.2)], FAN_OUT, "slow", "while read"),
        ([load("read", 0.3, 0.6), load("slow", 0.3, busiest=0.9), load("quick", 0.6)], FAN_OUT, "slow", "average 30%"),
        ([load("read", 0.2), load("parse", 0.3), load("count", 0.9)], CHAIN, "count", "no stage is blocked"),
        ([load("read", 0.9), load("parse", 0.3), load("count", 0.4)], CHAIN, "read", "the source read limits the run"),
        ([load("read", 0.9), load("parse", 0.85), load("count", 0.4)], CHAIN, None, "parse and read are about equally"),
        ([load("read", 0.1), load("parse", 0.2), load("count", 0.3)], CHAIN, None, "the busiest stage is count"),
        ([load("read", 0.0), load("parse", 0.0), load("count", 0.0)], CHAIN, None, "no task was busy"),
        ([], [], None, "no task was busy"),
    ],
)
def test_what_is_waited_for_limits_the_run(loads: list[StageLoad], edges: Edges, stage: str | None, words: str) -> None:
    found = bottleneck(loads, edges)
    assert found.stage == stage
    assert words in found.reason


@st.composite
def loaded_graphs(draw: st.DrawFn) -> tuple[list[StageLoad], Edges]:
    """Stages of any load, each but the first fed by earlier ones; the last of a path is never blocked."""
    number = draw(st.integers(2, 7))
    names = [f"stage {place}" for place in range(number)]
    edges = [
        (names[source], names[target])
        for target in range(1, number)
        for source in sorted(draw(st.sets(st.integers(0, target - 1), min_size=1)))
    ]
    followed = {source for source, _ in edges}
    share = st.floats(0, 1)
    loads = []
    for name in names:
        one, other = draw(share), draw(share)
        loads.append(StageLoad(name, min(one, other), draw(share) if name in followed else 0.0, max(one, other)))
    return loads, edges


@given(loaded_graphs())
def test_behind_a_blocked_stage_one_that_is_not_is_found(graph: tuple[list[StageLoad], Edges]) -> None:
    loads, edges = graph
    of = {load.name: load for load in loads}
    found = bottleneck(loads, edges)
    if any(load.blocked >= BLOCKED for load in loads):
        assert found.kind == "stage" and found.stage is not None
        assert not of[found.stage].is_blocked
        assert any(of[source].is_blocked for source, target in edges if target == found.stage)
    if found.stage is not None:
        assert found.stage in found.reason and f"{of[found.stage].busiest:.0%}" in found.reason
        assert (found.kind == "source") == (found.stage not in {target for _, target in edges})
        busier = [replace(load, busiest=1.0) if load.name == found.stage else load for load in loads]
        rivals = [load for load in loads if load.name != found.stage and load.busiest > 0.9]
        assert rivals or bottleneck(busier, edges).stage == found.stage
    held = {source for (source, _), blocked in zip(edges, held_up(loads, edges), strict=True) if blocked}
    assert held == {name for name, load in of.items() if load.is_blocked}
