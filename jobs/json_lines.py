"""A sink of one's own: a result as one file of JSON, an object a line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from dpa import Sink


class JsonLines(Sink):
    """A file that is replaced as a whole."""

    def __init__(self, path: str) -> None:
        self.path = Path(path).absolute()

    @property
    def place(self) -> str:
        """The file."""
        return str(self.path)

    def stage(self, rows: pa.Table, task: int, epoch: int) -> str:
        """Write the rows of one task beside the file; returns where."""
        part = self.path.with_name(f".{self.path.name}.{task}")
        with part.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, default=str) + "\n" for row in rows.to_pylist())
        return str(part)

    def commit(self, staged: Sequence[str], epoch: int, seconds: float) -> Sequence[str]:
        """Put all parts into one file, and that into its place by renaming."""
        whole = self.path.with_name(f".{self.path.name}.whole")
        whole.write_text("".join(Path(part).read_text(encoding="utf-8") for part in staged), encoding="utf-8")
        whole.replace(self.path)
        return ()

    def abort(self) -> None:
        """Remove the parts."""
        for part in self.path.parent.glob(f".{self.path.name}.*"):
            part.unlink()

    def read(self, staged: Sequence[str]) -> pa.Table:
        """The rows of the parts."""
        lines = (line for part in staged for line in Path(part).read_text(encoding="utf-8").splitlines())
        return pa.Table.from_pylist([json.loads(line) for line in lines])
