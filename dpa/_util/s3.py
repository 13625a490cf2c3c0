"""Objects in storage that speaks S3's protocol.

Data goes by Arrow, which sends parts side by side and without Python's lock. It has no conditional put, and a delete of
its own leaves empty objects behind: these and lists go by boto3, which drivers and coordinators need, and tasks do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa

from dpa._secrets import without_secrets
from dpa._util.disk import why
from dpa.errors import DpaError

Self = TypeVar("Self", bound="Objects")

_BATCH = 1000
"""Objects that one request may delete."""


@dataclass(frozen=True)
class Objects:
    """Objects below a prefix of a bucket, by their paths relative to it. Can be pickled.

    Whatever fails is an error that names the place.

    Attributes:
        place: the prefix, for messages: without user, password or options.
        uri: as Arrow reads it: `s3://[key:secret@]bucket/prefix[?region=...&endpoint_override=...&scheme=...]`.
        what: is kept there, for messages.
        error: the class of all errors.
    """

    place: str
    uri: str = field(repr=False)

    what: ClassVar[str]
    error: ClassVar[type[DpaError]]

    @classmethod
    def at_uri(cls: type[Self], uri: str) -> Self:
        """Those at a URI, which nobody is asked for.

        Raises:
            DpaError: it has no bucket.
        """
        parts = urlsplit(uri)
        bucket = parts.netloc.rpartition("@")[2]
        if not bucket or ":" in bucket or "@" in parts.path:
            right = "s3://BUCKET/PREFIX, or s3://KEY:SECRET@BUCKET/PREFIX with each / in KEY or SECRET written as %2F"
            raise cls.error(f"a URI of {cls.what} has no bucket where one is expected; write {right}")
        return cls(f"s3://{bucket}{parts.path.rstrip('/')}", uri)

    def __getstate__(self) -> dict[str, Any]:
        return {"place": self.place, "uri": self.uri}

    def require_bucket(self) -> None:
        """Check that there is such a bucket, and a way to it.

        Raises:
            DpaError: there is not.
        """
        with self._asking(""):
            self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._key(""), MaxKeys=1)

    @contextmanager
    def writing(self, path: str) -> Iterator[Any]:
        """A stream into an object, which is there as a whole when the block has ended well."""
        with self._reaching(path), self.arrow.open_output_stream(f"{self._bucket}/{self._key(path)}") as stream:
            yield stream

    @contextmanager
    def reading(self, path: str) -> Iterator[Any]:
        """A file with the content of an object; None if it is not there."""
        with self._reaching(path):
            try:
                stream = self.arrow.open_input_file(f"{self._bucket}/{self._key(path)}")
            except FileNotFoundError:
                yield None
            else:
                with stream:
                    yield stream

    def put(self, path: str, data: bytes, etag: str | None = None) -> str | None:
        """Write an object if it is the one that has this tag, or if there is none (`If-Match`, `If-None-Match: *`);
        returns its new tag, or None if it was not so."""
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        with self._asking(path):
            while True:
                try:
                    done = self._client.put_object(Bucket=self._bucket, Key=self._key(path), Body=data, **condition)
                except self._client.exceptions.ClientError as error:
                    if _status(error) == 412 or (etag and error.response["Error"].get("Code") == "NoSuchKey"):
                        return None
                    if _status(error) != 409:  # another one came or went while this was under way
                        raise
                else:
                    tag: str = done["ETag"]
                    return tag

    def get(self, path: str) -> tuple[bytes, str] | None:
        """An object and its tag; None if it is not there."""
        with self._asking(path):
            try:
                found = self._client.get_object(Bucket=self._bucket, Key=self._key(path))
            except self._client.exceptions.NoSuchKey:
                return None
            return found["Body"].read(), found["ETag"]

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
        """The names in a directory, in the order of their text; those of further directories too."""
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
        """Delete objects, as far as they are there, a thousand in a request."""
        keys = iter([{"Key": self._key(path)} for path in paths])
        while batch := list(islice(keys, _BATCH)):
            with self._asking(""):
                done = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": batch, "Quiet": True})
            for failed in done.get("Errors", ()):
                raise self.error(f"{failed.get('Message')}, deleting s3://{self._bucket}/{failed.get('Key')}")

    @cached_property
    def arrow(self) -> Any:
        """Arrow's file system of the storage."""
        from pyarrow.fs import S3FileSystem

        try:
            return S3FileSystem.from_uri(self.uri)[0]
        except (OSError, pa.ArrowInvalid) as error:
            said = str(error).replace(self.uri, self.place)
            raise self.error(f"{_first_line(said)}, at {self.place}") from None

    @cached_property
    def _client(self) -> Any:
        try:
            import boto3
        except ImportError:
            raise self.error(
                f"{self.what} at {self.place} need boto3, as Arrow cannot put an object if there is none yet: "
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
            region_name=options.get("region") or self.arrow.region,
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
    def _reaching(self, path: str) -> Iterator[None]:
        """Use Arrow in this block.

        Raises:
            DpaError: it cannot do it.
        """
        try:
            yield
        except OSError as error:
            raise self.error(f"{without_secrets(why(error))}, at {self._at(path)}") from None

    @contextmanager
    def _asking(self, path: str) -> Iterator[None]:
        """Ask boto3 in this block.

        Raises:
            DpaError: it cannot do it.
        """
        assert self._client is not None  # or else there is no botocore either
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise self.error(f"{_first_line(str(error))}, at {self._at(path)}") from None


def _status(error: Any) -> int:
    """The HTTP status of a request that failed."""
    status: int = error.response["ResponseMetadata"]["HTTPStatusCode"]
    return status


def _first_line(said: str) -> str:
    return str(without_secrets(said)).splitlines()[0]
