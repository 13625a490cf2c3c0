"""States that migrate between real Ray actors, while records flow."""

from __future__ import annotations

from collections import Counter
from typing import Any

import executors_for_tests as executors
import pyarrow as pa
import pytest

from dpa import Flow

pytestmark = pytest.mark.usefixtures("ray")

ROWS = 1_200
KEYS = "abcdefgh"
SOON = {"strategy": "doubling", "report_every": 20, "max_rounds": 2, "min_queue": 1, "check_seconds": 0.0}


def test_sums_so_far_are_right_though_their_states_move_while_records_flow() -> None:
    """The process itself fails on a value that is out of order, and a sum tells whether its state came with it."""
    keys = [KEYS[number * number % len(KEYS)] for number in range(ROWS)]
    flow = Flow(limits={"batch_records": 50, "in_flight_records": 800, "quantum_records": 5})
    rows = flow.read(pa.table({"key": keys, "value": range(ROWS)}), parallelism=1)
    options: dict[str, Any] = {"parallelism": 3, "balance": SOON, "consistency": "migrate"}
    rows.key_by("key").process(executors.RunningSum(0.001), name="sums", **options)
    result = flow.run()
    so_far: Counter[str] = Counter()
    expected = []
    for value, key in enumerate(keys):
        so_far[key] += value
        expected.append({"key": key, "value": value, "so_far": so_far[key]})
    assert sorted(result.table().to_pylist(), key=lambda row: row["value"]) == expected
    report = result.report["sums"]
    assert report.redistributions and report.records.forwarded > 0
