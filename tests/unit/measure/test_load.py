"""Loads as they should be some time after they were measured."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa.measure.load import KeyLoad, Load, TokenLoad


def load(queued: list[float], rates: list[float], service_seconds: float | None = 0.1) -> Load:
    tokens = np.arange(len(queued), dtype=np.uint32)
    hot = (KeyLoad("k", 7, queued[0], rates[0], rates[0], rates[0]),)
    by_token = TokenLoad(tokens, np.array(queued), np.array(rates), hot)
    return Load(round(sum(queued)), 3, service_seconds, by_token=by_token)


def test_what_arrives_is_added_and_what_is_done_is_taken_off_all_tokens_alike() -> None:
    aged = load([30.0, 10.0], [20.0, 0.0]).aged(0.5)  # 10 more of the first, 5 done of 50
    assert aged.queue == 45
    assert aged.by_token is not None
    assert aged.by_token.queued.tolist() == pytest.approx([36.0, 9.0])
    assert aged.by_token.rates.tolist() == [20.0, 0.0]
    assert aged.by_token.hot[0].queued == pytest.approx(36.0)
    assert aged.version == 3


def test_without_a_known_service_time_nothing_is_done_and_without_tokens_nothing_arrives() -> None:
    assert load([30.0], [20.0], None).aged(0.5).queue == 40
    assert Load(40, 0, 0.1).aged(1.0).queue == 30


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1, max_size=5),
    st.floats(1e-6, 10),
    st.floats(0, 100),
)
def test_an_aged_load_is_never_below_nothing_and_adds_up(
    tokens: list[tuple[float, float]], service_seconds: float, seconds: float
) -> None:
    queued, rates = [list(column) for column in zip(*tokens, strict=True)]
    aged = load(queued, rates, service_seconds).aged(seconds)
    assert aged.queue >= 0
    assert aged.by_token is not None
    assert (aged.by_token.queued >= 0).all()
    expected = max(0.0, sum(queued) + seconds * sum(rates) - seconds / service_seconds)
    assert aged.by_token.queued.sum() == pytest.approx(expected, rel=1e-6, abs=1e-3)
