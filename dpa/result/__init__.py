"""What a finished job gives back: the results and the report, a tree of plain dataclasses.

`Report` is the one description of a run: `report.json` is `Report.to_dict()`, and every screen and picture in
`dpa.report` is drawn from it.
"""

from dpa.measure.bottleneck import EdgeReport
from dpa.measure.latency import LatencyReport
from dpa.protocol.wire.metrics import RecordCounts
from dpa.result._report import JoinReport, RecoveryReport, Report, Seconds
from dpa.result._result import Result, when_written
from dpa.result._stage import (
    GroupingReport,
    HotKey,
    KeyDistribution,
    LoadShares,
    OutputReport,
    RecordTimes,
    ReferenceReport,
    SkewReport,
    StageReport,
    TaskReport,
    TrafficReport,
    hot,
)

__all__ = [
    "EdgeReport",
    "GroupingReport",
    "HotKey",
    "JoinReport",
    "KeyDistribution",
    "LatencyReport",
    "LoadShares",
    "OutputReport",
    "RecordCounts",
    "RecordTimes",
    "RecoveryReport",
    "ReferenceReport",
    "Report",
    "Result",
    "Seconds",
    "SkewReport",
    "StageReport",
    "TaskReport",
    "TrafficReport",
    "hot",
    "when_written",
]
