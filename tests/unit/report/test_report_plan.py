"""What `--plan` says of a forecast."""

import io

import pytest

from dpa.driver.forecast import Forecast
from dpa.report._plan import show_plan
from dpa.result import HotKey


def forecast_of(
    loads: tuple[int, ...], hottest: int, strategy: str, grouping: str = "ring", key: str = "a"
) -> Forecast:
    total = sum(loads)
    return Forecast(
        config={"balance": {"strategy": strategy}, "grouping": {"kind": grouping}},
        rows=total,
        sampled=total,
        mapped=total,
        distinct=100,
        tokens=(64,) * len(loads),
        shares=(1 / len(loads),) * len(loads),
        loads=loads,
        skew=(max(loads) - total / len(loads)) / (total - total / len(loads)),
        hot_keys=(HotKey(key, hottest, hottest / total, hottest, hottest),),
    )


def shown(loads: tuple[int, ...], hottest: int, strategy: str, grouping: str = "ring") -> str:
    stream = io.StringIO()
    show_plan(forecast_of(loads, hottest, strategy, grouping), stream, width=100)
    return " ".join(stream.getvalue().split())


@pytest.mark.parametrize(
    ("strategy", "advice"),
    [
        ("adaptive", "it will be split over reducers if its records have to wait, which a combiner may avoid"),
        ("halving", "only the strategy `adaptive`, a grouping that splits keys, or a combiner helps"),
    ],
)
def test_a_key_that_is_more_than_an_even_share_is_named_with_what_helps(strategy: str, advice: str) -> None:
    text = shown((10, 60, 10, 20), 55, strategy)
    assert f"the key a alone is more than one reducer's even share; {advice}" in text


def test_hot_keys_are_left_out_where_none_is() -> None:
    assert "hot keys of the sample a 10.0% 10" in shown((25, 25, 25, 25), 10, "adaptive")
    assert "hot keys" not in shown((25, 25, 25, 25), 1, "adaptive")


def test_an_even_sample_is_said_to_be_even() -> None:
    assert "without balancing: already even" in shown((25, 25, 25, 25), 10, "adaptive")


def test_no_advice_on_a_hot_key_is_given_to_a_grouping_that_splits_keys() -> None:
    text = shown((26, 24, 25, 25), 60, "none", "w_choices")
    assert "skew S 0.013, by the grouping `w_choices`, on reducers of equal speed: already even" in text


class Gone(io.StringIO):
    """A pipe whose reader has gone away."""

    def write(self, text: str) -> int:
        if text:
            raise BrokenPipeError
        return 0


def test_a_plan_that_nobody_reads_any_more_does_not_end_the_process() -> None:
    with pytest.raises(BrokenPipeError):
        show_plan(forecast_of((10, 10), 1, "none"), Gone(), width=100)


def test_a_stream_that_is_not_utf_8_gets_a_plan_with_escapes() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    show_plan(forecast_of((90, 10), 90, "none", key="東京"), stream, width=100)
    assert b"\\u6771" in raw.getvalue()
