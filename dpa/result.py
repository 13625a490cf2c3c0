"""What a finished job gives back: the result table and the report, a tree of plain dataclasses.

`Report` is the one description of a run: `report.json` is `Report.to_dict()`, and every screen and picture in
`dpa.report` is drawn from it.
"""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpa.balance.decision import Decision
from dpa.errors import JobFailedError, ReferenceMismatchError, TableError
from dpa.protocol.metrics import AggregationStats, LoadSample
from dpa.routing.keys import Key, in_words


@dataclass(frozen=True)
class RecordCounts:
    """`read`: input rows. `mapped`: pairs the mapper made. `emitted`: pairs pushed (fewer under a combiner).
    `processed`: pairs reduced, equal to `emitted` at the end. `forwarded`: pairs passed from one reducer to another,
        each time counted."""

    read: int = 0
    mapped: int = 0
    emitted: int = 0
    processed: int = 0
    forwarded: int = 0


@dataclass(frozen=True)
class ReducerReport:
    """One reducer: records processed and forwarded, its share of all processed (0 to 1), longest queue (records),
    keys in its result, seconds in user code, the latency (seconds) that 99 % of its records did not exceed, and keys
    that it held before states were merged."""

    id: int
    processed: int
    share: float
    forwarded: int
    peak_queue: int
    keys: int
    busy_seconds: float
    latency_p99: float | None = None
    states: int = 0


@dataclass(frozen=True)
class GroupingReport:
    """How mappers chose the reducer of a record. `replication`: how many reducers held a key on average before states
    were merged (the CG paper's memory cost), or None where nothing was processed, or rounds of aggregation merged
    states before. `moved`: how often a mapper gave a part of the keys to another reducer because of what reducers
    told."""

    kind: str
    replication: float | None = None
    moved: int = 0


@dataclass(frozen=True)
class SkewReport:
    """The paper's skew S (0 even, 1 all on one reducer) of this run; of the first routing table on the same records;
    of Spark's hash partitioning, or None if it was not asked for."""

    dpa: float
    static: float
    spark: float | None = None


@dataclass(frozen=True)
class ReferenceReport:
    """`checked`: whether a reference was computed. `matches`: None if not. `rows`: rows of the reference.
    `differences`: the first few, in words."""

    checked: bool = False
    matches: bool | None = None
    rows: int | None = None
    differences: tuple[str, ...] = ()


@dataclass(frozen=True)
class Seconds:
    """Wall time by phase: Ray and actors; Spark and splits; the stream; the state merge; reference and baseline;
    everything. `first_record`: from the start of the job to the first record processed."""

    startup: float = 0.0
    load: float = 0.0
    stream: float = 0.0
    merge: float = 0.0
    reference: float = 0.0
    total: float = 0.0
    first_record: float | None = None


@dataclass(frozen=True)
class LatencyReport:
    """Seconds of the processed records from source to processed. A record's source is the moment its mapper began the
    step that read its block's rows, so mapping, waiting for credit, transport, queueing and processing are in it.
    Quantiles within 1 %; longest and mean exactly, up to the difference of the machines' clocks."""

    p50: float
    p95: float
    p99: float
    max: float
    mean: float


@dataclass(frozen=True)
class HotKey:
    """A frequent key: `records` the mapper made of it, between `lower` and `upper` (equal where counted exactly), and
    their share of all mapped records."""

    key: Key
    records: int
    share: float
    lower: int
    upper: int


_ALONE = 1.0
"""A key with more than this part of a reducer's even share is hot, however many keys there are."""
_NOTICED, _TIMES_THE_MEAN = 0.1, 3.0
"""So is one with this part of it and so many times the records of the mean key."""


def hot(keys: Sequence[HotKey], distinct: int, reducers: int) -> tuple[HotKey, ...]:
    """Those of the most frequent keys that make a reducer uneven. `distinct` keys are there in all.

    Either a key has more records than a reducer's even share, so that no routing of whole keys is even; or it has a
    tenth of that share and three times the records of the mean key. Keys of equal frequency are not hot, unless
    there are fewer of them than reducers.
    """
    mean = 1 / distinct if distinct else 0.0
    return tuple(
        key
        for key in keys
        if key.share * reducers > _ALONE or (key.share * reducers >= _NOTICED and key.share >= _TIMES_THE_MEAN * mean)
    )


@dataclass(frozen=True)
class KeyDistribution:
    """How unequal the keys are: of `distinct` keys, the `ranks[i]` most frequent hold `cumulative_share[i]` of the
    mapped records."""

    distinct: int = 0
    ranks: tuple[int, ...] = ()
    cumulative_share: tuple[float, ...] = ()


@dataclass(frozen=True)
class OutputReport:
    """Where the result lies (`path` is None if it stayed in memory, or the job failed), in how many rows and files.
    `unpublished`: of a failed job, the directory in which nothing was published, or None if it has none."""

    path: str | None = None
    rows: int = 0
    files: tuple[str, ...] = ()
    unpublished: str | None = None


def when_written(output: OutputReport) -> tuple[int, ...] | None:
    """When each file of a result was written, in nanoseconds, which tells it from a later one in the same directory;
    None if they are not all there."""
    try:
        return tuple((Path(output.path or "") / name).stat().st_mtime_ns for name in output.files)
    except OSError:
        return None


@dataclass(frozen=True)
class Report:
    """One run of one job. `status` is `ok`, `failed` or `mismatch`; `records_per_second` are mapped records by stream
    seconds; `latency` is None where nothing was processed, or the job failed before its states were merged;
    `aggregation` is None if the job has no rounds of it."""

    status: str
    name: str
    records: RecordCounts
    reducers: tuple[ReducerReport, ...]
    skew: SkewReport
    grouping: GroupingReport
    redistributions: tuple[Decision, ...]
    decisions: tuple[Decision, ...]
    decision_counts: dict[str, int]
    reference: ReferenceReport
    seconds: Seconds
    records_per_second: float
    latency: LatencyReport | None
    hot_keys: tuple[HotKey, ...]
    key_distribution: KeyDistribution
    output: OutputReport
    config: dict[str, Any]
    versions: dict[str, str]
    samples: tuple[LoadSample, ...] = ()
    aggregation: AggregationStats | None = None
    error: str | None = None

    @property
    def is_stale(self) -> bool:
        """Whether the counts were told by each task at another moment: the job failed while records were on their way,
        so more may have been read and processed, and more be processed than emitted."""
        return self.status == "failed" and self.records.processed != self.records.emitted

    @property
    def static_skew(self) -> float | None:
        """`skew.static`; None where no mapper has told of its records: a job that failed soon, or without records."""
        return self.skew.static if self.records.mapped else None

    @property
    def hot(self) -> tuple[HotKey, ...]:
        """Those of `hot_keys` that make a reducer uneven, by the rule of `hot`: what screens show."""
        return hot(self.hot_keys, self.key_distribution.distinct, len(self.reducers))

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready plain data, with `schema` naming its version (docs/report.md)."""
        return {"schema": "dpa-report-1", **dataclasses.asdict(self)}


@dataclass(frozen=True)
class Result:
    """A finished job: `table()` is the result, `report` tells how it came about. `_written` is what
    `when_written` said when it ended."""

    report: Report
    _table: pa.Table | None = field(default=None, repr=False)
    _written: tuple[int, ...] | None = field(default=None, repr=False)

    @property
    def is_kept(self) -> bool:
        """Whether nothing is lost with this object: the result was written to a directory, or there is none."""
        return self.report.status == "failed" or self.report.output.path is not None

    def table(self) -> pa.Table:
        """The result as one Arrow table, a row a key; read from the output directory if it was written there.

        Raises:
            JobFailedError: the job failed, so there is no result.
            TableError: the result is no longer in its directory.
        """
        if self.report.status == "failed":
            raise JobFailedError(f"{self.report.name} failed, so it has no result: {self.report.error}")
        output = self.report.output
        gone = f"{output.path}: the result of {self.report.name} was replaced or removed after the job had ended"
        try:
            table = self.reader(self._table, output)()
        except FileNotFoundError:
            raise TableError(gone) from None
        if self._written not in (None, when_written(output)):
            raise TableError(gone)
        return table

    @staticmethod
    def reader(table: pa.Table | None, output: OutputReport) -> Callable[[], pa.Table]:
        """A function that gives the result: the table in memory, or what was written to the output directory."""

        def read() -> pa.Table:
            if table is not None:
                return table
            assert output.path is not None
            import pyarrow.parquet as pq

            return pa.concat_tables([pq.read_table(Path(output.path) / name) for name in output.files])

        return read

    def check(self) -> Result:
        """Return self if the job ended well.

        Raises:
            JobFailedError: it failed.
            ReferenceMismatchError: its result differs from the reference.
        """
        if self.report.status == "failed":
            raise JobFailedError(self.report.error or "the job failed")
        if self.report.status == "mismatch":
            raise ReferenceMismatchError("\n".join(self.report.reference.differences))
        return self

    def _facts(self) -> list[tuple[str, str]]:
        report = self.report
        static = "not known" if report.static_skew is None else f"{report.static_skew:.3f}"
        spark = "" if report.skew.spark is None else f", Spark {report.skew.spark:.3f}"
        matches = {None: "not checked", True: "match", False: "MISMATCH"}[report.reference.matches]
        return [
            ("status", report.status),
            (
                "records",
                f"{report.records.processed:,} in {report.seconds.stream:.2f} s ({report.records_per_second:,.0f}/s)",
            ),
            ("latency", self._latency()),
            ("keys", f"{report.output.rows:,}"),
            ("skew S", f"{report.skew.dpa:.3f} (static {static}{spark})"),
            ("redistributions", f"{len(report.redistributions)}, {report.records.forwarded:,} forwards"),
            ("hot keys", ", ".join(f"{in_words(hot.key)} {hot.share:.1%}" for hot in report.hot[:3]) or "none"),
            ("reference", matches),
        ]

    def _latency(self) -> str:
        found = self.report.latency
        if found is None:
            return "not measured"
        return ", ".join(f"{name} {getattr(found, name):.3f} s" for name in ("p50", "p95", "p99", "max"))

    def __repr__(self) -> str:
        facts = "\n".join(f"  {name:<16}{value}" for name, value in self._facts())
        return f"Result of {self.report.name}\n{facts}"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in self._facts())
        return f"<table><caption>{html.escape(self.report.name)}</caption>{rows}</table>"
