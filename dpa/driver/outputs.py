"""The result's directory: what may be there when a job begins, and how the complete result is put in its place."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from dpa._util.disk import why
from dpa._util.secrets import as_yaml
from dpa._util.signals import interrupts_held
from dpa.config import JobFile, OutputConfig
from dpa.driver.places import check_place, holds, inspecting, is_of_file_system
from dpa.errors import JobFailedError
from dpa.protocol.plan import RunOutcome
from dpa.sinks.replacement import MARK, Replacement, files_of_result, is_unsettled, settle_abandoned


class OutputDirectory:
    """A context that makes a staging directory when it is entered, and removes it when it is left, committed or not.

    Attributes:
        path: where the result will be, or None if it stays in memory; without links once the context is entered.
        staging: where tasks write their share.
    """

    def __init__(self, file: JobFile, output: OutputConfig, key: str = "output") -> None:
        """Of the result that goes to `output`; `key` is the key path of that section."""
        self._file = file
        self._output = output
        self._section, self._key = key, f"{key}.path"
        self.path = None if self._output.path is None else str(Path(self._output.path).absolute())
        self.staging: str | None = None
        self._replacement: Replacement | None = None

    @staticmethod
    def check_all(file: JobFile) -> None:
        """Check that the results of all steps may be published where they are to be. Nothing is written.

        Raises:
            ConfigError: something is there already, and must not be overwritten; or two directories lie one in the
                other.
        """
        places: list[tuple[str, Path]] = []
        for key, output in written(file):
            OutputDirectory(file, output, key).check()
            if output.path is None:
                continue
            for other, there in places:
                if holds(Path(output.path), there) or holds(there, Path(output.path)):
                    is_same = Path(output.path).resolve() == there.resolve()
                    relation = "are one directory" if is_same else "lie one in the other"
                    why = f"{output.path} and {there}, of {other}.path, {relation}"
                    raise file.error(f"{key}.path", f"{why}; name two directories")
            places.append((key, Path(output.path)))

    def check(self) -> None:
        """Check that the result may be published there. Nothing is written.

        Raises:
            ConfigError: something is there already, and must not be overwritten.
        """
        file, output = self._file, self._output
        if output.path is None:
            return
        if "://" in output.path:
            raise file.error(self._key, f"{output.path} is a URI; name a directory, local or shared by all machines")
        path = Path(output.path)
        with inspecting(file, self._key, path):
            check_place(file, self._key, path)
            if not is_unsettled(path.resolve()):  # if it is, `__enter__` checks once it has settled it
                refusal = self._refusal(path.resolve())
                if refusal is not None:
                    raise file.error(self._key, refusal)

    def __enter__(self) -> OutputDirectory:
        """Begin the result.

        Raises:
            ConfigError: it cannot be written, another job is writing there, or what is there must not be overwritten.
        """
        if self.path is None:
            return self
        target = Path(self.path).resolve()
        self.path = str(target)
        try:
            with interrupts_held():
                self._replacement = Replacement.begin(target, as_yaml(self._file.config.resolved()))
                others = [place for place in settle_abandoned(target) if place != self._replacement.work]
            self.staging = str(self._replacement.new)
            busy = f"another job writes to {target} now; wait for its end, or name another directory"
            refusal = busy if others else self._refusal(target)
            if refusal is not None:
                raise self._file.error(self._key, refusal)
        except OSError as error:
            self.__exit__()
            raise self._file.error(self._key, f"cannot write there: {why(error)}") from None
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        if self._replacement is None:
            return
        try:
            with interrupts_held():
                self._replacement.settle()
        except OSError as error:
            left = f"{self._replacement.work}: the next job with this output will try again to settle what is left here"
            warnings.warn(f"{left}: {error}", RuntimeWarning, stacklevel=2)

    def commit(self, files: Iterable[str]) -> tuple[str, ...]:
        """Put the complete result in its place; returns the names of its files.

        Raises:
            JobFailedError: it cannot be put there, or something came there that must not be overwritten. What was there
                before stays.
        """
        names = tuple(sorted(files))
        if self._replacement is None:
            return ()
        try:
            with interrupts_held():
                self._replacement.publish(self._accept)
        except OSError as error:
            raise JobFailedError(f"{self._key}: the result cannot be put at {self.path}: {why(error)}") from None
        return names

    def _accept(self, directory: Path) -> None:
        refusal = self._refusal(directory)
        if refusal is not None:
            raise JobFailedError(f"{self._key}: {refusal}; it was not so when the job began")

    def _refusal(self, directory: Path) -> str | None:
        """Why the content of a directory, the output's or a former one, must not be replaced; None if it may be."""
        if directory.exists() and not directory.is_dir():
            return f"{self._output.path} is a file; name a directory"
        known = files_of_result(directory)
        own = None if self._replacement is None else self._replacement.work
        entries = directory.iterdir() if directory.is_dir() else ()
        others = [entry for entry in entries if entry.name not in known and entry != own]
        strangers = sorted(entry.name for entry in others if not is_of_file_system(entry))
        path = self._output.path
        more = f" and {len(strangers) - 1} more" if len(strangers) > 1 else ""
        if self._output.mode == "error" and (known or strangers):
            remedy = f"it holds {strangers[0]}{more}" if strangers else f"set {self._section}.mode to `overwrite`"
            return f"{path} is not empty: {remedy}; or name another directory"
        if strangers:
            why = "`overwrite` replaces the result of a job and nothing else"
            return f"{path} holds {strangers[0]}{more}, no file of a result; {why}: name another directory"
        if known and MARK not in known:
            return f"{path} holds {known[0]} and no {MARK}, so it is no result of a job; name another directory"
        return None


def written(file: JobFile) -> Iterator[tuple[str, OutputConfig]]:
    """The sections that name where results go, each with its key path."""
    for name, step in file.stages.items():
        if step.write is not None:
            yield file.at(name, "write"), step.write


def in_memory(outcome: RunOutcome, stage: str) -> pa.Table:
    """The shares of a stage's tasks as one table; they have one schema."""
    tables = [part.table for part in outcome.outputs[stage] if part.table is not None]
    return pa.concat_tables([table for table in tables if table.num_rows] or tables[:1])
