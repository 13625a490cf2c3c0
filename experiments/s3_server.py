"""A server of S3's protocol in a process of its own, over HTTP."""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

KEY, SECRET = "somebody", "hidden/word+"


@contextmanager
def s3_server(*buckets: str) -> Iterator[int]:
    """The port of one that has these buckets, for as long as the block."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        said = next(line for line in server.stderr if "Running on" in line)
        reading = Thread(target=deque, args=(server.stderr, 0), daemon=True)  # it logs each request
        reading.start()
        found = int(said.strip().rpartition(":")[2])
        try:
            for bucket in buckets:
                client(found).create_bucket(Bucket=bucket)
            yield found
        finally:
            server.terminate()
            reading.join()  # the end of the block closes what it reads


def client(port: int) -> Any:
    """To look at what is there."""
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
    )


def uri_of(port: int, place: str) -> str:
    """The URI of a bucket and what is in it."""
    user = f"{KEY}:{SECRET.replace('/', '%2F')}"
    return f"s3://{user}@{place}?scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1"


def keys(port: int, bucket: str, prefix: str = "") -> list[str]:
    """The objects of a bucket whose keys begin so."""
    return [item["Key"] for item in client(port).list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", ())]
