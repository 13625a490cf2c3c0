"""Random flows of steps on columns and aggregates on real Ray actors, where keys move and tasks die, give what polars
makes of the whole input. `DPA_RANDOM_FLOWS_ON_RAY=200` runs as many; by default a few."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from random_flows import RandomFlow

FLOWS = int(os.environ.get("DPA_RANDOM_FLOWS_ON_RAY", "6"))


@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize("seed", range(FLOWS))
def test_a_random_flow_on_ray_gives_what_polars_makes_of_the_whole_input(seed: int, tmp_path: Path) -> None:
    drawn = RandomFlow.of(seed, tmp_path, rows=(40, 400, 3_000), on_ray=True)
    drawn.check(drawn.flow.run(check=False))
