"""The directories of partial results (`aggregation.path`)."""

from __future__ import annotations

from collections.abc import Iterator

from dpa.config import AggregationConfig, JobFile
from dpa.driver.outputs import Publication, written
from dpa.sinks.partial_results import RoundsDirectory


class RoundsPublication(Publication):
    """A context in which a directory of partial results belongs to this job alone.

    Attributes:
        rounds: the directory.
    """

    def __init__(self, file: JobFile, path: str, key: str) -> None:
        self.rounds = RoundsDirectory(path)
        super().__init__(file, self.rounds, f"{key}.path", path)

    def clear(self) -> None:
        """Remove the rounds of an older run.

        Raises:
            ConfigError: they cannot be removed.
        """
        with self._refusing():
            self.rounds.clear()


def check_partial_results(file: JobFile) -> None:
    """Check that partial results may be published where they are to be. Nothing is written.

    Raises:
        ConfigError: something else is there, or a directory and one of a result lie one in the other.
    """
    for key, given in published(file):
        if given.path is not None:
            rounds = RoundsPublication(file, given.path, key)
            for other, output in written(file):
                rounds.check_apart(other, output.path)
            rounds.check()


def published(file: JobFile) -> Iterator[tuple[str, AggregationConfig]]:
    """The sections that ask for rounds of aggregation, each with its key path."""
    for name, step in file.stages.items():
        if step.aggregation is not None:
            yield file.at(name, "aggregation"), step.aggregation
