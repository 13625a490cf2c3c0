"""What a finished job gives back: its results and its report."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from dpa.errors import JobFailedError, ReferenceMismatchError, TableError
from dpa.result._report import Report
from dpa.result._stage import OutputReport, SkewReport
from dpa.routing.keys import in_words


def when_written(output: OutputReport) -> tuple[int, ...] | None:
    """When each file of a result was written, in nanoseconds, as a later one in the same directory is another; None if
    they are not all there."""
    try:
        return tuple((Path(output.path or "") / name).stat().st_mtime_ns for name in output.files)
    except OSError:
        return None


def _read(output: OutputReport) -> pa.Table:
    """The rows of a directory.

    Raises:
        TableError: they were given to a sink that names no files.
    """
    import pyarrow.parquet as pq

    if not output.files:
        raise TableError(f"the result went to {output.path}: read it there")
    return pa.concat_tables([pq.read_table(Path(output.path or "") / name) for name in output.files])


@dataclass(frozen=True)
class Result:
    """A finished job: `table()` is a result, `report` says how it came about. `_tables` are the results that stayed in
    memory, by stage; `_written` is what `when_written` returned at the end for those that were written; `events` are
    those of a failed job, as `JobFailedError` has them; `_keys` are those that say where each goes."""

    report: Report
    _tables: Mapping[str, pa.Table] = field(default_factory=dict, repr=False)
    _written: Mapping[str, tuple[int, ...] | None] = field(default_factory=dict, repr=False)
    events: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    _keys: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def unsaved(self) -> tuple[str, pa.Table] | None:
        """The last of the results that are lost with this object, as they were written nowhere, with the key of the job
        that would have it written; None if none is."""
        if self.report.status == "failed" or not self._tables:
            return None
        stage, table = list(self._tables.items())[-1]
        return self._keys[stage], table

    def table(self, stage: str | None = None) -> pa.Table:
        """The result of a stage, by default of the only one that has one, as one Arrow table; read from its directory
        if it was written there.

        Raises:
            JobFailedError: the job failed, so there is no result.
            TableError: the result is no longer in its directory, the stage has none, or none is named of several.
        """
        report = self.report
        if report.status == "failed":
            raise JobFailedError(f"{report.name} failed, so it has no result: {report.error}")
        outputs = {found.name: found.output for found in report.stages if found.output is not None}
        if stage is None and len(outputs) > 1:
            raise TableError(f"{report.name} has several results: name one of {', '.join(outputs)}")
        name = next(iter(outputs), report.main.name) if stage is None else stage
        output = outputs.get(name)
        if output is None:
            raise TableError(f"{report.name} has no result of a stage {name!r}, but of {', '.join(outputs) or 'none'}")
        gone = f"{output.path}: the result of {report.name} was replaced or removed after the job had ended"
        try:
            table = self._tables[name] if name in self._tables else _read(output)
        except FileNotFoundError:
            raise TableError(gone) from None
        if self._written.get(name) not in (None, when_written(output)):
            raise TableError(gone)
        return table

    def check(self) -> Result:
        """Return self if the job ended well.

        Raises:
            JobFailedError: it failed.
            ReferenceMismatchError: its result differs from the reference.
        """
        if self.report.status == "failed":
            raise JobFailedError(self.report.error or "the job failed", self.events)
        if self.report.status == "mismatch":
            raise ReferenceMismatchError("\n".join(self.report.reference.differences))
        return self

    def _facts(self) -> list[tuple[str, str]]:
        report = self.report
        applied = [stage.redistributions for stage in report.operators]
        matches = {None: "not checked", True: "match", False: "MISMATCH"}[report.reference.matches]
        return [
            ("status", report.status),
            (
                "records",
                f"{report.records.processed:,} in {report.seconds.stream:.2f} s ({report.records_per_second:,.0f}/s)",
            ),
            ("latency", self._latency()),
            ("bottleneck", report.bottleneck.reason),
            *(self._stages() if report.is_graph else self._only_stage()),
            ("redistributions", f"{sum(map(len, applied))}, {report.records.forwarded:,} forwards"),
            ("reference", matches),
        ]

    def _only_stage(self) -> list[tuple[str, str]]:
        """Of the only operator stage."""
        stage = self.report.main
        output, skew = stage.output or OutputReport(), stage.skew or SkewReport()
        static = "not known" if stage.static_skew is None else f"{stage.static_skew:.3f}"
        spark = "" if skew.spark is None else f", Spark {skew.spark:.3f}"
        return [
            ("keys", f"{output.rows:,}"),
            ("skew S", f"{skew.dpa:.3f} (static {static}{spark}); 0 is even, 1 is all on one task"),
            ("hot keys", ", ".join(f"{in_words(hot.key)} {hot.share:.1%}" for hot in stage.hot[:3]) or "none"),
        ]

    def _stages(self) -> list[tuple[str, str]]:
        """A line for each stage of a graph."""
        report = self.report
        return [
            (
                stage.name,
                f"tasks {stage.present}, {report.taken_in(stage.name):,} in, {report.given_out(stage.name):,} out, "
                f"busy {stage.load.busy:.0%}" + (f", S {stage.skew.dpa:.3f}" if stage.skew else ""),
            )
            for stage in report.stages
        ]

    def _latency(self) -> str:
        found = self.report.main.latency
        if found is None:
            return "not measured"
        return ", ".join(f"{name} {getattr(found, name):.3f} s" for name in ("p50", "p95", "p99", "max"))

    def __repr__(self) -> str:
        known = self._facts()
        width = max(len(name) for name, _ in known)
        facts = "\n".join(f"  {name:<{width}} {value}" for name, value in known)
        return f"Result of {self.report.name}\n{facts}"

    def _repr_html_(self) -> str:
        facts = ((html.escape(name), html.escape(value)) for name, value in self._facts())
        rows = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in facts)
        return f"<table><caption>{html.escape(self.report.name)}</caption>{rows}</table>"
