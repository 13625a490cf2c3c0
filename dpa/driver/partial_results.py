"""The directory of partial results (`aggregation.path`): who may use it, what may be there, and what is removed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from dpa._util import owned
from dpa.config import AggregationConfig, JobFile
from dpa.driver.outputs import written
from dpa.driver.places import check_place, holds, inspecting, is_of_file_system
from dpa.sinks import partial_results


class PartialResultsDirectory:
    """A context in which the directory belongs to this job alone.

    It holds rounds of aggregation and nothing else. The last of them stay when the job ends, whether it fails or not.

    Attributes:
        path: where partial results are published, or None if none are.
    """

    def __init__(self, file: JobFile, given: AggregationConfig, key: str = "aggregation") -> None:
        """Of the stage with the section `given`; `key` is the key path of that section."""
        self._file = file
        self._given = given.path
        self.path = None if given.path is None else str(Path(given.path).absolute())
        self._key = f"{key}.path"
        self._lock = ExitStack()

    @staticmethod
    def check_all(file: JobFile) -> None:
        """Check that partial results may be published where they are to be. Nothing is written.

        Raises:
            ConfigError: something else is there, or the path and one of a result lie one in the other.
        """
        for key, given in published(file):
            PartialResultsDirectory(file, given, key).check()

    def check(self) -> None:
        """Check that partial results may be published there. Nothing is written.

        Raises:
            ConfigError: something else is there, or the path and one of a result lie one in the other.
        """
        file, given = self._file, self._given
        if given is None:
            return
        if "://" in given:
            raise file.error(self._key, f"{given} is a URI; name a directory, local or shared by all machines")
        path = Path(given)
        with inspecting(file, self._key, path):
            for key, output in written(file):
                if output.path is not None and (holds(path, Path(output.path)) or holds(Path(output.path), path)):
                    why = f"{path} and {key}.path, {output.path}, lie one in the other"
                    raise file.error(self._key, f"{why}; name two directories")
            check_place(file, self._key, path)
            strangers = partial_results.strangers_in(path) if path.exists() else []
            strangers = [name for name in strangers if not is_of_file_system(path / name)]
        if strangers:
            more = f" and {len(strangers) - 1} more" if len(strangers) > 1 else ""
            why = f"{path} holds {strangers[0]}{more}, no round of aggregation"
            raise file.error(self._key, f"{why}; name another directory")

    def __enter__(self) -> PartialResultsDirectory:
        """Make the directory if need be, and lock it.

        Raises:
            ConfigError: another job uses it, or it cannot be written to.
        """
        if self.path is not None:
            try:
                Path(self.path).mkdir(parents=True, exist_ok=True)
                self._lock.enter_context(owned.held(Path(self.path) / partial_results.LOCK))
            except BlockingIOError:
                why = f"another job publishes its partial results in {self.path} now"
                raise self._file.error(self._key, f"{why}; wait for its end, or name another directory") from None
            except OSError as error:
                raise self._file.error(self._key, f"cannot write there: {error}") from None
        return self

    def __exit__(self, *raised: object) -> None:
        self._lock.close()

    def clear(self) -> None:
        """Remove the rounds of an older run.

        Raises:
            ConfigError: they cannot be removed.
        """
        if self.path is None:
            return
        try:
            partial_results.clear(self.path)
        except OSError as error:
            raise self._file.error(self._key, f"cannot remove the rounds that are there: {error}") from None


def published(file: JobFile) -> Iterator[tuple[str, AggregationConfig]]:
    """The sections that ask for rounds of aggregation, each with its key path."""
    for name, step in file.stages.items():
        if step.aggregation is not None:
            yield file.at(name, "aggregation"), step.aggregation
