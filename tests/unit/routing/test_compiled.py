"""Compiled loops run with and without a place for numba's cache."""

import pytest
from numba.core import caching

from dpa.routing.compiled import compiled, compiled_for


def double(number: int) -> int:
    return 2 * number


@pytest.mark.parametrize("lazily", [True, False])
@pytest.mark.parametrize("writable", [True, False])
def test_a_loop_is_compiled_also_where_nothing_can_be_written(
    lazily: bool, writable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not writable:
        monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    loop = compiled(double) if lazily else compiled_for("int64(int64)")(double)
    assert loop(21) == 42
    assert loop.signatures
