"""The directories of partial results (`aggregation.path`)."""

from __future__ import annotations

from collections.abc import Iterator

from dpa.config import AggregationConfig, JobFile
from dpa.driver.outputs import Publication, written
from dpa.errors import TableError
from dpa.sinks.formats import FORMATS, Target
from dpa.sinks.objects import ParquetObjects


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
