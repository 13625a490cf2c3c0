"""Jobs on real Ray actors whose states are many times as large as the memory that they are given."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from executors_for_tests import RunningSum, SlowSum

from dpa import Flow

pytestmark = pytest.mark.usefixtures("ray")

KEYS, EACH = 10_000, 3


def test_a_job_whose_states_are_larger_than_their_room_has_the_same_result(tmp_path: Path) -> None:
    """Python states that can be merged, and those of a process, which cannot."""
    numbers = range(EACH * KEYS)
    rows = pa.table({"key": [f"key {row % KEYS}" for row in numbers], "value": numbers})
    flow = Flow("spilling", limits={"state_mb": 1, "spill_path": str(tmp_path / "spill")})
    still = {"strategy": "none"}  # so that each task has half of the keys
    by_key = flow.read(rows, parallelism=1).key_by("key")
    by_key.reduce(SlowSum(0.0), name="totals", parallelism=2, balance=still)
    by_key.process(RunningSum(0.0), name="sums", parallelism=2, consistency="migrate", balance=still)
    result = flow.run()
    totals, sums = result.table("totals"), result.table("sums")
    assert (totals.num_rows, sums.num_rows) == (KEYS, EACH * KEYS)
    assert pc.sum(totals["value"]).as_py() == sum(numbers)
    for stage in ("totals", "sums"):
        for task in result.report[stage].tasks:
            assert task.spilled > 0
            assert 0 < task.state_memory < 2 * 2**20
    assert not list((tmp_path / "spill").iterdir())
