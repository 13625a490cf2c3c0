"""What a finished job gives back: its results and its report."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from dpa.errors import JobFailedError, ReferenceMismatchError, TableError
from dpa.result._report import Report
from dpa.result._stage import OutputReport
from dpa.result.run_content import TELLING, ended, stages, summary
from dpa.result.text import Fact
from dpa.sinks.sink import Sink

if TYPE_CHECKING:
    import polars as pl


def when_written(output: OutputReport) -> tuple[int, ...] | None:
    """When each file of a result was written, in nanoseconds: a later result in the same directory has other times.
    None if files are missing."""
    try:
        return tuple((Path(output.path or "") / name).stat().st_mtime_ns for name in output.files)
    except OSError:
        return None


def _read(output: OutputReport, sink: Sink | None) -> pa.Table:
    """The rows of files: as the sink reads them, or else of Parquet in a directory.

    Raises:
        TableError: the sink that took them names no files.
    """
    import pyarrow.parquet as pq

    if not output.files:
        raise TableError(f"the result went to {output.path}: read it there")
    if sink is not None:
        return sink.read(output.files)
    return pa.concat_tables([pq.read_table(Path(output.path or "") / name) for name in output.files])


@dataclass(frozen=True)
class Result:
    """A finished job: `table()` is a result, `report` says how it came about, and `events` are those of a failed job,
    as `JobFailedError` has them."""

    report: Report
    # By stage: results in memory; `when_written` of the others at the end; the key that says where a result goes; and
    # the sinks of results that are files.
    _tables: Mapping[str, pa.Table] = field(default_factory=dict, repr=False)
    _written: Mapping[str, tuple[int, ...] | None] = field(default_factory=dict, repr=False)
    events: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    _keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    _sinks: Mapping[str, Sink] = field(default_factory=dict, repr=False)

    @property
    def unsaved(self) -> tuple[str, pa.Table] | None:
        """The last result that is written nowhere and is lost with this object, and the key of the job that would have
        it written. None if all are written."""
        if self.report.status == "failed" or not self._tables:
            return None
        stage, table = list(self._tables.items())[-1]
        return self._keys[stage], table

    def table(self, stage: str | None = None) -> pa.Table:
        """The result of a stage as one Arrow table, read from its directory if it was written there. Without a name: of
        the only stage that has one.

        Raises:
            JobFailedError: the job failed, so there is no result.
            TableError: the result is no longer in its directory, the stage has none, or there are several and none is
                named.
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
            table = self._tables[name] if name in self._tables else _read(output, self._sinks.get(name))
        except FileNotFoundError:
            raise TableError(gone) from None
        if self._written.get(name) not in (None, when_written(output)):
            raise TableError(gone)
        return table

    def polars(self, stage: str | None = None) -> pl.DataFrame:
        """What `table` returns as a DataFrame of polars."""
        import polars

        return polars.DataFrame(self.table(stage))

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
        table = stages(self.report)
        limit = [Fact("bottleneck", self.report.bottleneck.reason)] * (self.report.seconds.stream >= TELLING)
        known = [Fact("status", ended(self.report)), *summary(self.report), *limit]
        lines = [(fact.name, " ".join(filter(None, (fact.value, fact.remark)))) for fact in known]
        for row in table.rows:
            pairs = zip(table.head, row, strict=True)
            named = [f"{cell} {title.strip('#s' if cell == '1' else '#')}" for title, cell in pairs][1:7]
            lines.append((str(row[0]), ", ".join(part for part in named if not part.startswith(" "))))
        return lines

    def __repr__(self) -> str:
        known = self._facts()
        width = max(len(name) for name, _ in known)
        facts = "\n".join(f"  {name:<{width}} {value}" for name, value in known)
        return f"Result of {self.report.name}\n{facts}"

    def _repr_html_(self) -> str:
        facts = ((html.escape(name), html.escape(value)) for name, value in self._facts())
        rows = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in facts)
        return f"<table><caption>{html.escape(self.report.name)}</caption>{rows}</table>"
