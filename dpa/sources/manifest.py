"""Stands beside a result whose files cannot be replaced together, and says which of the files there are the result."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from dpa._util.lines import Line
from dpa.errors import TableError

MANIFEST = "_manifest.json"
"""Its name; readers of Parquet directories ignore names with an underscore."""

_SCHEMA = "dpa-result-1"


@dataclass(frozen=True)
class ResultManifest:
    """The result at a place, and who may replace it.

    Attributes:
        files: the names of its files, in the order of their epochs; None: there is no result yet.
        job: whose it is.
        epoch: the newest one committed.
        config: that job's resolved configuration, as YAML.
        writer: the last to begin writing there; only it can commit.
        claimed_by: the last job to begin writing there.
        publishes: what is published by epoch: `final`, `changes` or `table`; None: there are no epochs.
        key: the columns of its key.
        life: changes when the job starts over at the start of its input.
        seconds: from the beginning of the stream to the end of that epoch.
        is_last: whether the job will commit no more.
        before: names of files of the previous result, which may still be read.
        line: who made the epochs before the last, if they are committed with checkpoints.
        before_last: the newest epoch before the last one, once that is committed.
        columns: those of the result as text, where its files do not say all of them.
    """

    files: tuple[str, ...] | None = None
    job: str = ""
    epoch: int = 0
    config: str = ""
    writer: str = ""
    claimed_by: str = ""
    publishes: str | None = None
    key: tuple[str, ...] = ()
    life: str = ""
    seconds: float = 0.0
    is_last: bool = False
    before: tuple[str, ...] = ()
    line: Line = ()
    before_last: int = 0
    columns: str | None = None

    def to_json(self) -> bytes:
        return json.dumps({"schema": _SCHEMA, **asdict(self)}, indent=1).encode()

    @classmethod
    def parse(cls, text: bytes, place: str) -> ResultManifest:
        """Read a manifest; `place` is its own, for messages. Raises TableError if it is damaged, or of an unknown
        version."""
        try:
            found: dict[str, Any] = json.loads(text)
            schema = found.pop("schema")
            files = found.pop("files")
            key, before = (tuple(map(str, found.pop(name, ()))) for name in ("key", "before"))
            line = tuple((int(first), str(maker)) for first, maker in found.pop("line", ()))
            read = cls(None if files is None else tuple(map(str, files)), key=key, before=before, line=line, **found)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise TableError(
                f"{place} is no manifest of a result: it was damaged, or something else wrote it"
            ) from None
        if schema != _SCHEMA:
            raise TableError(f"{place} is a manifest of another version, {schema!r}: read it with what has written it")
        return read
