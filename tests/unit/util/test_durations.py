"""Durations are seconds, or texts with a unit."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from dpa._util.durations import Duration

ADAPTER = TypeAdapter(Duration)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(2, 2.0), (0.5, 0.5), (0, 0.0), ("500ms", 0.5), ("1s", 1.0), (" 1.5 m ", 90.0), ("2h", 7_200), ("1d", 86_400)],
)
def test_a_duration_is_seconds_or_a_text_with_a_unit(given: Any, seconds: float) -> None:
    assert ADAPTER.validate_python(given, strict=True) == pytest.approx(seconds)


@pytest.mark.parametrize("given", [-1, "1", "-1s", "1 day", "", "s", True, None, float("inf"), float("nan")])
def test_nothing_else_is_one(given: Any) -> None:
    with pytest.raises(ValidationError):
        ADAPTER.validate_python(given, strict=True)
