"""The directory of results so far (`aggregation.path`): what may be there when a job begins, and what is removed."""

from __future__ import annotations

from pathlib import Path

from dpa.config import JobFile
from dpa.runtime import rounds


class RoundsDirectory:
    """Holds rounds of aggregation and nothing else; the last of them stay when the job has ended, however it did.

    Attributes:
        path: where rounds are published, or None if none are.
    """

    def __init__(self, file: JobFile) -> None:
        self._file = file
        given = file.config.aggregation
        self.path = None if given is None or given.path is None else str(Path(given.path).absolute())

    @staticmethod
    def check(file: JobFile) -> None:
        """Check that rounds may be published where they are to be.

        Raises:
            ConfigError: something else is there, or results are to be.
        """
        key, given = "aggregation.path", file.config.aggregation
        if given is None or given.path is None:
            return
        if "://" in given.path:
            raise file.error(key, f"{given.path} is a URI; name a directory, local or shared by all machines")
        path, output = Path(given.path), file.config.output.path
        if output is not None and "://" not in output:
            one, other = path.resolve(), Path(output).resolve()
            if one == other or one in other.parents or other in one.parents:
                raise file.error(key, f"{path} and output.path, {output}, lie one in the other; name two directories")
        if path.exists() and not path.is_dir():
            raise file.error(key, f"{path} is a file; name a directory")
        strangers = rounds.strangers_in(path) if path.exists() else []
        if strangers:
            more = f" and {len(strangers) - 1} more" if len(strangers) > 1 else ""
            raise file.error(key, f"{path} holds {strangers[0]}{more}, no round of aggregation; name another directory")

    def clear(self) -> None:
        """Have the directory, without the rounds of an older run.

        Raises:
            ConfigError: it cannot be written to.
        """
        if self.path is None:
            return
        try:
            Path(self.path).mkdir(parents=True, exist_ok=True)
            rounds.clear(self.path)
        except OSError as error:
            raise self._file.error("aggregation.path", f"cannot write there: {error}") from None
