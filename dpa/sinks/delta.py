"""A result as the table of a Delta lake (the `deltalake` package, without a JVM).

Tasks put data files into the table's directory, which no reader sees before the log names them. A commit carries the
job and the epoch as Delta's *transaction version of an application*. `deltalake` does not look at it by itself, so a
commit looks before: in the log that the very handle has read with which it then commits, since a handle that lacks a
later commit of the same application is refused.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from dpa.errors import TableError
from dpa.execution.publishing import Publishes
from dpa.sinks._packages import EPOCH, SECONDS, PackageSink, using
from dpa.sinks._replacement import part_name, shown
from dpa.sinks.sink import RESULT
from dpa.sources.paths import prefix_of

if TYPE_CHECKING:
    from deltalake import DeltaTable, Transaction

_PART = re.compile(r"part-\d{5}-[0-9a-f]{32}(-\d{6,})?\.parquet")

_OVER = 2**62
"""The transaction version of a job that commits nothing more to a table."""

_LOOK_BACK = 50
"""Commits of others, such as those of maintenance, that may follow the newest one of a job."""


@dataclass(frozen=True)
class _Part:
    """A data file that a task has put."""

    name: str
    size: int
    rows: int
    schema: pa.Schema


class Delta(PackageSink):
    """A Delta table, which is made if there is none."""

    def __init__(
        self,
        path: str,
        mode: str = "error",
        options: Mapping[str, str] | None = None,
        *,
        section: str = "output",
        publishes: Publishes | None = None,
    ) -> None:
        """A table.

        Args:
            path: its directory, or a URI.
            mode: `append` adds rows to those that are there, `overwrite` replaces them, `error` wants none.
            options: of the storage, as `deltalake` has them.
            section: where a job file has these, for messages.
            publishes: what each epoch publishes; None: it is a result that has no epochs.
        """
        super().__init__(mode, section, publishes)
        self._uri = path if "://" in path else str(Path(path).absolute())
        self._options = dict(options or {})
        self._schema: pa.Schema | None = None
        self._has_tried = False

    @property
    def place(self) -> str:
        return prefix_of(self._uri)

    def check(self) -> None:
        with self._reaching():
            self._accept(self.table())

    def begin(self) -> None:
        with self._reaching():
            if "://" not in self._uri:
                Path(self._uri).mkdir(parents=True, exist_ok=True)
            table = self.table()
            self._accept(table)
            is_kept = table is not None and (self._mode != "overwrite" or self._has_begun(table))
            self._schema = _schema_of(table) if is_kept else None
            self._has_tried = False
            super().begin()

    def stage(self, rows: pa.Table, task: int, epoch: int) -> _Part:
        name = part_name(task, self._begun, epoch)
        with self._reaching():
            if self._schema is None and self.publishes is not None:
                table = self.table()
                self._schema = _schema_of(table) if self._has_begun(table) else None
            rows = self._conformed(rows)
            with self._files.open_output_stream(name) as stream:
                pq.write_table(rows, stream)
            return _Part(name, self._files.get_file_info(name).size, rows.num_rows, rows.schema)

    def commit(self, staged: Sequence[_Part], epoch: int, seconds: float) -> None:
        from deltalake import CommitProperties, Schema
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction, create_table_with_add_actions

        with self._reaching():
            table = self.table()
            if self._has(table, epoch) or (not staged and self.publishes != "table" and epoch != RESULT):
                return
            self._accept(table)
            has_begun, now = self._has_begun(table), int(time.time() * 1000)
            if staged:
                schema = Schema.from_arrow(staged[0].schema)
            elif table is None or not has_begun:
                return  # nothing was ever published
            else:
                schema = table.schema()
            actions: list[Any] = [
                AddAction(part.name, part.size, {}, now, True, json.dumps({"numRecords": part.rows})) for part in staged
            ]
            found = newest_epoch(table) if table is not None and has_begun else None
            newest = epoch if epoch != RESULT else 1 if found is None else int(found[EPOCH]) + 1
            properties = CommitProperties(
                custom_metadata={EPOCH: str(newest), SECONDS: str(seconds)} if self.publishes else None,
                app_transactions=self._transactions(epoch),
            )
            self._has_tried = True
            try:
                if table is None:
                    create_table_with_add_actions(
                        self._uri, schema, actions, storage_options=self._options, commit_properties=properties
                    )
                else:
                    mode = "overwrite" if self.replaces(self._mode, has_begun=has_begun) else "append"
                    table.create_write_transaction(actions, mode, schema, commit_properties=properties)
            except (DeltaError, OSError):  # it may be there, and only the answer lost
                if not self._has(self.table(), epoch):
                    raise

    def abort(self) -> None:
        """What was staged stays where a commit may still be on its way, or a checkpoint may name it: `VACUUM` removes
        what no log names."""
        if not self._begun:
            return
        with self._reaching():
            table = self.table()
            has_tried = self._has_tried or self.publishes is not None  # maybe by a coordinator
            if not has_tried or self._has(table, RESULT):
                named = set() if table is None else {uri.rpartition("/")[2] for uri in table.file_uris()}
                for info in self._files.get_file_info(fs.FileSelector("")):
                    if self._begun in info.base_name and info.base_name not in named:
                        self._files.delete_file(info.path)
            if table is None and "://" not in self._uri:
                with suppress(OSError):  # it holds something
                    Path(self._uri).rmdir()
        self._begun = ""

    def read(self, staged: Sequence[_Part]) -> pa.Table:
        with self._reaching():
            return pa.concat_tables([self._read_part(part.name) for part in staged])

    def _read_part(self, name: str) -> pa.Table:
        """By this thread alone: what a file of Python's holds must not be freed by another as the process ends."""
        with self._files.open_input_file(name) as file, pq.ParquetFile(file, pre_buffer=False) as part:
            return part.read(use_threads=False)

    @property
    def _files(self) -> fs.FileSystem:
        """Those in the table's directory."""
        from deltalake.fs import DeltaStorageHandler

        return fs.PyFileSystem(DeltaStorageHandler(self._uri, self._options))

    def table(self) -> DeltaTable | None:
        """The table; None: there is none."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(self._uri, storage_options=self._options)
        except TableNotFoundError:
            return None

    def _transactions(self, epoch: int) -> list[Transaction]:
        """What a commit of an epoch says: of the job, that it has begun, or is over; of its life, how far it is."""
        from deltalake import Transaction

        last = epoch == RESULT
        if self.publishes is None:
            return [Transaction(self.job, epoch)]
        return [Transaction(self.job, _OVER if last else 0), Transaction(self._life, _OVER if last else epoch)]

    def _has(self, table: DeltaTable | None, epoch: int) -> bool:
        """Whether a table has an epoch of this job, maybe from a driver that died then."""
        if table is None:
            return False
        committed = table.transaction_version(self.job)
        if self.publishes is None or committed == _OVER:
            return committed is not None and committed >= epoch
        committed = table.transaction_version(self._life)
        return epoch != RESULT and committed is not None and committed >= epoch

    def _has_begun(self, table: DeltaTable | None) -> bool:
        """Whether a table has rows of this life of the job."""
        if table is None or self.publishes is None:
            return False
        return table.transaction_version(self._life) is not None

    def _accept(self, table: DeltaTable | None) -> None:
        """Check that rows may go there.

        Raises:
            TableError: they must not.
        """
        if table is not None:
            is_own = table.transaction_version(self.job) is not None
            if self._mode == "error" and table.file_uris() and not is_own:
                raise self._has_rows()
        elif "://" not in self._uri and Path(self._uri).exists():
            strangers = sorted(path.name for path in Path(self._uri).iterdir() if not _PART.fullmatch(path.name))
            if strangers:
                raise TableError(
                    f"{self.place} holds {shown(strangers)}, and is no Delta table: name another directory"
                )

    def _conformed(self, rows: pa.Table) -> pa.Table:
        """Rows with the types of the table, or else with those that Delta has.

        Raises:
            TableError: they do not fit.
        """
        from deltalake import Schema

        if self._schema is None:
            fields = [pa.field(field.name, _in_microseconds(field.type)) for field in rows.schema]
            return rows.cast(pa.schema(fields)).cast(pa.schema(Schema.from_arrow(pa.schema(fields)).to_arrow()))
        if {*rows.column_names} != {*self._schema.names}:
            have = f"the result has the columns {', '.join(rows.column_names)}"
            raise TableError(f"{have}, and the table at {self.place} {', '.join(self._schema.names)}")
        return rows.select(self._schema.names).cast(self._schema)

    def _reaching(self) -> AbstractContextManager[None]:
        return using("Delta", "deltalake", self.place)


def _schema_of(table: DeltaTable | None) -> pa.Schema | None:
    return None if table is None else pa.schema(table.schema().to_arrow())


def newest_epoch(table: DeltaTable) -> dict[str, Any] | None:
    """What the newest commit of an epoch says; None: there is none."""
    return next((commit for commit in table.history(_LOOK_BACK) if EPOCH in commit), None)


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    """The type of times in Delta, and any other type as it is."""
    return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else kind
