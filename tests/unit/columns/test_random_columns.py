"""Random flows of steps on columns give what polars makes of the whole input; DPA_RANDOM_FLOWS says how many."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from random_flows import RandomFlow

from dpa.testing import LocalBackend

FLOWS, CHUNK = int(os.environ.get("DPA_RANDOM_FLOWS", "200")), 40


@pytest.mark.parametrize("first", range(0, FLOWS, CHUNK))
def test_random_steps_give_what_polars_makes_of_the_whole_input(first: int, tmp_path: Path) -> None:
    for seed in range(first, min(first + CHUNK, FLOWS)):
        drawn = RandomFlow.of(seed, tmp_path)
        drawn.check(drawn.flow.run(backend=LocalBackend(), check=False))
