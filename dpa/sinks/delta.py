"""A result as a Delta table (the `deltalake` package, without a JVM).

Each task has `deltalake` write its rows into a table like this one, in a directory below it. So partitions, statistics
and constraints are written as by any other writer. Readers see these files once a commit names them in the log of the
table. A commit carries the job and the epoch as Delta's *transaction version of an application*. `deltalake` does not
check it, so we do before each commit, with the same handle: a handle that lacks a later commit of the application is
refused."""

from __future__ import annotations

import json
import re
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from dpa._util.lines import from_text
from dpa.errors import TableError
from dpa.sinks._conforming import conformed, of_new_table, storable
from dpa.sinks._delta_layout import DeltaLayout
from dpa.sinks._packages import EPOCH, LAST, LIFE, LINE, SECONDS, TableSink
from dpa.sinks._replacement import shown
from dpa.sinks.objects import RESULTS
from dpa.sinks.reading import Format, TableEpochs
from dpa.sinks.sink import Newest, Target
from dpa.sources.paths import prefix_of
from dpa.storage import files_at

if TYPE_CHECKING:
    from deltalake import DeltaTable, Transaction

_PART = re.compile(r"part-\d{5}-[0-9a-f]{32}-[0-9a-f]{32}")

_LOG = "_delta_log"

_OVER = 2**62  # the transaction version of a job that commits nothing more to a table
_LOOK_BACK = 50  # how many commits of others, such as maintenance, may follow the newest one of a job
_UPKEEP = ("OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES")  # operations that leave rows as they are


@dataclass(frozen=True)
class _Part:
    """A table that a task has written.

    Attributes:
        name: its directory in the table's.
        layout: what the rows were written for; None: there are no rows, and some types are unknown.
        files: its files, as its log has them.
        nothing: if there is no layout, a table without rows.
    """

    name: str
    layout: DeltaLayout | None
    files: tuple[Mapping[str, Any], ...] = ()
    nothing: pa.Table | None = None


class Delta(TableSink):
    """A Delta table."""

    kind = ("Delta", "deltalake")
    _layout: DeltaLayout | None = None
    _has_tried = False

    def __init__(self, to: Target) -> None:
        super().__init__(to)
        self._uri = to.path if "://" in to.path else str(Path(to.path).absolute())  # tasks may run elsewhere

    @property
    def place(self) -> str:
        return prefix_of(self._uri)

    def check(self) -> None:
        with self.reaching():
            self._layout = self._accept(self.table())

    def expect(self, columns: pa.Schema) -> None:
        with self.reaching():
            if self._layout is None:
                self._new_columns(storable(columns, self.place))
            else:
                conformed(columns.empty_table(), self._layout.columns, self.place, self._layout.filled)

    def begin(self) -> None:
        with self.reaching():
            if "://" not in self._uri:
                Path(self._uri).mkdir(parents=True, exist_ok=True)
            self._layout = self._accept(self.table())
            self._has_tried = False
            super().begin()

    def stage(self, rows: pa.Table, task: int, epoch: int) -> _Part:
        with self.reaching():
            if self._layout is None and self.publishes is not None:
                table = self.table()
                self._layout = None if table is None else DeltaLayout.of(table)
            return self._written(rows, f"part-{task:05d}", self._layout)

    def commit(self, staged: Sequence[_Part], epoch: int, seconds: float, *, is_last: bool = False) -> None:
        from deltalake import CommitProperties, Schema
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction, create_table_with_add_actions

        with self.reaching():
            table = self.table()
            if self._has(table, epoch, is_last) or (not staged and self.publishes != "table" and not is_last):
                return
            there, has_begun, now = self._accept(table), self._has_begun(table), int(time.time() * 1000)
            known = there or next((part.layout for part in staged if part.layout is not None), None)
            if known is None or (not staged and not has_begun):
                return  # nothing was ever published
            actions: list[Any] = [
                AddAction(
                    f"{part.name}/{unquote(add['path'])}", add["size"], add["partitionValues"], now, True, add["stats"]
                )
                for part in (self._fitting(part, known) for part in staged)
                for add in part.files
            ]
            schema = Schema.from_json(known.metadata["schemaString"])
            about = {EPOCH: str(epoch), SECONDS: str(seconds), LAST: str(is_last)}
            about |= self._about(epoch, is_last=is_last)
            properties = CommitProperties(
                custom_metadata=about if self.publishes else None, app_transactions=self._transactions(epoch, is_last)
            )
            self._has_tried = True
            try:
                if table is None:
                    create_table_with_add_actions(
                        self._uri, schema, actions, storage_options=self._options, commit_properties=properties
                    )
                else:
                    mode = "overwrite" if self.replaces(self._mode, has_begun=has_begun) else "append"
                    by = known.partitions
                    table.create_write_transaction(actions, mode, schema, by, commit_properties=properties)
            except (DeltaError, OSError):  # it may be there, and only the answer lost
                if not self._has(self.table(), epoch, is_last):
                    raise

    def abort(self) -> None:
        """Staged files stay where a commit may still be on its way, or a checkpoint may name them. `VACUUM` removes
        what no log names."""
        if not self._begun:
            return
        with self.reaching():
            table = self.table()
            has_tried = self._has_tried or self.publishes is not None  # maybe by a coordinator
            if not has_tried or self._is_over(table):
                named = set() if table is None else {*_PART.findall("\n".join(table.file_uris()))}
                for info in self._files.get_file_info(fs.FileSelector("")):
                    if self._begun in info.base_name and info.base_name not in named:
                        self._remove(info.base_name)
            if table is None and "://" not in self._uri:
                with suppress(OSError):  # it holds something
                    Path(self._uri).rmdir()
        self._begun = ""

    def newest(self) -> Newest | None:
        with self.reaching():
            table = self.table()
            if table is None or table.transaction_version(self.job) is None:
                return None
            epoch = table.transaction_version(self._life) or 0
            own = (each for each in table.history(_LOOK_BACK) if each.get(LIFE) == self._life and LINE in each)
            line = from_text(next((commit[LINE] for commit in own), ""))
            return Newest(0 if epoch == _OVER else epoch, line, self._is_over(table))

    def take_back(self, epoch: int, *, is_trial: bool) -> None:
        from deltalake import CommitProperties, DeltaTable, Transaction

        with self.reaching():
            table = self.table()
            assert table is not None
            commits = ((each["version"], each, each["operation"] in _UPKEEP) for each in table.history())
            first, line = self._first_after(epoch, commits)
            about = {EPOCH: str(epoch), SECONDS: "0", LIFE: self._life, LINE: line}
            transactions = [Transaction(self.job, 0), Transaction(self._life, epoch)]
            properties = CommitProperties(custom_metadata=about, app_transactions=transactions)
            if first == 0:
                if not is_trial:
                    table.delete(commit_properties=properties)
                return
            # `restore` would find missing files too, but only after the job has gone back.
            before = DeltaTable(self._uri, first - 1, self._options)
            root = f"{table.table_uri.removeprefix('file://').rstrip('/')}/"
            names = [uri.removeprefix(root) for uri in {*before.file_uris()} - {*table.file_uris()}]
            if missing := [name for name in names if not self._is_there(name)]:
                raise TableError(f"version {first - 1} of {self.place} is gone: {shown(missing)} was vacuumed")
            if not is_trial:
                table.restore(first - 1, commit_properties=properties)

    def _is_there(self, name: str) -> bool:
        found = self._files.get_file_info([name, unquote(name)])
        return any(info.type != fs.FileType.NotFound for info in found)

    def read(self, staged: Sequence[_Part]) -> pa.Table:
        with self.reaching():
            return pa.concat_tables([self._rows(part) for part in staged])

    def _all_of(self, table: DeltaTable) -> pa.Table:
        """Read by `deltalake`, as Arrow's threads must not free a Python file while the process ends."""
        from deltalake.query import QueryBuilder

        found = pa.table(QueryBuilder().register("rows", table).execute("SELECT * FROM rows"))
        return conformed(found, DeltaLayout.of(table).columns, self.place)

    def _rows(self, part: _Part) -> pa.Table:
        from deltalake import DeltaTable

        if part.layout is None:
            return part.nothing
        self._log(part.name, 0, *part.layout.entries)
        self._log(part.name, 1, *({"add": dict(add)} for add in part.files))
        found = self._all_of(DeltaTable(self._in(part.name), storage_options=self._options))
        self._remove(f"{part.name}/{_LOG}")
        return found

    def _written(self, rows: pa.Table, prefix: str, layout: DeltaLayout | None) -> _Part:
        """Write rows into a table of their own with a layout; None: there is no table yet that it must be like. Raises
        TableError if rows do not fit into the table."""
        from deltalake import DeltaTable, PostCommitHookProperties, write_deltalake
        from deltalake.exceptions import DeltaError

        name = f"{prefix}-{self._begun}-{uuid.uuid4().hex}"
        if layout is None:
            if (columns := of_new_table(rows, self.place)) is None:
                return _Part(name, None, nothing=rows)
            rows = conformed(rows, self._new_columns(columns), self.place)
        else:
            rows = conformed(rows, layout.columns, self.place, layout.filled)
            self._log(name, 0, *layout.entries)
        hooks = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
        where, options = self._in(name), self._options
        why = ""
        try:
            write_deltalake(where, rows, mode="append", storage_options=options, post_commithook_properties=hooks)
        except DeltaError as error:
            if layout is not None and "failed validation check" in str(error):
                why = f"rows of the result break a rule of the table at {self.place}: {'; '.join(layout.rules)}"
            elif "Failed to parse value" in str(error):
                why = f"`deltalake` cannot write negative decimals as partitions of the table at {self.place}"
            else:
                raise
        if why:  # raised outside of the handler: the error there quotes rows, whose text may look like an outage
            raise TableError(f"{why}; mend the rows in the job")
        table = DeltaTable(where, storage_options=options)
        with self._files.open_input_stream(f"{name}/{_LOG}/{table.version():020d}.json") as stream:
            entries = [json.loads(line) for line in stream.read().splitlines()]
        self._require_partitions(rows, table)
        self._remove(f"{name}/{_LOG}")
        return _Part(name, layout or DeltaLayout.of(table), tuple(entry["add"] for entry in entries if "add" in entry))

    def _fitting(self, part: _Part, layout: DeltaLayout) -> _Part:
        """The part, written again if the table was made or altered since."""
        if part.layout is None or layout.is_for(part.layout):
            return part
        return self._written(self._rows(part), part.name.rpartition("-")[0].rpartition("-")[0], layout)

    def _require_partitions(self, rows: pa.Table, table: DeltaTable) -> None:
        """Raise a `TableError` if readers would find other values of partitions, such as null for an empty string."""
        for name in {*table.metadata().partition_columns} & {*rows.column_names}:
            found = pa.table(table.get_add_actions(flatten=True))[f"partition.{name}"]
            there = {repr(value) for value in found.to_pylist()}
            lost = [value for value in rows[name].unique().to_pylist() if repr(value) not in there]
            if lost:
                value = f"column {name!r} of the result has the value {lost[0]!r}"
                raise TableError(f"{value}, which would change as a partition of the table at {self.place}: replace it")

    @staticmethod
    def _new_columns(columns: pa.Schema) -> pa.Schema:
        """The columns as a new table would have them."""
        from deltalake import Schema

        return pa.schema(Schema.from_arrow(columns).to_arrow())

    def _in(self, name: str) -> str:
        return f"{self._uri.rstrip('/')}/{name}"

    @property
    def _files(self) -> fs.FileSystem:
        from deltalake.fs import DeltaStorageHandler

        return fs.PyFileSystem(DeltaStorageHandler(self._uri, self._options))

    def _log(self, name: str, version: int, *entries: Mapping[str, Any]) -> None:
        text = "".join(f"{json.dumps(entry)}\n" for entry in entries).encode()
        path = f"{name}/{_LOG}/{version:020d}.json"
        with self._files.open_output_stream(path, buffer_size=len(text) + 1) as stream:
            stream.write(text)

    def _remove(self, name: str) -> None:
        if "://" in self._uri:
            self._files.delete_dir(name)
        else:
            shutil.rmtree(self._in(name))

    def table(self) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(self._uri, storage_options=self._options)
        except TableNotFoundError:
            return None

    def _transactions(self, epoch: int, is_last: bool) -> list[Transaction]:
        """The versions in the commit of an epoch: of the job, that it has begun or is over; of its life, the epoch."""
        from deltalake import Transaction

        if is_last:  # no checkpoint goes with it, so the newest epoch of its life stays the one before
            return [Transaction(self.job, _OVER)]
        return [Transaction(self.job, 0), Transaction(self._life, epoch)]

    def _is_over(self, table: DeltaTable | None) -> bool:
        """Whether the job's last epoch was committed, maybe by a driver that died then."""
        committed = None if table is None else table.transaction_version(self.job)
        return committed is not None and (self.publishes is None or committed == _OVER)

    def _has(self, table: DeltaTable | None, epoch: int, is_last: bool) -> bool:
        """Whether an epoch of this job was committed, or its last one."""
        if table is None or self._is_over(table):
            return table is not None
        committed = table.transaction_version(self._life)
        return not is_last and committed is not None and committed >= epoch

    def _has_begun(self, table: DeltaTable | None) -> bool:
        if table is None or self.publishes is None:
            return False
        return table.transaction_version(self._life) is not None

    def _accept(self, table: DeltaTable | None) -> DeltaLayout | None:
        """The layout of the table; a `TableError` if rows must not go there."""
        if table is not None:
            is_own = table.transaction_version(self.job) is not None
            if self._mode == "error" and table.file_uris() and not is_own:
                raise self._has_rows()
            layout = DeltaLayout.of(table)
            layout.refuse(self.place, replaces=self._mode == "overwrite" or self.publishes == "table")
            return layout
        if "://" not in self._uri and Path(self._uri).exists():
            strangers = sorted(path.name for path in Path(self._uri).iterdir() if not _PART.fullmatch(path.name))
            if strangers:
                raise TableError(
                    f"{self.place} holds {shown(strangers)}, and is no Delta table: name another directory"
                )
        return None

    def newest_epoch(self, table: DeltaTable) -> Mapping[str, Any] | None:
        return next((commit for commit in table.history(_LOOK_BACK) if EPOCH in commit), None)

    def rows_of(self, table: DeltaTable) -> pa.Table:
        return self._all_of(table)


FORMAT = Format(
    "delta",
    Delta,
    epochs=lambda to: TableEpochs(Delta(to)),
    is_at=lambda path: bool(files_at(path, RESULTS).names(_LOG)),
)
