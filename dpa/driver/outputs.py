"""Where results, partial results and dead letters go: sinks, the checks of their places, and the words of failures."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpa._util.as_yaml import as_yaml
from dpa._util.outages import Outages
from dpa.config import AggregationConfig, JobFile, OutputConfig
from dpa.driver._directories import check_place, check_prefix, holds, in_common, inspecting
from dpa.driver._loading import as_sink, sink_of
from dpa.errors import ConfigError, DpaError, JobFailedError, TableError
from dpa.execution.publishing import CHANGE, EPOCH
from dpa.protocol.plan import RunOutcome
from dpa.sinks.formats import FORMATS, Target
from dpa.sinks.memory import Memory
from dpa.sinks.objects import ParquetObjects
from dpa.sinks.sink import RESULT, Newest, Sink
from dpa.sources.paths import prefix_of, without_file_scheme
from dpa.tolerance import Letter

DEAD_LETTERS = "dead_letters"
"""The key that says where dead letters go."""


class Publication:
    """A context in which a sink is begun, and which leaves nothing of what was staged and not committed.

    Attributes:
        sink: where rows go.
        place: where the sink says that they are once they are committed.
        outages: how those of the place are borne.
    """

    def __init__(self, file: JobFile, sink: Sink, key: str, path: str | None = None) -> None:
        """Of a sink that a job file names at `key`; `path` is its directory, as the file has it.

        Raises:
            ConfigError: the sink does not say its place.
        """
        self.sink = sink
        self.outages = Outages()
        self._file = file
        self._key = key
        self._path = path
        self.place = self._located()

    @classmethod
    def of(cls, file: JobFile, output: OutputConfig, key: str, given: Any = None) -> Publication:
        """Of the result whose section is `output`, at the key path `key`; `given` stands for the function that it
        names.

        Raises:
            ConfigError: the sink that it names cannot be found or made, or is none.
        """
        if output.use is not None:
            sink = sink_of(file, key, output) if given is None else as_sink(file, key, output, given)
            return cls(file, sink, key)
        if output.path is None:
            return cls(file, Memory(), key)
        to = Target(
            without_file_scheme(output.path),
            output.mode,
            output.args,
            section=key,
            mark=lambda: as_yaml(file.config.resolved()),
            publishes=None if output.publish is None else output.publish.mode,
            private=key == DEAD_LETTERS,
        )
        form = FORMATS[output.format]
        try:
            return cls(file, form.sink(to), f"{key}.path", to.path if form.is_directory else None)
        except TableError as error:
            raise file.error(f"{key}.path", str(error)) from None

    def check(self) -> None:
        """Check that rows may be published there. Nothing is written.

        Raises:
            ConfigError: they may not, or the directory is one that the job needs.
        """
        if self._path is None or "://" in self._path:
            if self._path is not None:
                check_prefix(self._file, self._key, self._path)
            with self._refusing():
                self.sink.check()
            return
        path = Path(self._path)
        with inspecting(self._file, self._key, path):
            check_place(self._file, self._key, path)
            try:
                self.sink.check()
            except TableError as error:
                raise self._error(str(error)) from None

    def expect(self, columns: pa.Schema) -> None:
        """Check that rows with these columns may be published there; null stands for a type that is not known.

        Raises:
            ConfigError: they may not.
        """
        if self.sink.publishes == "changes":
            columns = columns.append(pa.field(CHANGE, pa.string())).append(pa.field(EPOCH, pa.int64()))
        with self._refusing():
            self.sink.expect(columns)

    def check_apart(self, key: str, path: str | None) -> None:
        """Check that the directory of another section, at `key`, has nothing in common with this one.

        Raises:
            ConfigError: they are one directory, or lie one in the other.
        """
        if self._path is None or path is None:
            return
        if "://" in f"{self._path}{path}":
            if "://" in self._path and "://" in path and in_common(self._path, path):
                pair = f"{prefix_of(self._path)} and {prefix_of(path)}, of {key}.path,"
                raise self._error(f"{pair} lie one in the other; name two prefixes")
            return
        here, there = Path(self._path), Path(path)
        with inspecting(self._file, self._key, here):
            if holds(here, there) or holds(there, here):
                relation = "are one directory" if here.resolve() == there.resolve() else "lie one in the other"
                raise self._error(f"{self._path} and {path}, of {key}.path, {relation}; name two directories")

    def __enter__(self) -> Publication:
        """Begin.

        Raises:
            ConfigError: rows cannot be staged there, or there is what must not be overwritten.
        """
        with self._refusing():
            self.outages.bear(self._begin)
        return self

    def _begin(self) -> None:
        """Begin, with nothing left if that fails, such as a lock, so that it can be tried again."""
        try:
            self.sink.begin()
            self.place = self._located()
        except BaseException:
            self.__exit__()
            raise

    def restart(self) -> None:
        """Begin anew, with nothing of what was staged.

        Raises:
            JobFailedError: rows cannot be staged any more.
        """
        self.__exit__()
        try:
            self.__enter__()
        except ConfigError as error:
            raise JobFailedError(f"the job cannot be begun again: {error}") from error

    def __exit__(self, *raised: object) -> None:
        try:
            self.sink.abort()
        except Exception as error:
            warnings.warn(f"{self._key}: {_words(error)}", RuntimeWarning, stacklevel=2)

    def newest(self) -> Newest | None:
        """What of the job is there.

        Raises:
            ConfigError: the sink cannot say it.
        """
        with self._refusing():
            return self.sink.newest()

    def stage(self, rows: pa.Table, number: int) -> Any:
        """Stage rows from here, in place of the task of that number.

        Raises:
            JobFailedError: they cannot be written.
        """
        try:
            return self.outages.bear(lambda: self.sink.stage(rows, number, RESULT), full=False)
        except Exception as error:
            raise JobFailedError(f"{self._key}: {_words(error)}") from error

    def commit(self, staged: Sequence[Any], seconds: float = 0.0, epoch: int = RESULT) -> tuple[str, ...]:
        """Publish the complete result, or that of an epoch; returns the names of its files.

        Raises:
            JobFailedError: it cannot be published; readers see what they saw before.
        """
        try:
            files = self.outages.bear(lambda: self.sink.commit(staged, epoch, seconds), full=epoch != RESULT)
        except JobFailedError:
            raise
        except Exception as error:
            raise JobFailedError(f"{self._key}: {_words(error)}") from error
        try:  # the rows are published: what is wrong from here on fails no job
            self.place = self._located()
        except ConfigError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)
        if isinstance(files, (list, tuple)) and all(isinstance(name, str) for name in files):
            return tuple(files)
        if files is not None:
            found = f"{type(self.sink).__name__}.commit returned {files!r}, which names no files"
            warnings.warn(f"{self._key}: {found}", RuntimeWarning, stacklevel=2)
        return ()

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """A block of the sink's code, in which whatever it raises is wrong with the job file.

        Raises:
            ConfigError: it raised something.
        """
        try:
            yield
        except ConfigError:
            raise
        except Exception as error:
            raise self._error(_words(error)) from None

    def _located(self) -> str | None:
        what = f"{type(self.sink).__name__}.place"
        try:
            place = self.sink.place
        except Exception as error:
            raise self._error(f"{what}: {_words(error)}") from None
        if place is None or isinstance(place, str):
            return place
        raise self._error(f"{what} is {place!r}, where a text or None is due")

    def _error(self, message: str) -> ConfigError:
        return self._file.error(self._key, message)


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, DpaError) else f"{type(error).__name__}: {error}"


def outputs_of(
    file: JobFile, made: Mapping[str, Publication] | None = None, objects: Mapping[str, Any] | None = None
) -> Mapping[str, Publication]:
    """Where the results of all steps are to be published, by the key path that says so. Of those that have been `made`
    before, the ones with a sink of the user's are used again; `objects` are used instead of what the file names.

    Raises:
        ConfigError: a sink cannot be found or made, or is none.
    """
    again = {key: (made or {}).get(key) for key, output in written(file) if output.use is not None}
    given = objects or {}
    return {key: again.get(key) or Publication.of(file, output, key, given.get(key)) for key, output in written(file)}


def check_outputs(file: JobFile, outputs: Mapping[str, Publication]) -> None:
    """Check that the results of all steps may be published where they are to be. Nothing is written.

    Raises:
        ConfigError: something is there already, and must not be overwritten; or two directories lie one in the other.
    """
    before: dict[str, str | None] = {}
    for key, output in written(file):
        outputs[key].check()
        for other, path in before.items():
            outputs[key].check_apart(other, path)
        before[key] = output.path


def written(file: JobFile) -> Iterator[tuple[str, OutputConfig]]:
    """The sections that name where results, and dead letters, go, each with its key path."""
    for name, step in file.stages.items():
        if step.write is not None:
            yield file.at(name, "write"), step.write
    if file.config.dead_letters is not None:
        yield DEAD_LETTERS, file.config.dead_letters


def in_memory(outcome: RunOutcome, stage: str) -> pa.Table:
    """The result of a stage that stayed in memory."""
    return Memory().read([share for part in outcome.outputs[stage] for share in part.staged])


class PartialPublication(Publication):
    """A context in which a directory of partial results belongs to this job alone: a table that each epoch replaces.
    Those of an older run are replaced, too."""

    def __init__(self, file: JobFile, path: str, key: str) -> None:
        try:
            sink = FORMATS["parquet"].sink(Target(path, "overwrite", section=key, publishes="table"))
        except TableError as error:
            raise file.error(f"{key}.path", str(error)) from None
        super().__init__(file, sink, f"{key}.path", path)

    def clear(self) -> None:
        """Have readers see no epoch of an older run.

        Raises:
            ConfigError: they cannot be removed.
        """
        assert isinstance(self.sink, ParquetObjects)
        with self._refusing():
            self.sink.clear()


def check_partial_results(file: JobFile) -> None:
    """Check that partial results may be published where they are to be. Nothing is written.

    Raises:
        ConfigError: something else is there, or a directory and one of a result lie one in the other.
    """
    for key, given in published(file):
        if given.path is not None:
            partial = PartialPublication(file, given.path, key)
            for other, output in written(file):
                partial.check_apart(other, output.path)
            partial.check()


def published(file: JobFile) -> Iterator[tuple[str, AggregationConfig]]:
    """The sections that ask for partial results, each with its key path."""
    for name, step in file.stages.items():
        if step.aggregation is not None:
            yield file.at(name, "aggregation"), step.aggregation


_NUMBERS = ("split", "offset", "rows", "edge", "block", "epoch", "generation")

SCHEMA = pa.schema(
    pa.field(
        field.name,
        pa.int64() if field.name in _NUMBERS else pa.binary() if field.name == "data" else pa.string(),
        nullable="None" in str(field.type),
    )
    for field in fields(Letter)
)
"""The columns of the table: those of a `Letter`."""


_AT_ONCE = 10_000
"""Letters that are in memory together while they are written."""


def as_table(letters: Iterable[Letter]) -> pa.Table:
    """A row for each letter."""
    return pa.Table.from_pylist([asdict(letter) for letter in letters], SCHEMA)


def publish(to: Publication, letters: Iterable[Letter]) -> None:
    """Put dead letters in their place, which has none of an earlier job then.

    Raises:
        JobFailedError: they cannot be written.
    """
    rest = iter(letters)
    staged = [to.stage(as_table(islice(rest, _AT_ONCE)), 0)]
    while some := [*islice(rest, _AT_ONCE)]:
        staged.append(to.stage(as_table(some), len(staged)))
    to.commit(staged)
