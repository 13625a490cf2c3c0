"""A result as a directory of files, which replaces an earlier result as a whole."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpa._util.disk import is_of_file_system, sync, why
from dpa._util.signals import interrupts_held
from dpa.errors import DpaError, JobFailedError, PlaceTakenError, TableError
from dpa.sinks._layout import FileSink, Parts, columns_in, names_in, rows_in
from dpa.sinks._replacement import (
    MARK,
    Replacement,
    files_of_result,
    is_unsettled,
    part_name,
    parts_of_result,
    settle_abandoned,
    shown,
)
from dpa.sinks.sink import Newest
from dpa.storage import Files, Purpose, files_at

COLUMNS = "# columns "
"""Begins the line of `_job.yaml` that says the columns of a result whose files do not say all of them."""


class ResultDirectory(FileSink):
    """A directory of files. A job is refused while another uses the directory. If the result cannot be put there, or
    something else came there meanwhile, the earlier content stays.

    Attributes:
        staging: where tasks write their files; None before `begin`.
    """

    def __init__(self, path: str, mode: str = "error", *, private: bool = False, **options: Any) -> None:
        """A result at `path`; `private`: only the owner may read what is staged. Else as a `FileSink`."""
        super().__init__(mode, **options)
        self.staging: str | None = None
        self._given = path
        self._path = Path(path).absolute()
        self._private = private
        self._columns: str | None = None
        self._replacement: Replacement | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("staging", "_private", "_layout")}  # all that tasks need

    @property
    def place(self) -> str:
        return str(self._path)

    def check(self) -> None:
        target = self._path.resolve()
        if not is_unsettled(target):  # if it is, `begin` checks once it has settled it
            self._accept(target)

    def begin(self) -> None:
        self._path = target = self._path.resolve()
        try:
            with interrupts_held():
                self._replacement = Replacement.begin(target, self._mark + self._text())
                others = [place for place in settle_abandoned(target) if place != self._replacement.work]
            self.staging = str(self._replacement.shares if self._layout.single_file else self._replacement.new)
            if others:
                busy = f"another job writes to {target} now"
                raise PlaceTakenError(f"{busy}; wait for its end, or name another directory")
            self._accept(target)
        except OSError as error:
            raise TableError(f"cannot write there: {why(error)}") from None

    @property
    def _staged(self) -> str:
        assert self.staging is not None
        return self.staging

    def stage(self, rows: pa.Table, task: int, epoch: int) -> str | Parts:
        return self._layout.stage(self._files(self._staged), rows, part_name(task))

    def _files(self, directory: str | Path, error: type[DpaError] = JobFailedError) -> Files:
        return files_at(str(directory), Purpose("results", error, TableError, self._private))

    def commit(
        self, staged: Sequence[str | Parts], epoch: int, seconds: float, *, is_last: bool = False
    ) -> Sequence[str]:
        assert self._replacement is not None
        self._columns = columns_in(staged)
        try:
            if not self._is_own(self._path):
                new = self._replacement.new
                if self._layout.single_file:
                    whole = self._layout.join(
                        self._files(self._staged), names_in(staged), self._files(new), part_name(0)
                    )
                    self._columns = columns_in(whole)
                if self._columns is not None:
                    (new / MARK).write_text(f"{self._mark}{COLUMNS}{self._columns}\n{self._text()}", encoding="utf-8")
                with interrupts_held():
                    self._replacement.publish(self._accept_still)
            files = tuple(name for name in files_of_result(self._path) if name != MARK)
        except OSError as error:
            raise TableError(f"the result cannot be put at {self._path}: {why(error)}") from None
        try:
            sync(self._path.parent)
        except OSError as error:
            lost = f"{self._path}: a loss of power may take back the result, which is there: {error}"
            warnings.warn(lost, RuntimeWarning, stacklevel=2)
        return files

    def newest(self) -> Newest | None:
        return Newest(0, is_last=True) if self._is_own(self._path) else None

    def abort(self) -> None:
        if self._replacement is None:
            return
        try:
            with interrupts_held():
                self._replacement.settle()
        except OSError as error:
            left = f"{self._replacement.work}: the next job with this output will try again to settle what is left here"
            raise TableError(f"{left}: {error}") from None

    def read(self, staged: Sequence[str | Parts]) -> pa.Table:
        """What was staged or, once that is published, the files that `commit` has named."""
        files = self._files(self._path if self._is_own(self._path) else self._staged, TableError)
        return rows_in(files, names_in(staged), columns_in(staged, self._columns))

    @property
    def _mark(self) -> str:
        """The first line of `_job.yaml` beside the result of this job."""
        return f"# job {self.job}\n"

    def _is_own(self, directory: Path) -> bool:
        """Whether a directory has the result of this job already, committed by a driver that died then."""
        try:
            return (directory / MARK).read_text(encoding="utf-8").startswith(self._mark)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _accept_still(self, directory: Path) -> None:
        try:
            self._accept(directory)
        except TableError as error:
            raise TableError(f"{error}; it was not so when the job began") from None

    def _accept(self, directory: Path) -> None:
        """Raise a `TableError` if the content of a directory must not be replaced."""
        if directory.exists() and not directory.is_dir():
            raise TableError(f"{self._given} is a file; name a directory")
        known = parts_of_result(directory)
        own = None if self._replacement is None else self._replacement.work
        entries = directory.iterdir() if directory.is_dir() else ()
        others = [entry for entry in entries if entry.name not in known and entry != own]
        strangers = sorted(entry.name for entry in others if not is_of_file_system(entry))
        path = self._given
        if self._mode == "error" and (known or strangers) and not self._is_own(directory):
            remedy = f"it holds {shown(strangers)}" if strangers else f"set {self._section}.mode to `overwrite`"
            raise TableError(f"{path} is not empty: {remedy}; or name another directory")
        if strangers:
            reason = "`overwrite` replaces the result of a job and nothing else"
            holds = f"{path} holds {shown(strangers)}, no file of a result"
            raise TableError(f"{holds}; {reason}: name another directory")
        if known and MARK not in known:
            holds = f"{path} holds {known[0]} and no {MARK}"
            raise TableError(f"{holds}, so it is no result of a job; name another directory")


def published(directory: Path) -> pa.Table:
    """The rows of the result in a directory."""
    lines = (directory / MARK).read_text(encoding="utf-8").splitlines()
    columns = next((line.removeprefix(COLUMNS) for line in lines if line.startswith(COLUMNS)), None)
    names = [name for name in files_of_result(directory) if name != MARK]
    return rows_in(files_at(str(directory), Purpose("results", TableError, TableError)), names, columns)
