"""The directory of partial results (`aggregation.path`): who may use it, what may be there, and what is removed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from dpa._util import owned
from dpa.config import JobFile
from dpa.driver.places import check_place, holds, inspecting, is_of_file_system
from dpa.sinks import partial_results

_KEY = "aggregation.path"


class PartialResultsDirectory:
    """A context in which the directory belongs to this job alone.

    It holds rounds of aggregation and nothing else. The last of them stay when the job ends, whether it fails or not.

    Attributes:
        path: where partial results are published, or None if none are.
    """

    def __init__(self, file: JobFile) -> None:
        self._file = file
        given = file.config.aggregation
        self.path = None if given is None or given.path is None else str(Path(given.path).absolute())
        self._lock = ExitStack()

    @staticmethod
    def check(file: JobFile) -> None:
        """Check that partial results may be published at `aggregation.path`. Nothing is written.

        Raises:
            ConfigError: something else is there, or the path and `output.path` lie one in the other.
        """
        given = file.config.aggregation
        if given is None or given.path is None:
            return
        if "://" in given.path:
            raise file.error(_KEY, f"{given.path} is a URI; name a directory, local or shared by all machines")
        path, output = Path(given.path), file.config.output.path
        with inspecting(file, _KEY, path):
            if output is not None and (holds(path, Path(output)) or holds(Path(output), path)):
                raise file.error(_KEY, f"{path} and output.path, {output}, lie one in the other; name two directories")
            check_place(file, _KEY, path)
            strangers = partial_results.strangers_in(path) if path.exists() else []
            strangers = [name for name in strangers if not is_of_file_system(path / name)]
        if strangers:
            more = f" and {len(strangers) - 1} more" if len(strangers) > 1 else ""
            raise file.error(
                _KEY, f"{path} holds {strangers[0]}{more}, no round of aggregation; name another directory"
            )

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
                raise self._file.error(_KEY, f"{why}; wait for its end, or name another directory") from None
            except OSError as error:
                raise self._file.error(_KEY, f"cannot write there: {error}") from None
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
            raise self._file.error(_KEY, f"cannot remove the rounds that are there: {error}") from None
