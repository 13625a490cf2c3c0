"""A store of checkpoints: a directory or a prefix of object storage, with a directory for each job."""

from __future__ import annotations

import os
import re
import uuid
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from dpa.checkpoints._chain import Chain, DataFiles
from dpa.errors import CheckpointError, CheckpointStoreError
from dpa.storage import DirectoryFiles, Files, Purpose, files_at

_PURPOSE = Purpose("checkpoints", CheckpointStoreError, CheckpointError, is_private=True)

_JOB = re.compile(r"[A-Za-z0-9_.-]*-[0-9a-f]{32}")
"""The directory of a job: its name, without what a path cannot hold, and a unique number."""


@dataclass(frozen=True)
class CheckpointStore:
    """The checkpoints below a URI. Can be pickled."""

    _files: Files

    @classmethod
    def open(cls, uri: str) -> CheckpointStore:
        """The store at a path, `file:///path`, or `s3://bucket/prefix` with the options that Arrow knows. A directory
        need not exist.

        Raises:
            CheckpointError: checkpoints cannot be there.
        """
        parts = urlsplit(uri)
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            uri = unquote(parts.path)
        elif "://" in uri and parts.scheme != "s3":
            place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
            right = "name a directory, file:///DIRECTORY or s3://BUCKET/PREFIX"
            raise CheckpointError(f"checkpoints cannot be at {place}: {right}")
        if "://" not in uri:
            uri = os.path.abspath(os.path.expanduser(uri))  # noqa: PTH100, PTH111 - as `..` was always understood
        files = files_at(uri, _PURPOSE)
        files.check()
        return cls(files)

    @staticmethod
    def with_job(uri: str) -> tuple[str, str | None]:
        """The URI of the store, and the job's directory if the URI names one."""
        path, mark, options = uri.partition("?")
        place, slash, last = path.rstrip("/").rpartition("/")
        return (f"{place or slash or '.'}{mark}{options}", last) if _JOB.fullmatch(last) else (uri, None)

    @property
    def place(self) -> str:
        """For messages: without user, password or options."""
        return self._files.place

    def create(self, name: str, generation: int = 0) -> Chain:
        """The chain of a new job of this name, claimed for its first generation."""
        job = f"{re.sub('[^A-Za-z0-9_.-]+', '_', name)[:80]}-{uuid.uuid4().hex}"
        self._files.make(job, f"{job}/chain", f"{job}/files")
        return Chain.begin(self._files, job, name, generation)

    def jobs(self) -> list[str]:
        """The directories of jobs, sorted."""
        return sorted(name for name in self._files.names("") if _JOB.fullmatch(name))

    def chain(self, job: str) -> Chain:
        """The chain of a job, named by its directory, to read, claim or collect.

        Raises:
            CheckpointError: there is no such job.
        """
        if _JOB.fullmatch(job) is None or job not in self.jobs():
            known = ", ".join(self.jobs()) or "none"
            raise CheckpointError(f"{self.place} has no checkpoints of {job}; jobs there: {known}")
        return Chain(self._files, job)

    def room(self, job: str) -> str | None:
        """A directory, not made yet, where the job's input is staged and is removed with the checkpoints; None in
        object storage."""
        return f"{self.place}/{job}/input" if isinstance(self._files, DirectoryFiles) else None

    def data(self, job: str) -> DataFiles:
        return DataFiles(self._files, job)
