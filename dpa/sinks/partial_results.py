"""Partial results on disk: a directory of Parquet for each round of aggregation, and a small file that names the newest
complete one. That file is replaced by renaming, so a reader never sees an incomplete round.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpa._util import owned
from dpa._util.disk import writing
from dpa._util.links import is_of_file_system
from dpa.errors import ExecutorError, KeyTypeError, TableError
from dpa.execution.schemas import one_table
from dpa.sinks._replacement import PART, part_name, shown
from dpa.sinks.sink import Sink

LATEST = "LATEST"
_BESIDE = ".LATEST.new"
LOCK = ".lock"
"""The file whose lock a job holds while it publishes here."""

_ROUND = re.compile(r"round-(\d{6,})")


@dataclass(frozen=True, eq=False)
class PartialResults:
    """The result of a running job as of its newest complete round of aggregation.

    Attributes:
        table: the key column and the result columns, a row a key; without columns if there are no keys yet.
        round: number of the round, from 1.
        seconds: since the stream began. Each record processed by then is in the table once; some that were processed a
            little later may be too.
    """

    table: pa.Table
    round: int
    seconds: float


class RoundsDirectory(Sink):
    """A directory of rounds, which has one owner at a time. An epoch is a round; the last two stay when a job ends."""

    def __init__(self, path: str) -> None:
        self._given = path
        self._path = Path(path).absolute()
        self._lock = ExitStack()

    def __getstate__(self) -> dict[str, Any]:
        return {"_path": self._path}

    @property
    def place(self) -> str:
        return str(self._path)

    def check(self) -> None:
        strangers = _strangers_in(self._path) if self._path.exists() else []
        strangers = [name for name in strangers if not is_of_file_system(self._path / name)]
        if strangers:
            holds = f"{self._given} holds {shown(strangers)}, no round of aggregation"
            raise TableError(f"{holds}; name another directory")

    def begin(self) -> None:
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            self._lock.enter_context(owned.held(self._path / LOCK))
        except BlockingIOError:
            why = f"another job publishes its partial results in {self._path} now"
            raise TableError(f"{why}; wait for its end, or name another directory") from None
        except OSError as error:
            raise TableError(f"cannot write there: {error}") from None

    def clear(self) -> None:
        """Remove the rounds of an older run, and before them the file that names the newest."""
        try:
            for name in (LATEST, _BESIDE):
                (self._path / name).unlink(missing_ok=True)
            for place in rounds_in(self._path).values():
                _remove(place)
        except OSError as error:
            raise TableError(f"cannot remove the rounds that are there: {error}") from None

    def stage(self, rows: pa.Table, task: int, epoch: int) -> int:
        """Write a task's share of a round; an empty one leaves no file. Returns the number of rows."""
        if rows.num_rows:
            place = _round_directory(self._path, epoch)
            with writing(place):
                place.mkdir(parents=True, exist_ok=True)
                pq.write_table(rows, place / part_name(task))
        return int(rows.num_rows)

    def commit(self, staged: Sequence[int], epoch: int, seconds: float) -> Sequence[str]:
        """Name a round as the newest complete one, and delete all but this and the one before it."""
        parts = tuple(part_name(task) for task, rows in enumerate(staged) if rows)
        latest = {"round": epoch, "seconds": seconds, "rows": sum(staged), "parts": parts}
        beside = self._path / _BESIDE
        with writing(beside):
            beside.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(json.dumps(latest) + "\n", encoding="utf-8")
            beside.replace(self._path / LATEST)
        for number, place in rounds_in(self._path).items():
            if number < epoch - 1:
                with suppress(OSError):
                    _remove(place)
        return parts

    def abort(self) -> None:
        self._lock.close()


def partial_results(path: str | Path) -> PartialResults:
    """Read the newest complete round of a job; `path` is the job's `aggregation.path`.

    Raises:
        TableError: no round is complete yet, there is no such directory, or results of two reducers have different
            types.
    """
    directory = Path(path)
    latest, before = _latest(directory), None
    while latest != before:
        try:
            return PartialResults(_read(directory, latest), latest["round"], latest["seconds"])
        except FileNotFoundError:  # deleted meanwhile, if two newer rounds are complete
            latest, before = _latest(directory), latest
    raise TableError(f"{directory}: round {latest['round']} lacks files; they were removed")


def rounds_in(directory: Path) -> dict[int, Path]:
    """The directories of rounds, by number."""
    folders = (place for place in directory.iterdir() if place.is_dir() and not place.is_symlink())
    found = {place: _ROUND.fullmatch(place.name) for place in folders}
    return {int(match.group(1)): place for place, match in found.items() if match}


def _strangers_in(directory: Path) -> list[str]:
    """The relative paths of what is in a directory and belongs to no round."""
    rounds = list(rounds_in(directory).values())
    known = {LATEST, _BESIDE, LOCK, *(place.name for place in rounds)}
    strangers = [place for place in directory.iterdir() if place.name not in known]
    strangers += [part for place in rounds for part in place.iterdir() if not PART.fullmatch(part.name)]
    return sorted(str(place.relative_to(directory)) for place in strangers)


def _remove(place: Path) -> None:
    """Remove a round, but nothing that was put beside its parts."""
    for part in place.iterdir():
        if PART.fullmatch(part.name):
            part.unlink()
    place.rmdir()


def _latest(directory: Path) -> dict[str, Any]:
    """The description of the newest complete round."""
    try:
        latest: dict[str, Any] = json.loads((directory / LATEST).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise TableError(f"{directory} has no complete round of aggregation, or not yet") from None
    return latest


def _read(directory: Path, latest: dict[str, Any]) -> pa.Table:
    """The table of a round."""
    place = _round_directory(directory, latest["round"])
    parts = [pq.read_table(place / name, partitioning=None) for name in latest["parts"]]
    try:
        return one_table(parts, key=parts[0].column_names[0] if parts else "")
    except (ExecutorError, KeyTypeError) as error:
        raise TableError(f"{directory}: round {latest['round']} is no table, nor will the result be: {error}") from None


def _round_directory(directory: Path, number: int) -> Path:
    return directory / f"round-{number:06d}"
