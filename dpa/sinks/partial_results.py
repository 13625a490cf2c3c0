"""Partial results on disk: a directory of Parquet for each round of aggregation, and a small file that names the newest
complete one. That file is replaced by renaming, so a reader never sees an incomplete round.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpa._util.disk import writing
from dpa.errors import ExecutorError, KeyTypeError, TableError
from dpa.execution.schemas import one_table

LATEST = "LATEST"
_BESIDE = ".LATEST.new"
LOCK = ".lock"
"""The file whose lock a job holds while it publishes here."""

_ROUND = re.compile(r"round-(\d{6,})")
_PART = re.compile(r"part-\d{5}\.parquet")


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


def write_share(directory: str, round: int, reducer: int, share: pa.Table) -> None:
    """Write a reducer's share of a round; an empty one leaves no file."""
    if share.num_rows:
        place = _round_directory(Path(directory), round)
        with writing(place):
            place.mkdir(parents=True, exist_ok=True)
            pq.write_table(share, place / _part_name(reducer))


def commit(directory: str, round: int, seconds: float, rows: Sequence[int]) -> None:
    """Name a round as the newest complete one, and delete all but this and the one before it; `rows` is the number of
    keys in each share."""
    parts = [_part_name(reducer) for reducer, number in enumerate(rows) if number]
    latest = {"round": round, "seconds": seconds, "rows": sum(rows), "parts": parts}
    beside = Path(directory) / _BESIDE
    with writing(beside):
        beside.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(latest) + "\n", encoding="utf-8")
        beside.replace(Path(directory) / LATEST)
    for number, place in rounds_in(Path(directory)).items():
        if number < round - 1:
            with suppress(OSError):
                _remove(place)


def clear(directory: str) -> None:
    """Remove the rounds of an older run, and before them the file that names the newest."""
    for name in (LATEST, _BESIDE):
        (Path(directory) / name).unlink(missing_ok=True)
    for place in rounds_in(Path(directory)).values():
        _remove(place)


def rounds_in(directory: Path) -> dict[int, Path]:
    """The directories of rounds, by number."""
    folders = (place for place in directory.iterdir() if place.is_dir() and not place.is_symlink())
    found = {place: _ROUND.fullmatch(place.name) for place in folders}
    return {int(match.group(1)): place for place, match in found.items() if match}


def strangers_in(directory: Path) -> list[str]:
    """The relative paths of what is in a directory and belongs to no round."""
    rounds = list(rounds_in(directory).values())
    known = {LATEST, _BESIDE, LOCK, *(place.name for place in rounds)}
    strangers = [place for place in directory.iterdir() if place.name not in known]
    strangers += [part for place in rounds for part in place.iterdir() if not _PART.fullmatch(part.name)]
    return sorted(str(place.relative_to(directory)) for place in strangers)


def _remove(place: Path) -> None:
    """Remove a round, but nothing that was put beside its parts."""
    for part in place.iterdir():
        if _PART.fullmatch(part.name):
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


def _part_name(reducer: int) -> str:
    return f"part-{reducer:05d}.parquet"
