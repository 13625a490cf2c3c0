"""The result's directory: written beside its place, and put there by renaming once it is complete."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import yaml

from dpa.config import JobFile
from dpa.runtime.plan import RunOutcome
from dpa.secrets import without_secrets
from dpa.signals import interrupts_held

CONFIGURATION = "_job.yaml"
"""The resolved configuration beside the results; readers of Parquet directories pass over names with an underscore."""


class OutputDirectory:
    """A context: on the way in a staging directory is made, on the way out it is gone, committed or not.

    Attributes:
        path: where the result will be, or None if it stays in memory.
        staging: where reducers write their share.
    """

    def __init__(self, file: JobFile) -> None:
        self._file = file
        path = file.config.output.path
        self.path = None if path is None else str(Path(path).absolute())
        self.staging: str | None = None

    @staticmethod
    def check(file: JobFile) -> None:
        """Check that the result may be put where it is to go.

        Raises:
            ConfigError: something is there already, and must not be overwritten.
        """
        output = file.config.output
        if output.path is None:
            return
        if "://" in output.path:
            raise file.error(
                "output.path", f"{output.path} is a URI; name a directory, local or shared by all machines"
            )
        path = Path(output.path)
        if path.exists() and not path.is_dir():
            raise file.error("output.path", f"{path} is a file; name a directory")
        if output.mode == "error" and path.exists() and any(path.iterdir()):
            raise file.error(
                "output.path", f"{path} is not empty; set output.mode to `overwrite`, or name another directory"
            )

    def __enter__(self) -> OutputDirectory:
        if self.path is not None:
            target = Path(self.path)
            staging = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}")
            try:
                staging.mkdir(parents=True)
            except OSError as error:
                raise self._file.error("output.path", f"cannot write there: {error}") from None
            self.staging = str(staging)
        return self

    def __exit__(self, *raised: object) -> None:
        if self.staging is not None:
            shutil.rmtree(self.staging, ignore_errors=True)

    def commit(self, files: Iterable[str]) -> tuple[str, ...]:
        """Put the complete result in its place; returns the names of its files."""
        names = tuple(sorted(files))
        if self.path is None or self.staging is None:
            return ()
        staging, target = Path(self.staging), Path(self.path)
        resolved = yaml.safe_dump(
            without_secrets(self._file.config.model_dump(mode="json")), sort_keys=False, allow_unicode=True
        )
        (staging / CONFIGURATION).write_text(resolved, encoding="utf-8")
        self.check(self._file)
        old = target.with_name(f"{staging.name}.old")
        with interrupts_held():
            if target.exists():
                target.rename(old)
            try:
                staging.rename(target)
            except OSError:
                if old.exists():
                    old.rename(target)
                raise
        shutil.rmtree(old, ignore_errors=True)
        return names


def in_memory(outcome: RunOutcome) -> pa.Table:
    """The reducers' shares as one table; they have one schema."""
    tables = [part.table for part in outcome.outputs if part.table is not None]
    return pa.concat_tables([table for table in tables if table.num_rows] or tables[:1])
