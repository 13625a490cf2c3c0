"""A result as an Iceberg table (the `pyiceberg` package, without a JVM).

Rows travel to the driver, which writes and commits them in one transaction, with the job and the epoch in the
snapshot's summary and in a property of the table. The catalog refuses a commit that another one has overtaken.
`pyiceberg` would then add the rows again, even if the other commit was the same epoch from another driver. So its
retries are off, and each of our tries looks first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dpa._util.lines import from_text
from dpa.errors import TableError
from dpa.sinks._conforming import conformed, of_new_table, storable
from dpa.sinks._packages import EPOCH, LAST, LIFE, LINE, SECONDS, TableSink
from dpa.sinks.reading import Format, TableEpochs
from dpa.sinks.sink import Newest, Target, together

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table, Transaction

_COMMITTED = "dpa.committed"
"""The property of a table, and of a snapshot's summary: `LIFE/EPOCH`, of a job's last epoch `JOB/0`."""

_BEFORE_LAST = "dpa.before_last"  # the property that a job's last epoch has, too: the newest epoch before it
_JOB = "dpa.job"  # the property of a table that names the job which publishes its epochs
_FORMAT = 2  # the newest version of the format that `pyiceberg` writes
_NO_PARTITIONS = ("uuid", "time")  # types that `pyiceberg` transforms, but cannot name partitions by
_TRIES = 5  # of a commit that others have overtaken


class Iceberg(TableSink):
    """An Iceberg table."""

    kind = ("Iceberg", "pyiceberg")
    _columns: pa.Schema | None = None

    def __init__(self, to: Target) -> None:
        """TableError if the path is no name of a table. `to.args` go beside what `pyiceberg` is configured with."""
        super().__init__(to)
        self._path = to.path
        self._catalog_name, _, self._identifier = to.path.partition(".")
        if not all(to.path.split(".")) or to.path.count(".") < 2:
            raise TableError(f"{to.path!r} names no table: write CATALOG.NAMESPACE.TABLE")

    def __getstate__(self) -> dict[str, Any]:
        """All of it where epochs are committed. For tasks alone little: they stage nothing outside of their memory."""
        return vars(self) if self.publishes is not None else {"_path": self._path, "_columns": self._columns}

    @property
    def place(self) -> str:
        return self._path

    def check(self) -> None:
        with self.reaching():
            table = self._table(self._catalog())
            self._accept(table)
            self._columns = None if table is None else table.schema().as_arrow()

    def expect(self, columns: pa.Schema) -> None:
        conformed(columns.empty_table(), self._columns or storable(columns, self.place), self.place)

    def begin(self) -> None:
        self.check()
        super().begin()

    def stage(self, rows: pa.Table, task: int, epoch: int) -> pa.Table:
        return conformed(rows, self._columns or storable(rows.schema, self.place), self.place)

    def commit(self, staged: Sequence[pa.Table], epoch: int, seconds: float, *, is_last: bool = False) -> None:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        rows = together(staged)
        with self.reaching():
            catalog = self._catalog()
            for tries_left in reversed(range(_TRIES)):
                table = self._table(catalog)
                if table is not None and self._has(table, epoch, is_last):
                    return
                self._accept(table)
                if not staged and (table is None or (self.publishes != "table" and not is_last)):
                    return
                if table is not None:
                    columns = table.schema().as_arrow()
                    rows = conformed(rows, columns, self.place) if staged else columns.empty_table()
                elif of_new_table(rows, self.place) is None:
                    return
                try:
                    self._write(catalog, table, rows, epoch, seconds, is_last)
                    return
                except (CommitFailedException, TableAlreadyExistsError):
                    if not tries_left:
                        raise
                except Exception:  # it may be there, and only the answer lost
                    there = self._table(catalog)
                    if there is None or not self._has(there, epoch, is_last):
                        raise
                    return

    def newest(self) -> Newest | None:
        with self.reaching():
            table = self.table()
            own = [] if table is None else [*self._own(table)]
            if table is None or not own:
                return None
            line = from_text(next((known[LINE] for known in own if LINE in known), ""))
            epoch, is_last = int(own[0].get(EPOCH, 0)), self._is_over(table)
            return Newest(int(own[0].get(_BEFORE_LAST, 0)) if is_last else epoch, line, is_last)

    def take_back(self, epoch: int, *, is_trial: bool) -> None:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.table.update.snapshot import ManageSnapshots

        with self.reaching():
            table = self.table()
            assert table is not None
            first, line = self._first_after(epoch, _commits(table))
            before = next(each.parent_snapshot_id for each in table.snapshots() if each.snapshot_id == first)
            if before is not None and table.snapshot_by_id(before) is None:
                raise TableError(f"snapshot {before} of {self.place}, from before that, has expired")
            if is_trial:
                return
            about = {_COMMITTED: f"{self._life}/{epoch}", _JOB: self.job, LIFE: self._life, EPOCH: str(epoch)}
            about |= {SECONDS: "0", LINE: line, LAST: str(False)}
            table.metadata.properties["commit.retry.num-retries"] = "0"
            with table.transaction() as transaction:
                transaction.set_properties(about)
                if before is None:
                    transaction.delete(AlwaysTrue(), snapshot_properties=about)
                else:
                    ManageSnapshots(transaction).rollback_to_snapshot(before).commit()

    def read(self, staged: Sequence[pa.Table]) -> pa.Table:
        return pa.concat_tables(staged)

    def _write(
        self, catalog: Catalog, table: Table | None, rows: pa.Table, epoch: int, seconds: float, is_last: bool
    ) -> None:
        committed = {_COMMITTED: f"{self.job}/0" if is_last else f"{self._life}/{epoch}"}
        has_begun = table is not None and self.publishes is not None and table.properties.get(LIFE) == self._life
        if self.publishes is not None:
            committed |= {_JOB: self.job, LIFE: self._life, EPOCH: str(epoch), SECONDS: str(seconds)}
            committed |= self._about(epoch, is_last=is_last) | {LAST: str(is_last)}
            if is_last:
                committed[_BEFORE_LAST] = table.properties[EPOCH] if table is not None and has_begun else "0"
        if table is None:
            catalog.create_namespace_if_not_exists(self._identifier.rpartition(".")[0])
            transaction: Transaction = catalog.create_table_transaction(self._identifier, rows.schema)
        else:
            table.metadata.properties["commit.retry.num-retries"] = "0"  # of this handle, not of the table
            transaction = table.transaction()
        with transaction:
            transaction.set_properties(committed)
            if table is not None and self.replaces(self._mode, has_begun=has_begun):
                transaction.overwrite(rows, snapshot_properties=committed)
            elif rows.num_rows or self.publishes is None:
                transaction.append(rows, snapshot_properties=committed)

    def table(self) -> Table | None:
        return self._table(self._catalog())

    def _catalog(self) -> Catalog:
        from pyiceberg.catalog import load_catalog

        return load_catalog(self._catalog_name, **self._options)

    def _table(self, catalog: Catalog) -> Table | None:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return catalog.load_table(self._identifier)
        except NoSuchTableError:
            return None

    def _accept(self, table: Table | None) -> None:
        """Raise a `TableError` if rows must not go there."""
        from pyiceberg.exceptions import NotInstalledError
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        is_own = table is not None and (self._is_over(table) or table.properties.get(_JOB) == self.job)
        if self._mode == "error" and table is not None and table.current_snapshot() and not is_own:
            raise self._has_rows()
        if table is None:
            return
        if table.format_version > _FORMAT:
            why = f"the table at {self.place} has version {table.format_version} of the format"
            raise TableError(f"{why}, and {_FORMAT} is the newest that can be written; name another table")
        for part in table.spec().fields:
            source = table.schema().find_field(part.source_id)
            try:
                if str(source.field_type) in _NO_PARTITIONS:
                    raise NotImplementedError
                part.transform.pyarrow_transform(source.field_type)(pa.nulls(0, schema_to_pyarrow(source.field_type)))
            except (ImportError, NotInstalledError):
                raise ImportError from None
            except Exception:
                why = f"the table at {self.place} is partitioned by {part.transform} of {source.name!r}"
                what = f"which is {source.field_type}: `pyiceberg` cannot write such partitions"
                raise TableError(f"{why}, {what}; name another table") from None

    def _is_over(self, table: Table) -> bool:
        """Whether the job's last epoch was committed, maybe by a driver that died then."""
        return next(self._own(table), {}).get(_COMMITTED) == f"{self.job}/0"

    def _has(self, table: Table, epoch: int, is_last: bool) -> bool:
        """Whether an epoch of this job was committed, or its last one."""
        newest = int(next(self._own(table), {}).get(_COMMITTED, "/0").rpartition("/")[2])
        return self._is_over(table) or (not is_last and newest >= epoch)

    def _own(self, table: Table) -> Iterator[Mapping[str, str]]:
        """The properties of the table, and of its commits that stand, the newest first, if this life of the job made
        them."""
        for known in (table.properties, *(about for _, about, _ in _commits(table))):
            if known.get(_COMMITTED, "").rpartition("/")[0] in (self._life, self.job):
                yield known

    def newest_epoch(self, table: Table) -> Mapping[str, Any] | None:
        return dict(table.properties) if EPOCH in table.properties else None

    def rows_of(self, table: Table) -> pa.Table:
        return table.scan().to_arrow()


def _commits(table: Table) -> Iterator[tuple[int, Mapping[str, str], bool]]:
    """The snapshots of a table that are not rolled back, the newest first: number, summary, and whether it leaves rows
    as they are."""
    from pyiceberg.table.snapshots import Operation

    snapshot = table.current_snapshot()
    while snapshot is not None:
        summary, parent = snapshot.summary, snapshot.parent_snapshot_id
        known = {} if summary is None else summary.additional_properties
        yield snapshot.snapshot_id, known, summary is not None and summary.operation == Operation.REPLACE
        snapshot = None if parent is None else table.snapshot_by_id(parent)


FORMAT = Format("iceberg", Iceberg, is_directory=False, epochs=lambda to: TableEpochs(Iceberg(to)))
