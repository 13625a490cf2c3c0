"""What the report makes of the statistics of a run."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dpa.execution.key_stats import KeyStats
from dpa.protocol.metrics import AggregationStats, MapperStats, ReducerStats, Snapshot
from dpa.result import Report, Seconds
from dpa.summary import report_of


def report(aggregation: AggregationStats | None) -> Report:
    """Of a run by key grouping: four keys on two reducers, one of which held another home's key after a round."""
    snapshot = Snapshot(
        phase="done",
        at=1.0,
        rows=4,
        mappers=(MapperStats(0, 4, 4, 4, (2, 2)),),
        reducers=(ReducerStats(0, processed=2), ReducerStats(1, processed=2)),
        epoch=0,
        decisions=(),
        decision_counts={},
        samples=(),
        aggregation=aggregation,
    )
    stats = KeyStats.of(pa.chunked_array([pa.array(["a", "b", "c", "d"])]), pa.array([1, 1, 1, 1]).to_numpy())
    return report_of(
        status="ok",
        name="job",
        config={"grouping": {"kind": "key"}},
        snapshot=snapshot,
        seconds=Seconds(0.0, 0.0, 1.0, 0.0, 0.0, 1.0),
        keys=[2, 2],
        states=[2, 2] if aggregation is None or not aggregation.rounds else [4, 3],
        stats=stats,
    )


@pytest.mark.parametrize("aggregation", [None, AggregationStats()])
def test_replication_is_states_by_keys(aggregation: AggregationStats | None) -> None:
    assert report(aggregation).grouping.replication == 1


def test_replication_is_unknown_once_a_round_has_moved_states() -> None:
    assert report(AggregationStats(2, 0.1, 3)).grouping.replication is None
