"""Checkpoints in object storage that speaks S3's protocol.

Data goes by Arrow, which sends parts side by side and without Python's lock. It has no conditional put, and a delete of
its own leaves empty objects behind: those, and lists, go by boto3, which coordinators need and tasks do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa

from dpa._util.secrets import without_secrets
from dpa.checkpoints._files import Files, reaching
from dpa.errors import CheckpointError

_BATCH = 1000
"""Objects that one request may delete."""


@dataclass(frozen=True)
class S3Files(Files):
    """Objects below a prefix of a bucket.

    Attributes:
        uri: as Arrow reads it: `s3://[key:secret@]bucket/prefix[?region=...&endpoint_override=...&scheme=...]`.
    """

    place: str
    uri: str = field(repr=False)

    @classmethod
    def of(cls, uri: str) -> S3Files:
        """Those at a URI.

        Raises:
            CheckpointError: there is no such bucket, or no way to it.
        """
        parts = urlsplit(uri)
        bucket = parts.netloc.rpartition("@")[2]
        if not bucket or ":" in bucket or "@" in parts.path:
            right = "s3://BUCKET/PREFIX, or s3://KEY:SECRET@BUCKET/PREFIX with each / in KEY or SECRET written as %2F"
            raise CheckpointError(f"a URI of checkpoints has no bucket where one is expected; write {right}")
        files = cls(f"s3://{bucket}{parts.path.rstrip('/')}", uri)
        with files._asking(""):
            files._client.list_objects_v2(Bucket=files._bucket, Prefix=files._key(""), MaxKeys=1)
        return files

    def __getstate__(self) -> dict[str, Any]:
        return {"place": self.place, "uri": self.uri}

    def make(self, job: str) -> None:
        """Nothing: there are no directories."""

    def unmake(self, job: str) -> None:
        """Nothing, as there are none."""

    def write(self, path: str, data: Sequence[memoryview]) -> None:
        """By Arrow."""
        with reaching(self._at(path)), self._arrow.open_output_stream(f"{self._bucket}/{self._key(path)}") as stream:
            for view in data:
                stream.write(pa.py_buffer(view))

    def put_if_absent(self, path: str, data: bytes, draft: str) -> bool:
        """By `If-None-Match: *`."""
        with self._asking(path):
            while True:
                try:
                    self._client.put_object(Bucket=self._bucket, Key=self._key(path), Body=data, IfNoneMatch="*")
                except self._client.exceptions.ClientError as error:
                    if _status(error) == 412:  # there is one
                        return False
                    if _status(error) != 409:  # another one came or went while this was under way
                        raise
                else:
                    return True

    def read(self, path: str) -> bytes | None:
        """By Arrow. Who can write it is the bucket's policy."""
        with reaching(self._at(path)):
            try:
                stream = self._arrow.open_input_file(f"{self._bucket}/{self._key(path)}")
            except FileNotFoundError:
                return None
            with stream:
                content: bytes = stream.read()
                return content

    def exists(self, path: str) -> bool:
        """Whether an object is there."""
        with self._asking(path):
            try:
                self._client.head_object(Bucket=self._bucket, Key=self._key(path))
            except self._client.exceptions.ClientError as error:
                if _status(error) != 404:
                    raise
                return False
            return True

    def names(self, directory: str) -> list[str]:
        """In the order of their text."""
        prefix = f"{self._key(directory)}/".lstrip("/")
        with self._asking(directory):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=prefix, Delimiter="/"
            )
            keys = [
                key
                for page in pages
                for key in (
                    *(item["Key"] for item in page.get("Contents", ())),
                    *(item["Prefix"] for item in page.get("CommonPrefixes", ())),
                )
            ]
        return [name for key in keys if (name := key.removeprefix(prefix).rstrip("/"))]

    def delete(self, paths: Iterable[str]) -> None:
        """A thousand in a request."""
        keys = iter([{"Key": self._key(path)} for path in paths])
        while batch := list(islice(keys, _BATCH)):
            with self._asking(""):
                done = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": batch, "Quiet": True})
            for failed in done.get("Errors", ()):
                raise CheckpointError(f"{failed.get('Message')}, deleting s3://{self._bucket}/{failed.get('Key')}")

    @cached_property
    def _arrow(self) -> Any:
        from pyarrow.fs import S3FileSystem

        try:
            return S3FileSystem.from_uri(self.uri)[0]
        except (OSError, pa.ArrowInvalid) as error:
            said = str(error).replace(self.uri, self.place)
            raise CheckpointError(f"{_first_line(said)}, at {self.place}") from None

    @cached_property
    def _client(self) -> Any:
        try:
            import boto3
        except ImportError:
            raise CheckpointError(
                f"checkpoints at {self.place} need boto3, as Arrow cannot put an object if there is none yet: "
                "pip install 'dpa[s3]'"
            ) from None
        parts = urlsplit(self.uri)
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        endpoint = options.get("endpoint_override")
        if endpoint is not None and "://" not in endpoint:
            endpoint = f"{options.get('scheme', 'https')}://{endpoint}"
        return boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name=options.get("region") or self._arrow.region,
            aws_access_key_id=unquote(parts.username) if parts.username else None,
            aws_secret_access_key=unquote(parts.password) if parts.password else None,
        )

    @property
    def _bucket(self) -> str:
        return self.place.removeprefix("s3://").partition("/")[0]

    def _key(self, path: str) -> str:
        root = self.place.removeprefix("s3://").partition("/")[2]
        return f"{root}/{path}".strip("/")

    def _at(self, path: str) -> str:
        return f"{self.place}/{path}".rstrip("/")

    @contextmanager
    def _asking(self, path: str) -> Iterator[None]:
        """Ask boto3 in this block.

        Raises:
            CheckpointError: it cannot do it.
        """
        assert self._client is not None  # or else there is no botocore either
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise CheckpointError(f"{_first_line(str(error))}, at {self._at(path)}") from None


def _status(error: Any) -> int:
    """The HTTP status of a request that failed."""
    status: int = error.response["ResponseMetadata"]["HTTPStatusCode"]
    return status


def _first_line(said: str) -> str:
    return str(without_secrets(said)).splitlines()[0]
