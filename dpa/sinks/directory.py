"""A result as a directory of files, which replaces an earlier result as a whole."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpa._util.disk import is_of_file_system, sync, why, without_links
from dpa._util.signals import interrupts_held
from dpa.errors import DpaError, JobFailedError, PlaceTakenError, TableError
from dpa.sinks._layout import PLAIN, FileLayout, FileSink, Parts, columns_in, names_in, rows_in
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
from dpa.sinks.sink import Target
from dpa.sources.manifest import ResultManifest
from dpa.storage import Files, Purpose, files_at

_JOB, _COLUMNS = "# job ", "# columns "
"""Begin the lines of `_job.yaml` that name the job, and the columns of a result whose files do not say all of them."""


class ResultDirectory(FileSink):
    """A directory of files. A job is refused while another uses the directory. If the result cannot be put there, or
    something else came there meanwhile, the earlier content stays."""

    def __init__(self, to: Target, layout: FileLayout = PLAIN) -> None:
        super().__init__(to, layout)
        self._given, self._private = to.path, to.private
        self._path = Path(to.path).absolute()
        self._files = self._at(self._path)
        self._replacement: Replacement | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("_files", "_layout")}  # all that tasks need

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
                self._replacement = Replacement.begin(target, f"{_JOB}{self.job}\n{self._text()}")
                others = [place for place in settle_abandoned(target) if place != self._replacement.work]
            self._files = self._at(self._replacement.shares if self._layout.single_file else self._replacement.new)
            if others:
                busy = f"another job writes to {target} now"
                raise PlaceTakenError(f"{busy}; wait for its end, or name another directory")
            self._accept(target)
        except OSError as error:
            raise TableError(f"cannot write there: {why(error)}") from None

    def _at(self, directory: Path, error: type[DpaError] = JobFailedError) -> Files:
        return files_at(str(directory), Purpose("results", error, TableError, self._private))

    def commit(
        self, staged: Sequence[str | Parts], epoch: int, seconds: float, *, is_last: bool = False
    ) -> Sequence[str]:
        assert self._replacement is not None
        try:
            if not self._is_own(self._path):
                new = self._replacement.new
                if self._layout.single_file:
                    staged = self._layout.join(self._files, names_in(staged), self._at(new), part_name(0))
                if (columns := columns_in(staged)) is not None:
                    (new / MARK).write_text(f"{_JOB}{self.job}\n{_COLUMNS}{columns}\n{self._text()}", encoding="utf-8")
                with interrupts_held():
                    self._replacement.publish(self._accept_still)
            files = files_of_result(self._path)
        except OSError as error:
            raise TableError(f"the result cannot be put at {self._path}: {why(error)}") from None
        try:
            sync(self._path.parent)
        except OSError as error:
            lost = f"{self._path}: a loss of power may take back the result, which is there: {error}"
            warnings.warn(lost, RuntimeWarning, stacklevel=2)
        return files

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
        found = self._there()
        if found is None or found.job != self.job:
            return rows_in(self._at(Path(self._files.place), TableError), names_in(staged), columns_in(staged))
        return rows_in(self._at(self._path, TableError), names_in(staged), columns_in(staged, found.columns))

    def _there(self) -> ResultManifest | None:
        return result_in(self._path)

    def _is_own(self, directory: Path) -> bool:
        """Whether a directory has the result of this job already, committed by a driver that died then."""
        found = result_in(directory)
        return found is not None and found.job == self.job

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


def result_in(directory: Path) -> ResultManifest | None:
    """What `_job.yaml` says of the result in a directory; None: there is no such file."""
    directory = without_links(directory)
    try:
        lines = (directory / MARK).read_text(encoding="utf-8").splitlines(keepends=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    known = {
        begin: line[len(begin) : -1] for line in reversed(lines) for begin in (_JOB, _COLUMNS) if line.startswith(begin)
    }
    config = "".join(line for line in lines if not line.startswith((*known,)))
    files = tuple(files_of_result(directory))
    return ResultManifest(files, known.get(_JOB, ""), config=config, is_last=True, columns=known.get(_COLUMNS))
