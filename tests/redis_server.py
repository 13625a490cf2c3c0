"""A server of Redis in a process of its own, as Debian's package `redis-server` installs it, and the package of
`tests/packages` that reads its streams, installed as pip installs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent / "packages" / "dpa_redis_streams"


def program(name: str, package: str | None = None) -> str:
    """The path of a program that no package of Python brings. Where it is missing, the test is skipped; with
    `DPA_NEEDS_PROGRAMS` in the environment, as `.ci/run` sets it, the test fails. `package`: Debian's, if its name is
    another one."""
    found = shutil.which(name)
    if found is None:
        missing = f"there is no {name} on PATH; Debian has it in the package {package or name}"
        (pytest.fail if os.environ.get("DPA_NEEDS_PROGRAMS") else pytest.skip)(missing)
    return found


@contextmanager
def redis_server() -> Iterator[str]:
    """The URL of one that keeps nothing, for as long as the block."""
    from redis import Redis
    from redis.backoff import ConstantBackoff
    from redis.retry import Retry

    with tempfile.TemporaryDirectory() as directory:
        socket = Path(directory, "socket")  # no port that somebody else may take meanwhile
        command = [program("redis-server"), "--port", "0", "--unixsocket", str(socket), "--dir", directory]
        command += ["--save", "", "--appendonly", "no", "--loglevel", "warning"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
            try:
                url = f"unix://{socket}"
                Redis.from_url(url, retry=Retry(ConstantBackoff(0.05), 200)).ping()
                yield url
            finally:
                server.terminate()


def installed(directory: Path) -> Path:
    """The directory, below this one, in which the package of a third party has been installed by pip."""
    source, site = directory / "source", directory / "site"
    shutil.copytree(PACKAGE, source)  # pip builds where the source is
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--target", str(site)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    return site
