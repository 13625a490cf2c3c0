"""States that migrate between real Ray actors, while records flow."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import executors_for_tests as executors
import pyarrow as pa
import pytest
from observers_for_tests import Awaiting, has_redistributed

from dpa import Flow

pytestmark = pytest.mark.usefixtures("ray")

MANY_KEYS = 40_000
SOON = {"strategy": "doubling", "report_every": MANY_KEYS // 4, "max_rounds": 2, "min_queue": 1, "check_seconds": 0.0}


def test_many_states_move_in_pieces_while_records_flow_and_sums_so_far_stay_right(tmp_path: Path) -> None:
    """The process itself fails on a value that is out of order, and each sum says whether its state came with it."""
    keys, go = [number % MANY_KEYS for number in range(3 * MANY_KEYS)], tmp_path / "go"
    slow_once_there_are_many = executors.RunningSum(0.001, str(go), 2 * MANY_KEYS)
    flow = Flow(limits={"batch_records": 2_000, "quantum_records": 500})
    rows = flow.read(pa.table({"key": keys, "value": range(len(keys))}), parallelism=1)
    options = {"parallelism": 3, "balance": SOON, "consistency": "migrate"}
    rows.key_by("key").process(slow_once_there_are_many, name="sums", **options)
    result = flow.run(Awaiting(go, has_redistributed))
    so_far: Counter[int] = Counter()
    expected = []
    for value, key in enumerate(keys):
        so_far[key] += value
        expected.append({"key": key, "value": value, "so_far": so_far[key]})
    assert sorted(result.table().to_pylist(), key=lambda row: row["value"]) == expected
    report = result.report["sums"]
    assert report.redistributions and report.records.forwarded > 0
