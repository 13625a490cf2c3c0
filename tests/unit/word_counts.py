"""A job that counts the words of a file, and an observer that keeps what it is warned of."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpa import Job
from dpa.telemetry.observers import Observer


class Warned(Observer):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def counting(rows: pa.Table, tmp_path: Path, **sections: Any) -> Job:
    """Of rows with a column `word`, which are written unless a file is there."""
    file = tmp_path / "in.parquet"
    if not file.exists():
        pq.write_table(rows, file, row_group_size=50)
    read = {"format": "parquet", "path": str(file)}
    return Job(**{"name": "counts", "input": read, "key": "word", "reducer": "count", **sections})
