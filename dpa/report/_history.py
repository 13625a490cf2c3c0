"""Reports of earlier runs: those that `dpa run` keeps for its user, and those in directories."""

import json
import math
import os
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from dpa._secrets import hidden
from dpa._util.disk import write_file
from dpa._util.version import REPORT
from dpa.report._files import ReportError, to_json
from dpa.result import Report

_MOST = 100  # reports that are kept of a user's runs, the newest


class EarlierRun(NamedTuple):
    """A report, its file, and when that was written, in local time."""

    path: Path
    ended: datetime
    report: Report

    @classmethod
    def read(cls, path: Path) -> "EarlierRun":
        """ReportError if this is no report, or one of another version."""
        try:
            data = json.loads(path.read_bytes(), parse_constant=_finite, parse_float=_finite)
            if data["schema"] == REPORT:
                ended = datetime.fromtimestamp(path.stat().st_mtime)
                return cls(path, ended, _reports().validate_python(data))
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            pass
        raise ReportError(f"{path}: no report of a run, or one of another version (not {REPORT})")


@cache  # it takes longer to make than a report to read
def _reports() -> TypeAdapter[Report]:
    return TypeAdapter(Report)


def keep(report: Report) -> None:
    """Keep a report, readable for its user alone. What cannot be written is not kept."""
    if os.environ.get("DPA_HISTORY") == "0":
        return
    with suppress(OSError, RuntimeError):  # there may be no home directory
        place = _history()
        place.mkdir(0o700, parents=True, exist_ok=True)
        kept = replace(report, error=report.error and hidden(report.error))
        write_file(place / f"{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}.json", to_json(kept), mode=0o600)
        for old in sorted(place.glob("*.json"))[:-_MOST]:
            old.unlink(missing_ok=True)


def earlier_runs(directory: Path | None = None) -> list[EarlierRun]:
    """Of this user, or of the reports in a directory and up to two below it; the newest first."""
    where = [_history().glob("*.json")] if directory is None else map(directory.glob, _REPORTS)
    runs = []
    for path in (path for paths in where for path in paths):
        with suppress(ReportError):
            runs.append(EarlierRun.read(path))
    return sorted(runs, key=lambda run: run.ended, reverse=True)


def _finite(number: str) -> float:
    if math.isfinite(found := float(number)):
        return found
    raise ValueError(f"{number} is no number in JSON")


_REPORTS = ("report.json", "*/report.json", "*/*/report.json")


def _history() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "dpa" / "runs"
