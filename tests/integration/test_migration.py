"""States that migrate between real Ray actors, while records flow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import executors_for_tests as executors
import pyarrow as pa
import pytest
from observers_for_tests import Awaiting, has_redistributed

from dpa import Flow
from dpa.result import StageReport

pytestmark = pytest.mark.usefixtures("ray")

ROWS = 2_000
KEYS = "abcdefgh"
MANY_KEYS = 40_000
SOON = {"strategy": "doubling", "report_every": 20, "max_rounds": 2, "min_queue": 1, "check_seconds": 0.0}


def test_sums_so_far_are_right_though_their_states_move_while_records_flow(tmp_path: Path) -> None:
    """The process itself fails on a value that is out of order, and a sum tells whether its state came with it."""
    keys = [KEYS[number * number % len(KEYS)] for number in range(ROWS)]
    limits = {"batch_records": 50, "in_flight_records": 800, "quantum_records": 5}
    go = tmp_path / "go"
    report = require_exact_sums(keys, limits, executors.RunningSum(0.02, str(go)), SOON, go)
    assert report.records.forwarded > 0


def test_many_states_move_in_pieces_while_records_flow(tmp_path: Path) -> None:
    keys = [number % MANY_KEYS for number in range(3 * MANY_KEYS)]
    balance, go = {**SOON, "report_every": MANY_KEYS // 4}, tmp_path / "go"
    slow_once_there_are_many = executors.RunningSum(0.001, str(go), 2 * MANY_KEYS)
    require_exact_sums(keys, {"batch_records": 2_000, "quantum_records": 500}, slow_once_there_are_many, balance, go)


def require_exact_sums(
    keys: Sequence[str | int],
    limits: dict[str, Any],
    process: executors.RunningSum,
    balance: dict[str, Any],
    go: Path,
) -> StageReport:
    """Check the sums of 0, 1, 2, ... by these keys, which are redistributed meanwhile, whereupon the file `go` is made;
    returns the stage's report."""
    flow = Flow(limits=limits)
    rows = flow.read(pa.table({"key": keys, "value": range(len(keys))}), parallelism=1)
    rows.key_by("key").process(process, name="sums", parallelism=3, balance=balance, consistency="migrate")
    result = flow.run(Awaiting(go, has_redistributed))
    so_far: Counter[str | int] = Counter()
    expected = []
    for value, key in enumerate(keys):
        so_far[key] += value
        expected.append({"key": key, "value": value, "so_far": so_far[key]})
    assert sorted(result.table().to_pylist(), key=lambda row: row["value"]) == expected
    report = result.report["sums"]
    assert report.redistributions
    return report
