"""States that migrate between real Ray actors, while records flow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import executors_for_tests as executors
import pyarrow as pa
import pytest

from dpa import Flow
from dpa.result import StageReport

pytestmark = pytest.mark.usefixtures("ray")

ROWS = 1_200
KEYS = "abcdefgh"
MANY_KEYS = 40_000
SOON = {"strategy": "doubling", "report_every": 20, "max_rounds": 2, "min_queue": 1, "check_seconds": 0.0}


def test_sums_so_far_are_right_though_their_states_move_while_records_flow() -> None:
    """The process itself fails on a value that is out of order, and a sum tells whether its state came with it."""
    keys = [KEYS[number * number % len(KEYS)] for number in range(ROWS)]
    limits = {"batch_records": 50, "in_flight_records": 800, "quantum_records": 5}
    report = require_exact_sums(keys, limits, executors.RunningSum(0.001), SOON)
    assert report.records.forwarded > 0


def test_many_states_move_in_pieces_while_records_flow() -> None:
    keys = [number % MANY_KEYS for number in range(3 * MANY_KEYS)]
    balance = {**SOON, "report_every": MANY_KEYS // 4}
    require_exact_sums(keys, {"batch_records": 2_000, "quantum_records": 500}, executors.RunningSum(0.0), balance)


def require_exact_sums(
    keys: Sequence[str | int], limits: dict[str, Any], process: executors.RunningSum, balance: dict[str, Any]
) -> StageReport:
    """Check the sums of 0, 1, 2, ... by these keys, which are redistributed meanwhile; returns the stage's report."""
    flow = Flow(limits=limits)
    rows = flow.read(pa.table({"key": keys, "value": range(len(keys))}), parallelism=1)
    rows.key_by("key").process(process, name="sums", parallelism=3, balance=balance, consistency="migrate")
    result = flow.run()
    so_far: Counter[str | int] = Counter()
    expected = []
    for value, key in enumerate(keys):
        so_far[key] += value
        expected.append({"key": key, "value": value, "so_far": so_far[key]})
    assert sorted(result.table().to_pylist(), key=lambda row: row["value"]) == expected
    report = result.report["sums"]
    assert report.redistributions
    return report
