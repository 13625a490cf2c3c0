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
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa

from dpa._secrets import without_secrets
from dpa.storage._files import Files, Purpose

_BATCH = 1000  # objects that one request may delete


@dataclass(frozen=True)
class S3Files(Files):
    """Objects below a prefix of a bucket. Who can read and write them is the bucket's policy.

    Attributes:
        uri: as Arrow reads it: `s3://[key:secret@]bucket/prefix[?region=...&endpoint_override=...&scheme=...]`.
    """

    place: str
    purpose: Purpose
    uri: str = field(repr=False)

    @classmethod
    def at_uri(cls, uri: str, purpose: Purpose) -> S3Files:
        parts = urlsplit(uri)
        bucket = parts.netloc.rpartition("@")[2]
        if not bucket or ":" in bucket or "@" in parts.path:
            right = "s3://BUCKET/PREFIX, or s3://KEY:SECRET@BUCKET/PREFIX with each / in KEY or SECRET written as %2F"
            raise purpose.error(f"a URI of {purpose.what} has no bucket where one is expected; write {right}")
        return cls(f"s3://{bucket}{parts.path.rstrip('/')}", purpose, uri)

    def __getstate__(self) -> dict[str, Any]:
        """Without connections."""
        return {"place": self.place, "purpose": self.purpose, "uri": self.uri}

    def check(self) -> None:
        with self._asking(""):
            self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._key(""), MaxKeys=1)

    @contextmanager
    def writing(self, path: str) -> Iterator[Any]:
        place = f"{self._bucket}/{self._key(path)}"  # whose ending must not have Arrow compress it once more
        with self.reaching(path), self.arrow.open_output_stream(place, compression=None) as stream:
            yield stream

    @contextmanager
    def reading(self, path: str) -> Iterator[Any]:
        with self.reaching(path):
            try:
                stream = self.arrow.open_input_file(f"{self._bucket}/{self._key(path)}")
            except FileNotFoundError:
                yield None
            else:
                with stream:
                    yield stream

    def put(self, path: str, data: bytes, tag: str | None = None, draft: str | None = None) -> str | None:
        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        with self._asking(path):
            while True:
                try:
                    done = self._client.put_object(Bucket=self._bucket, Key=self._key(path), Body=data, **condition)
                except self._client.exceptions.ClientError as error:
                    if _status(error) == 412 or (tag and error.response["Error"].get("Code") == "NoSuchKey"):
                        return None
                    if _status(error) != 409:  # another one came or went while this was under way
                        raise
                else:
                    new: str = done["ETag"]
                    return new

    def get(self, path: str) -> tuple[bytes, str] | None:
        with self._asking(path):
            try:
                found = self._client.get_object(Bucket=self._bucket, Key=self._key(path))
            except self._client.exceptions.NoSuchKey:
                return None
            return found["Body"].read(), found["ETag"]

    def names(self, directory: str) -> list[str]:
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
        keys = iter([{"Key": self._key(path)} for path in paths])
        while batch := list(islice(keys, _BATCH)):
            with self._asking(""):
                done = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": batch, "Quiet": True})
            for failed in done.get("Errors", ()):
                raise self.purpose.error(f"{failed.get('Message')}, deleting s3://{self._bucket}/{failed.get('Key')}")

    @cached_property
    def arrow(self) -> Any:
        from pyarrow.fs import S3FileSystem

        try:
            return S3FileSystem.from_uri(self.uri)[0]
        except (OSError, pa.ArrowInvalid) as error:
            said = str(error).replace(self.uri, self.place)
            raise self.purpose.error(f"{_first_line(said)}, at {self.place}") from None

    @cached_property
    def _client(self) -> Any:
        try:
            import boto3
        except ImportError:
            raise self.purpose.refused(
                f"{self.purpose.what} at {self.place} need boto3, as Arrow cannot put an object if there is none yet: "
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

    @contextmanager
    def _asking(self, path: str) -> Iterator[None]:
        """`reaching`, of boto3."""
        assert self._client is not None  # or else there is no botocore either
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise self.purpose.error(f"{_first_line(str(error))}, at {self.at(path)}") from None


def _status(error: Any) -> int:
    status: int = error.response["ResponseMetadata"]["HTTPStatusCode"]
    return status


def _first_line(said: str) -> str:
    return str(without_secrets(said)).splitlines()[0]
