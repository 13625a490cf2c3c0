"""Partial results of jobs on real Ray actors, read while they run."""

import threading
from collections import Counter
from pathlib import Path

import executors_for_tests as executors
import pyarrow as pa
import pytest
from observers_for_tests import Awaiting

from dpa import Job, Results, results
from dpa.errors import TableError
from dpa.telemetry.tracker import TrackedSnapshot


class Reader(threading.Thread):
    """Reads partial results again and again, and keeps what it has not seen yet."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.found: list[Results] = []
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.02):
            try:
                found = results(self.path)
            except TableError:
                assert not self.found  # there is no way back to nothing
                continue
            if not self.found or found.epoch != self.found[-1].epoch:
                self.found.append(found)

    def __enter__(self) -> "Reader":
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        self.join()


def counts(table: pa.Table) -> Counter[str]:
    if not table.num_rows:
        return Counter()
    keys = table["key"].to_pylist()
    assert len(set(keys)) == len(keys)
    return Counter(dict(zip(keys, table["count"].to_pylist(), strict=True)))


@pytest.mark.usefixtures("ray")
def test_results_so_far_only_grow_while_a_hot_key_is_split_and_the_result_is_right(tmp_path: Path) -> None:
    """Although the reducer's `finish` changes the state."""
    keys = ["hot" if number % 5 else f"cold {number % 7}" for number in range(3_000)]
    go = tmp_path / "go"
    with Reader(tmp_path / "so-far") as reader:

        def are_seen(snapshot: TrackedSnapshot) -> bool:
            decisions = (decision for stage in snapshot.stages for decision in stage.decisions)
            return len(reader.found) >= 3 and any(decision.split for decision in decisions)

        result = Job(
            input=pa.table({"key": keys}),
            key="key",
            value=[],
            reducer=executors.TakenCount(0.01, str(go)),
            parallelism={"mappers": 1, "reducers": 3},
            balance={"strategy": "adaptive", "check_seconds": 0.25, "first_table": "ring"},
            output=[{}, {"path": str(tmp_path / "so-far"), "publish": {"mode": "table", "every": 0.4}}],
            limits={"batch_records": 20, "in_flight_records": 100, "split_records": 100, "quantum_seconds": 0.05},
        ).run(Awaiting(go, are_seen))
    assert counts(result.table()) == Counter(keys)
    main = result.report.main
    [first, *_] = [decision for decision in main.redistributions if decision.split]
    assert "split key 'hot' over" in first.reason and main.hot_keys[0].key == "hot"
    assert main.skew.dpa < main.skew.static / 2
    aggregation = result.report.main.aggregation
    assert aggregation is not None
    assert aggregation.epochs >= 3 and aggregation.seconds > 0 and aggregation.states > 0
    assert len(reader.found) >= 3
    ended, spent, latency = result.report.epochs, result.report.main.record_times, result.report.main.latency
    assert ended.rows > 0 and ended.visible_after is not None and spent is not None and latency is not None
    assert 0 < ended.visible_after < result.report.seconds.stream
    assert sum((spent.made, spent.credit, spent.queued, spent.work)) == pytest.approx(latency.mean)
    assert [found.seconds for found in reader.found] == sorted(found.seconds for found in reader.found)
    before: Counter[str] = Counter()
    for found in reader.found:
        so_far = counts(found.table)
        assert before <= so_far <= Counter(keys)
        before = so_far
    assert counts(reader.found[0].table) < before
    last = results(tmp_path / "so-far")
    assert last.is_last and last.epoch > aggregation.epochs and counts(last.table) == Counter(keys)
    assert last.polars()["count"].sum() == last.pandas()["count"].sum() == len(keys)
