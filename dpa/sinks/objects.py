"""A result, or results by epoch, as files beside a manifest that names them: below a prefix of object storage, or in a
directory.

In object storage nothing can be renamed. So tasks put files with unique names, and one conditional put of the manifest
makes them the result. A job begins by putting the manifest with the name of a new writer: of several jobs only the last
to begin can commit. It may also remove what dead jobs have left.

Where each epoch adds rows, small files of Parquet are merged: `_FANOUT` files of a level become one of the next."""

import itertools
import time
import uuid
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpa._util import lines
from dpa.errors import PlaceTakenError, TableError
from dpa.execution.publishing import latest
from dpa.routing.keys import names_of
from dpa.sinks._layout import (
    PART,
    PLAIN,
    FileLayout,
    FileSink,
    Parts,
    begin_of,
    columns_in,
    names_in,
    rows_in,
    table_in,
    with_epochs,
)
from dpa.sinks._replacement import part_name, shown
from dpa.sinks.sink import Newest, Target, together
from dpa.sources.manifest import MANIFEST, ResultManifest
from dpa.storage import Files, Purpose, files_at

_NO_TAG = '"0"'  # the tag of no object

_FANOUT = 16  # files that are merged into one. As many newer ones are left alone
_LARGE_ROWS = 2_000_000  # files that together have more rows are not merged
_PUT_SECONDS = 30.0  # how long others may take to replace a manifest: each reads one file and writes one

RESULTS = Purpose("results", TableError, TableError)
"""For readers, and where a manifest names the files."""


class ResultFiles(FileSink):
    """Readers that go by the manifest see the old result or the new one. Files of another kind are never removed."""

    def __init__(self, to: Target, layout: FileLayout = PLAIN) -> None:
        super().__init__(to, layout)
        self._files = files_at(to.path, RESULTS)
        self._writer = ""
        self._large: set[str] = set()
        self._lock = ExitStack()

    def __getstate__(self) -> dict[str, Any]:
        """What tasks need, and what commits epochs."""
        known = {"_text": partial(str, self._text()), "_large": set()}
        return {**known, **{name: getattr(self, name) for name in ("job_context", "_files", "_writer", "_layout")}}

    @property
    def place(self) -> str:
        return str(self._files.place)

    @property
    def _in_storage(self) -> bool:
        return self.place.startswith("s3://")

    @property
    def _is_log(self) -> bool:
        """Whether each epoch adds rows."""
        return self.publishes in ("final", "changes")

    @property
    def _life(self) -> str:
        return "" if self.publishes is None or self.with_checkpoints else self._writer

    def check(self) -> None:
        self._files.check()
        self._accept(self._there())

    def begin(self) -> None:
        self._hold()
        found, etag = self._manifest()
        self._accept(found)
        self._writer = uuid.uuid4().hex
        claim = replace(found or ResultManifest(), writer=self._writer, claimed_by=self.job)
        self._put(claim, etag)
        # Only a condition stops a writer that was overtaken, and some storages ignore it.
        if self._tried_put(claim, _NO_TAG) is not None:
            raise TableError(f"the storage of {self.place} ignores If-Match, so results in it are not safe")
        # A checkpoint may name files that were staged and not committed yet, of this job or of one that is to continue.
        if not self.with_checkpoints and found is not None and found.claimed_by == self.job:
            self._files.delete(name for name in self._parts() if name not in _named(found))

    def newest(self) -> Newest | None:
        """As of `Sink`. TableError if another job has published there since, and removed what this one had."""
        found = self._there()
        is_replaced = found is not None and found.files is not None and self.job not in (found.job, found.claimed_by)
        if self._is_log and is_replaced:
            lost = "another job has published there since, so rows of this one are missing"
            raise TableError(f"{self.place}: {lost}: begin a new job")
        return super().newest()

    def _hold(self) -> None:
        try:
            self._lock.enter_context(self._files.held())
        except BlockingIOError:
            why = f"another job publishes its results in {self.place} now"
            raise PlaceTakenError(f"{why}; wait for its end, or name another directory") from None

    def _part_name(self, task: int, epoch: int) -> str:
        return part_name(task, self._writer, (epoch or None) if self.publishes else None)

    def commit(
        self, staged: Sequence[str | Parts], epoch: int, seconds: float, *, is_last: bool = False
    ) -> Sequence[str]:
        found, etag = self._manifest()
        if found is not None and (self._is_over(found) or (not is_last and self._has(found, epoch))):
            return found.files or ()
        if found is None or found.writer != self._writer:
            raise self._overtaken()
        shares: Sequence[str] = ()
        if self._layout.single_file:
            shares = names_in(staged)
            staged = self._layout.join(self._files, shares, self._files, self._part_name(0, epoch))
        new = self._next(found, staged, epoch, seconds, is_last)
        etag = self._put(new, etag)
        # A reader of epochs may still read the files of the epoch before this one.
        self._clean((*shares, *(found.before if self.publishes else _named(found))))
        # What others have staged and not committed; with checkpoints some may be this job's, of an earlier writer.
        if not (self.with_checkpoints or self._is_own(found)):
            self._files.delete(name for name in self._parts() if name not in _named(new) and self._writer not in name)
        if self._is_log:
            new = self._merged(new, etag)
        return new.files or ()

    def _next(
        self, found: ResultManifest, staged: Sequence[str | Parts], epoch: int, seconds: float, is_last: bool
    ) -> ResultManifest:
        is_same = self._is_own(found)
        kept = (found.files or ()) if is_same and self._is_log else ()
        gone = tuple(name for name in found.files or () if name not in kept)
        return ResultManifest(
            files=(*kept, *names_in(staged)),
            job=self.job,
            epoch=epoch,
            config=self._text(),
            writer=self._writer,
            claimed_by=self.job,
            publishes=self.publishes,
            key=names_of(self.key),
            life=self._life,
            seconds=seconds,
            is_last=is_last,
            before=gone if self.publishes else (),
            line=found.line if is_same and is_last else lines.until(self.line, epoch),
            before_last=found.epoch if is_same and is_last else 0,
            columns=columns_in(staged, found.columns if kept else None),
        )

    def take_back(self, epoch: int, *, is_trial: bool) -> None:
        with self._lock:
            self._hold()
            found, etag = self._manifest()
            assert found is not None
            kept: list[str] = []
            for name in found.files or ():
                kept += begin_of(self._files, name, epoch, is_trial=is_trial)
            if not is_trial:
                line = lines.until(found.line, epoch)
                new = replace(found, files=(*kept,), epoch=epoch, writer="", is_last=False, before=(), line=line)
                self._put(new, etag)
                self._clean(name for name in _named(found) if name not in kept)

    def _merged(self, found: ResultManifest, etag: str) -> ResultManifest:
        """The manifest with one file in place of the oldest ones of a level, if there are enough."""
        files = found.files or ()
        for level, group in itertools.groupby(files, self._level):
            of_level = list(group)
            if level is None or len(of_level) < 2 * _FANOUT:
                continue
            run = of_level[:_FANOUT]
            tables = self._small(run)
            if tables is None:
                self._large.update(run)  # which splits the level, so that newer files can be merged
                return found
            name = f"merged-{level + 1}-{self._writer}-{found.epoch:06d}.parquet"
            with self._files.writing(name) as stream:
                pq.write_table(tables, stream)
            at = files.index(run[0])
            after = (*files[:at], name, *files[at + _FANOUT :])
            new = replace(found, files=after, before=(*found.before, *run))
            self._put(new, etag)
            return new
        return found

    def _small(self, names: Sequence[str]) -> pa.Table | None:
        """The rows of some files; None if they are too many, or have no common schema."""
        rows = 0
        for name in names:
            with self._files.reading(name) as file:
                rows += pq.read_metadata(file).num_rows
        if rows > _LARGE_ROWS:
            return None
        tables = [table_in(self._files, name) for name in names]
        try:
            found = together(tables)
        except TableError:
            return None
        return with_epochs(self._files, names, found) if self.with_checkpoints else found

    def _level(self, name: str) -> int | None:
        """How often a file was merged; None: it is not merged again."""
        match = PART.fullmatch(name) if self._layout.knows_columns else None
        return None if match is None or name in self._large else int(match["level"] or 0)

    def abort(self) -> None:
        try:
            if self._writer:
                self._give_up()
        finally:
            self._writer = ""
            self._lock.close()

    def _give_up(self) -> None:
        found, etag = self._manifest()
        if found is None or found.writer != self._writer:
            return
        # First of all: a commit that is still on its way meets another manifest now.
        self._put(replace(found, writer=""), etag)
        left = (name for name in self._parts() if name not in _named(found))
        if not self.with_checkpoints:
            self._files.delete(name for name in left if self._writer in name)
        elif self._is_over(found):  # no checkpoint counts any more
            self._files.delete(left)
        self._files.prune()
        if found.files is None and not self._in_storage and not self._parts():
            self._files.delete([MANIFEST])  # no other job can have begun in a directory that is held

    def read(self, staged: Sequence[str | Parts]) -> pa.Table:
        found = self._there()
        before = (found.files or ()) if found is not None and self._is_own(found) and self._is_log else ()
        columns = columns_in(staged, None if found is None else found.columns)
        rows = rows_in(self._files, dict.fromkeys((*before, *names_in(staged))), columns)
        return latest(rows, self.key) if self.publishes == "changes" else rows

    def _there(self) -> ResultManifest | None:
        return self._manifest()[0]

    def _manifest(self) -> tuple[ResultManifest | None, str | None]:
        return manifest_at(self._files)

    def _put(self, manifest: ResultManifest, etag: str | None) -> str:
        """Replace the manifest that has a tag; returns the new tag. Raises TableError if another manifest is there."""
        try:
            new = self._tried_put(manifest, etag)
            if new is None:
                raise self._overtaken()
            return new
        except TableError:
            # Maybe only the answer was lost, also of a request that the storage's library has repeated.
            there, tag = self._manifest()
            if there != manifest or tag is None:
                raise
            return tag

    def _tried_put(self, manifest: ResultManifest, etag: str | None) -> str | None:
        until = time.monotonic() + _PUT_SECONDS
        while True:
            try:
                return self._files.put(MANIFEST, manifest.to_json(), etag)
            except BlockingIOError:
                if time.monotonic() > until:
                    held = f"another process has been replacing {self.place}/{MANIFEST} for {_PUT_SECONDS:g} s"
                    raise TableError(f"{held}; end it, if it hangs") from None
                time.sleep(0.01)

    def _overtaken(self) -> TableError:
        rule = "of two jobs that write to one place the last one to begin publishes its result"
        return TableError(f"another job has begun to write to {self.place}: {rule}; name another one")

    def _is_own(self, found: ResultManifest) -> bool:
        """Whether this job, since it began at the start of its input, has committed what is there."""
        return found.files is not None and (found.job, found.life) == (self.job, self._life)

    def _has(self, found: ResultManifest, epoch: int) -> bool:
        return self._is_own(found) and found.epoch >= epoch

    def _is_over(self, found: ResultManifest) -> bool:
        """Whether the job's last epoch was committed, maybe by a driver that died then."""
        return found.files is not None and found.job == self.job and found.is_last

    def _parts(self) -> list[str]:
        return [name for name in self._found() if PART.fullmatch(name)]

    def _found(self, directory: str = "") -> Iterator[str]:
        """All files there; directories only if they are not of a partitioned result."""
        for name in self._files.names(directory):
            path = f"{directory}/{name}".lstrip("/")
            if "=" in name:
                yield from self._found(path)
            else:
                yield path

    def _clean(self, names: Iterable[str]) -> None:
        """Remove the files of a result that was replaced."""
        try:
            self._files.delete(names)
        except TableError as error:
            left = "files of the result before are still there; the next job with this output removes them"
            warnings.warn(f"{left}: {error}", RuntimeWarning, stacklevel=2)

    def _accept(self, found: ResultManifest | None) -> None:
        """Raise a `TableError` if what is there must not be replaced."""
        names = [name for name in self._found() if name != MANIFEST]
        strangers = [name for name in names if found is None or not PART.fullmatch(name)]
        if strangers:
            holds = f"{self.place} holds {shown(strangers)}, no file of a result"
            what = "prefix" if self._in_storage else "directory"
            raise TableError(f"{holds}; a job replaces the result of another and nothing else: name another {what}")
        if self._mode == "error" and found is not None and found.files is not None and found.job != self.job:
            is_open = found.publishes and not (found.life or found.is_last)  # its epochs go with checkpoints
            mend = "the job that writes there has not ended: resume it; or " if is_open else ""
            mend += f"set {self._section}.mode to `overwrite`; or name another prefix"
            raise TableError(f"{self.place} is not empty: {mend}")


def manifest_at(objects: Files) -> tuple[ResultManifest | None, str | None]:
    """The manifest among the files of a result, and its tag. Raises TableError if the file of that name is none."""
    found = objects.get(MANIFEST)
    return (None, None) if found is None else (ResultManifest.parse(found[0], f"{objects.place}/{MANIFEST}"), found[1])


def _named(found: ResultManifest | None) -> tuple[str, ...]:
    """The files that readers may read."""
    return () if found is None else (*(found.files or ()), *found.before)
