"""What signals of reducers may do to the choices of any grouping, and what they must not."""

from dataclasses import replace

import numpy as np
import pytest
from grouping_cases import CASES, TABLES, Case, every_case, stream_of
from hypothesis import given, settings
from hypothesis import strategies as st

from dpa.routing.groupings.base import CapacityRequest, Signal
from dpa.routing.groupings.options import BY_KIND, KINDS

LISTENING = {name: case for name, case in CASES.items() if case.options.signals}
every_listening_case = pytest.mark.parametrize("case", LISTENING.values(), ids=LISTENING)
utilisations = st.one_of(st.sampled_from([0.0, 1.0, 5e-324, 1e300]), st.floats(0, 1e6))
seconds = st.one_of(st.none(), st.sampled_from([0.0, 5e-324, 1e-9, 1e9]), st.floats(0, 10))
signals = st.builds(
    Signal, st.integers(-1, 20), utilisations, st.sampled_from(CapacityRequest), st.integers(0, 2**40), seconds
)


@every_case
@settings(max_examples=10)
@given(st.lists(st.tuples(st.integers(0, 63), signals), max_size=80))
def test_whatever_reducers_report_choices_go_on_and_are_allowed(case: Case, reported: list[tuple[int, Signal]]) -> None:
    grouping, stream, moved = case.create(), stream_of(8, 300), 0
    for reducer, signal in reported:
        grouping.observe(reducer % case.reducers, signal)
        chosen = grouping.choose(stream[:20])
        assert (chosen >= 0).all()
        assert (chosen < case.reducers).all()
        assert grouping.moved >= moved
        moved = grouping.moved
    assert len(grouping.choose(stream)) == 300


@every_listening_case
def test_neither_one_reducer_alone_nor_all_equally_loaded_ones_change_anything(case: Case) -> None:
    stream = stream_of(9)
    alone, alike = case.create(), case.create()
    for slot in range(50):
        if case.reducers > 1:
            alone.observe(1, Signal(slot, 9.0, CapacityRequest.DECREASE, 1_000, 0.5))
        for reducer in range(case.reducers):
            alike.observe(reducer, Signal(slot, 0.8, CapacityRequest.KEEP, 1_000, 0.001))
    assert alone.moved == alike.moved == 0
    assert alone.choose(stream).tolist() == case.create().choose(stream).tolist()


@every_listening_case
def test_a_signal_that_comes_again_or_late_counts_once(case: Case) -> None:
    once, often, stream = case.create(), case.create(), stream_of(10)
    for slot in range(4):
        for reducer in range(case.reducers):
            request = (CapacityRequest.INCREASE, CapacityRequest.DECREASE)[reducer % 2]
            new = Signal(slot, 0.5 + reducer % 3, request, 1_000, 0.001 + reducer)
            once.observe(reducer, new)
            often.observe(reducer, new)
            often.observe(reducer, new)
            often.observe(reducer, replace(new, slot=slot - 1, utilisation=0.01, service_seconds=50.0))
    assert once.moved == often.moved
    assert once.choose(stream).tolist() == often.choose(stream).tolist()


@pytest.mark.parametrize("odd", [5e-324, 1e-9, 1e6, 1e300])
def test_one_odd_service_time_does_not_leave_a_reducer_without_records_for_long(odd: float) -> None:
    grouping, stream = CASES["weighted_w_choices 5"].create(), stream_of(12, 20_000)
    for slot, seconds in enumerate((odd, 0.001)):
        for reducer in range(5):
            grouping.observe(reducer, Signal(slot, 0.8, CapacityRequest.KEEP, 1_000, 0.001 if reducer else seconds))
        grouping.choose(stream)
    shares = np.bincount(grouping.choose(stream), minlength=5) / len(stream)
    assert shares.tolist() == pytest.approx([0.2] * 5, abs=0.02)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not BY_KIND[kind]().signals])
def test_the_others_do_not_listen(kind: str) -> None:
    grouping, stream = BY_KIND[kind]().create(TABLES[5], 0), stream_of(11)
    for reducer in range(5):
        grouping.observe(reducer, Signal(1, 9.0 * reducer, CapacityRequest.INCREASE, 5, 0.1 * reducer))
    assert grouping.moved == 0
    assert grouping.choose(stream).tolist() == BY_KIND[kind]().create(TABLES[5], 0).choose(stream).tolist()
