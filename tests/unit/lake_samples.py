"""Tables of Delta and Iceberg that others have made, and what jobs do with sinks of them."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from dpa.sinks._iceberg import Iceberg
from dpa.sinks.delta import Delta
from dpa.sinks.sink import Sink, Target
from tests.unit.output_samples import publishing

AT = datetime(2026, 1, 2, 3, 4, 5, 6)
VALUES: dict[pa.DataType, list[Any]] = {
    pa.string(): ["/a b%", "x=y", "ü:'\"\\#?&+;\n{}", "__x", ".", "a/../b", None],
    pa.int32(): [1, -2, None],
    pa.int64(): [2**40, 0, None],
    pa.date32(): [date(2026, 1, 2), date(1969, 12, 31), None],
    pa.timestamp("us"): [AT, datetime(1969, 1, 1), None],
    pa.timestamp("us", "UTC"): [AT.replace(tzinfo=timezone.utc), None],
    pa.bool_(): [True, False, None],
    pa.decimal128(10, 2): [Decimal("1.50"), Decimal("12345678.01"), None],
    pa.float64(): [0.5, -1e-7, 1e22, None],
}
"""Of each type of a partition, values that are not alike."""


def staged(sink: Sink, rows: pa.Table, epoch: int, tasks: int = 2) -> list[Any]:
    """What tasks, each with a copy, have staged of some rows."""
    size = max(1, -(-len(rows) // tasks))
    shares = [rows.slice(at, size) for at in range(0, len(rows), size)]
    copies = [pickle.loads(pickle.dumps(sink)) for _ in shares]
    return [copy.stage(share, task, epoch) for task, (copy, share) in enumerate(zip(copies, shares, strict=True))]


def written(sink: Sink, rows: pa.Table, epochs: Sequence[int] = ()) -> None:
    """What a job does with a sink: the rows are spread over some epochs, or are those of the last one alone."""
    sink.check()
    sink.expect(rows.schema)
    sink.begin()
    numbers = epochs or (1,)
    size = -(-len(rows) // len(numbers))
    for number, epoch in enumerate(numbers):
        sink.commit(staged(sink, rows.slice(number * size, size), epoch), epoch, 1.0, is_last=not epochs)
    sink.abort()


class Lake:
    """A table, made with some columns, and what makes sinks of it."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind, self.path = kind, str(directory / "lake")
        where = f"{directory}/catalog.db"
        self.catalog_options = {"type": "sql", "uri": f"sqlite:///{where}", "warehouse": f"file://{self.path}"}

    @property
    def catalog(self) -> SqlCatalog:
        return SqlCatalog("here", **self.catalog_options)

    def make(self, columns: pa.Schema, by: Sequence[str] = ()) -> None:
        if self.kind == "delta":
            DeltaTable.create(self.path, Schema.from_arrow(columns), partition_by=list(by))
            return
        self.catalog.create_namespace("some")
        table = self.catalog.create_table("some.table", columns)
        with table.update_spec() as update:
            for name in by:
                update.add_identity(name)

    def sink(self, mode: str = "append", publishes: Any = None) -> Delta | Iceberg:
        if self.kind == "delta":
            return publishing(Delta(Target(self.path, mode)), publishes)
        return publishing(Iceberg(Target("here.some.table", mode, self.catalog_options)), publishes)

    def write(self, rows: pa.Table, how: str = "append") -> None:
        """As a job does with that mode; `final`: which adds them by epoch."""
        if how == "final":
            written(self.sink("append", "final"), rows, (1, 2))
        else:
            written(self.sink(how), rows)

    def output(self, mode: str = "append") -> dict[str, Any]:
        path = self.path if self.kind == "delta" else "here.some.table"
        args = {} if self.kind == "delta" else self.catalog_options
        return {"format": self.kind, "path": path, "mode": mode, "args": args}

    def table(self) -> Table:
        """That of Iceberg."""
        return self.catalog.load_table("some.table")

    def read(self) -> pa.Table:
        if self.kind == "delta":
            return DeltaTable(self.path).to_pyarrow_table()
        return self.table().scan().to_arrow()

    def rows(self) -> list[dict[str, Any]]:
        return sorted(self.read().to_pylist(), key=lambda row: row["n"])
