"""A sink of one's own: a result as one file of JSON, an object a line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa

from dpa import Sink
from dpa.errors import TableError


class JsonLines(Sink):
    """A file that is replaced as a whole."""

    def __init__(self, path: str) -> None:
        self.path = Path(path).absolute()
        self.parts: Path | None = None

    @property
    def place(self) -> str:
        """The file."""
        return str(self.path)

    def check(self) -> None:
        """Check that there can be such a file."""
        if not self.path.parent.is_dir() or self.path.is_dir():
            raise TableError(f"{self.path} is a directory, or in none that exists; name a file")

    def begin(self) -> None:
        """Make a directory beside the file, for this job's parts alone."""
        self.parts = Path(mkdtemp(prefix=f".{self.path.name}.", dir=self.path.parent))

    def stage(self, rows: pa.Table, task: int, epoch: int) -> str:
        """Write the rows of one task; returns where."""
        assert self.parts is not None
        part = self.parts / f"{task}.json"
        with part.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, default=str) + "\n" for row in rows.to_pylist())
        return str(part)

    def commit(self, staged: Sequence[str], epoch: int, seconds: float, *, is_last: bool = False) -> None:
        """Put all parts into one file, and that into its place by renaming."""
        assert self.parts is not None
        whole = self.parts / "whole.json"
        whole.write_text("".join(Path(part).read_text(encoding="utf-8") for part in staged), encoding="utf-8")
        whole.replace(self.path)

    def abort(self) -> None:
        """Remove the parts."""
        if self.parts is not None:
            shutil.rmtree(self.parts, ignore_errors=True)

    def read(self, staged: Sequence[str]) -> pa.Table:
        """The rows of the parts."""
        lines = (line for part in staged for line in Path(part).read_text(encoding="utf-8").splitlines())
        return pa.Table.from_pylist([json.loads(line) for line in lines])
