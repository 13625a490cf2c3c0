"""Compiled loops run with and without a place for numba's cache; other groupings run without numba."""

import subprocess
import sys

import pytest
from numba.core import caching

from dpa.routing.compiled import compiled


def double(number: int) -> int:
    return 2 * number


@pytest.mark.parametrize("lazily", [True, False])
@pytest.mark.parametrize("writable", [True, False])
def test_a_loop_is_compiled_also_where_nothing_can_be_written(
    lazily: bool, writable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not writable:
        monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    loop = compiled(double, None if lazily else "int64(int64)")
    assert loop(21) == 42
    assert loop.signatures


def test_groupings_need_numba_that_say_so_and_no_others() -> None:
    program = """
import sys
sys.modules["numba"] = None
from dpa.routing.groupings.options import BY_KIND
from dpa.routing.ring import TokenRing
table = TokenRing(2, 1).snapshot(0)
for kind, options in BY_KIND.items():
    try:
        options().create(table, 0)
    except ImportError:
        assert options.is_compiled, kind
    else:
        assert not options.is_compiled, kind
"""
    subprocess.run([sys.executable, "-c", program], check=True)
