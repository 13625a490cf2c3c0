"""Where results and dead letters go: sinks, the checks of their places, and the words of failures."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpa._util.as_yaml import as_yaml
from dpa._util.outages import Outages
from dpa.config import JobFile, OutputConfig
from dpa.driver._directories import check_place, check_prefix, holds, in_common, inspecting
from dpa.driver._loading import sink_of
from dpa.errors import ConfigError, DpaError, JobFailedError, TableError
from dpa.execution.publishing import CHANGE, EPOCH, Publishes
from dpa.protocol.plan import RunOutcome
from dpa.result import OutputReport
from dpa.routing.keys import KeyName
from dpa.sinks.encodings import PARQUET
from dpa.sinks.formats import FORMATS, Target
from dpa.sinks.memory import Memory
from dpa.sinks.sink import Newest, Sink, SinkContext
from dpa.sources.paths import prefix_of, without_file_scheme
from dpa.tolerance import Letter

DEAD_LETTERS = "dead_letters"
"""The key that says where dead letters go."""


class Publication:
    """A context in which a sink is begun, and which leaves nothing of what was staged and not committed.

    Attributes:
        publishes: what each epoch publishes; None: there is one result, at the end.
        place: where the sink says that committed rows are.
        staged: what tasks have staged and nobody has committed yet.
        report: where the rows are, or would have been, and how many they are.
    """

    def __init__(
        self, file: JobFile, sink: Sink, key: str, path: str | None = None, publishes: Publishes | None = None
    ) -> None:
        """Of a sink named at `key`, whose directory or URI is `path`. ConfigError if the sink does not say its
        place."""
        self.sink = sink
        self.publishes = publishes
        sink.know(replace(sink.job_context, publishes=publishes))
        self.outages = Outages()
        self._file = file
        self._key = key
        self._path = path
        self._ending = PARQUET.ending
        self.place = self._located()
        self.staged: list[Any] = []
        self.report = OutputReport(unpublished=self.place)

    @classmethod
    def of(cls, file: JobFile, output: OutputConfig, key: str, given: Any = None) -> Publication:
        """Of a result whose section `output` stands at `key`; `given` stands for the function that it names.
        ConfigError if the sink cannot be found or made, or is none."""
        publishes = None if output.publish is None else output.publish.mode
        if output.use is not None:
            return cls(file, sink_of(file, key, output, given), key, publishes=publishes)
        if output.path is None:
            return cls(file, Memory(), key)
        to = Target(
            without_file_scheme(output.path),
            output.mode,
            output.args,
            section=key,
            mark=lambda: as_yaml(file.config.resolved()),
            publishes=publishes,
            private=key == DEAD_LETTERS,
            files=output.files,
        )
        form = FORMATS[output.format]
        with file.blaming(f"{key}.path", TableError):
            made = cls(file, form.sink(to), f"{key}.path", to.path if form.is_directory else None, publishes)
        if form.encoding is not None:
            made._ending = form.encoding.ending_of(output.compression)
        return made

    def know(self, job: str, key: KeyName = (), *, with_checkpoints: bool = False) -> None:
        """The sink is of a job of this name, and commits epochs `with_checkpoints`."""
        self.sink.know(SinkContext(job, key, self.publishes, with_checkpoints))

    @property
    def publishes_once(self) -> bool:
        """Whether no row of an epoch is published again in a later one."""
        return self.publishes in ("final", "changes")

    def check(self) -> None:
        """ConfigError if rows may not be published there, or the job needs the directory. Nothing is written."""
        if self._path is None or "://" in self._path:
            if self._path is not None:
                check_prefix(self._file, self._key, self._path)
            with self._refusing():
                self.sink.check()
            return
        path = Path(self._path)
        with inspecting(self._file, self._key, path):
            check_place(self._file, self._key, path, self._ending)
            with self._file.blaming(self._key, TableError):
                self.sink.check()

    def expect(self, columns: pa.Schema) -> None:
        """ConfigError if rows with these columns may not be published there; null stands for an unknown type."""
        if self.publishes == "changes":
            columns = columns.append(pa.field(CHANGE, pa.string())).append(pa.field(EPOCH, pa.int64()))
        with self._refusing():
            self.sink.expect(columns)

    def check_apart(self, key: str, path: str | None) -> None:
        """ConfigError if the directory of the section at `key` and this one are the same, or one lies in the other."""
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
        """Begin. ConfigError if rows cannot be staged there, or what is there must not be overwritten."""
        with self._refusing():
            self.outages.bear(self._begin)
        return self

    def _begin(self) -> None:
        """Begin, leaving nothing if that fails, such as a lock, so that it can be tried again."""
        try:
            self.sink.begin()
            self.place = self._located()
        except BaseException:
            self.__exit__()
            raise

    def restart(self) -> None:
        """Begin anew, with nothing of what was staged; JobFailedError if that cannot be."""
        self.__exit__()
        try:
            self.__enter__()
        except ConfigError as error:
            raise JobFailedError(f"the job cannot restart: {error}") from error

    def __exit__(self, *raised: object) -> None:
        try:
            self.sink.abort()
        except Exception as error:
            warnings.warn(f"{self._key}: {_words(error)}", RuntimeWarning, stacklevel=2)

    def newest(self) -> Newest | None:
        with self._refusing():
            return self.sink.newest()

    def stage(self, rows: pa.Table, number: int) -> Any:
        """Stage rows from this process, in place of the task of that number; JobFailedError if they cannot be
        written."""
        with as_error(JobFailedError, self._key):
            return self.outages.bear(lambda: self.sink.stage(rows, number, 1), full=False)

    def commit(
        self, staged: Sequence[Any], seconds: float = 0.0, epoch: int = 1, *, is_last: bool = True
    ) -> tuple[str, ...]:
        """Publish the complete result, or that of an epoch, and return the names of its files. JobFailedError if it
        cannot be published: then readers see what they saw before."""
        with as_error(JobFailedError, self._key):
            commit = partial(self.sink.commit, staged, epoch, seconds, is_last=is_last)
            files = self.outages.bear(commit, full=not is_last)
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
        """A block of the sink's code. Anything that it raises is a ConfigError."""
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


@contextmanager
def as_error(kind: type[DpaError], name: str) -> Iterator[None]:
    """A block of a sink's code. Anything that it raises becomes an error of this kind, which begins with the name."""
    try:
        yield
    except Exception as error:
        raise kind(f"{name}: {_words(error)}") from error


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, DpaError) else f"{type(error).__name__}: {error}"


def outputs_of(
    file: JobFile, made: Mapping[str, Publication] | None = None, objects: Mapping[str, Any] | None = None
) -> Mapping[str, Publication]:
    """By key path, where results go. Sinks of the user's in `made` are used again; `objects` replace what the file
    names. ConfigError if a sink cannot be made, or is none."""
    again = {key: (made or {}).get(key) for key, output in written(file) if output.use is not None}
    given = objects or {}
    return {key: again.get(key) or Publication.of(file, output, key, given.get(key)) for key, output in written(file)}


def check_outputs(file: JobFile, outputs: Mapping[str, Publication]) -> None:
    """ConfigError if a result may not be published where it is to go, or two directories lie one in the other."""
    before: dict[str, str | None] = {}
    for key, output in written(file):
        for other, path in before.items():
            outputs[key].check_apart(other, path)
        outputs[key].check()
        if key == DEAD_LETTERS:
            outputs[key].expect(SCHEMA)
        before[key] = None if output.path is None else without_file_scheme(output.path)


def written(file: JobFile) -> Iterator[tuple[str, OutputConfig]]:
    """The sections that say where results and dead letters go, each with its key path."""
    if file.config.dead_letters is not None:
        yield DEAD_LETTERS, file.config.dead_letters
    for name, step in file.stages.items():
        for key, output in step.outputs.items():
            if output.path is not None or output.use is not None:
                yield file.at(name, key), output


def in_memory(outcome: RunOutcome, stage: str) -> pa.Table:
    return Memory().read([part.staged[0] for part in outcome.outputs[stage] if part.staged])


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

_AT_ONCE = 10_000  # letters that are in memory together while they are written


def as_table(letters: Iterable[Letter]) -> pa.Table:
    return pa.Table.from_pylist([asdict(letter) for letter in letters], SCHEMA)


def publish(to: Publication, letters: Iterable[Letter]) -> None:
    """Put dead letters in their place, where none of an earlier job are left; JobFailedError if they cannot be
    written."""
    rest = iter(letters)
    staged = [to.stage(as_table(islice(rest, _AT_ONCE)), 0)]
    while some := [*islice(rest, _AT_ONCE)]:
        staged.append(to.stage(as_table(some), len(staged)))
    to.commit(staged)
