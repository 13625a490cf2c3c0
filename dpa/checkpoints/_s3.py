"""Checkpoints in object storage that speaks S3's protocol."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from dpa._util.s3 import Objects
from dpa.checkpoints._files import Files
from dpa.errors import CheckpointStoreError


@dataclass(frozen=True)
class S3Files(Objects, Files):
    """Objects below a prefix of a bucket."""

    what = "checkpoints"
    error = CheckpointStoreError

    @classmethod
    def of(cls, uri: str) -> S3Files:
        """Those at a URI.

        Raises:
            CheckpointError: there is no such bucket, or no way to it.
        """
        files = cls.at_uri(uri)
        files.require_bucket()
        return files

    def make(self, job: str) -> None:
        """Nothing: there are no directories."""

    def unmake(self, job: str) -> None:
        """Nothing, as there are none."""

    def write(self, path: str, data: Iterable[memoryview]) -> None:
        """By Arrow."""
        with self.writing(path) as stream:
            for view in data:
                stream.write(pa.py_buffer(view))

    def put_if_absent(self, path: str, data: bytes, draft: str) -> bool:
        """By `If-None-Match: *`."""
        return self.put(path, data) is not None

    def read(self, path: str) -> bytes | None:
        """By Arrow. Who can write it is the bucket's policy."""
        with self.reading(path) as stream:
            content: bytes | None = None if stream is None else stream.read()
            return content
