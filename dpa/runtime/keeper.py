"""The process that `dpa up` starts: it keeps a Ray, and Spark's JVM once a job has used Spark, until nobody has used it
for a while, or it receives SIGTERM. `standing.py` says how others find it.

What it leaves is nothing: Ray ends with it, and the logs and sockets of Ray go. If it is killed, Ray's processes end,
too, and the next one that looks for it removes its directory."""

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryFile

from dpa._util.lending import Lender
from dpa._util.owned import OwnedDirectory, held, users_directory
from dpa._util.signals import ENDING
from dpa.errors import ConfigError, JobFailedError
from dpa.runtime.cluster import ray_session, require_alive
from dpa.runtime.standing import PREFIX, SWITCH, TOKEN, Standing, made_with

_LOOK_SECONDS = 0.5  # how often to check whether Ray lives, and is used
_START_SECONDS = 120.0  # how long a keeper may take to start

_NOTICE_SECONDS = 5.0
"""How long those who use Ray may take to notice that it ends. Without it, Ray would end them after a minute."""

_WAIT_SECONDS = 0.05

_MOST_SAID = 1_000  # how many characters of what a keeper has printed a user reads if it fails

_PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from dpa.runtime.keeper import main; main()"
"""Nothing is imported from the working directory of `dpa up`."""


def start(lasts_seconds: float, object_store_mb: int) -> Standing:
    """Start a keeper, and wait for its Ray. ConfigError if another one is starting, JobFailedError if Ray fails."""
    words = [str(Path(__file__).parents[2]), str(lasts_seconds), str(object_store_mb)]
    try:
        with held(users_directory() / "session.lock"), TemporaryFile() as output:
            keeper = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",
                start_new_session=True,
            )
            standing, until = None, time.monotonic() + _START_SECONDS
            try:
                while (standing := Standing.find()) is None and keeper.poll() is None and time.monotonic() < until:
                    time.sleep(_WAIT_SECONDS)
            finally:
                if standing is None:
                    keeper.terminate()
            if standing is None:
                output.seek(0)
                said = output.read().decode(errors="replace").strip()
                raise JobFailedError(f"the session did not start: {said[-_MOST_SAID:] or 'Ray takes too long'}")
            return standing
    except BlockingIOError:
        raise ConfigError("another `dpa up` is starting a session") from None


def main() -> None:
    lasts_seconds, object_store_mb = sys.argv[1:]
    os.environ |= {SWITCH: "none", "RAY_AUTH_MODE": "token", TOKEN: secrets.token_hex(32)}
    directory = OwnedDirectory.make(users_directory(), PREFIX, mode=0o700)
    try:
        with ray_session(None, object_store_mb=int(object_store_mb)):
            import ray

            standing = Standing(
                directory=directory.name,
                address=ray.get_runtime_context().gcs_address,
                token=os.environ[TOKEN],
                pid=os.getpid(),
                lasts_seconds=float(lasts_seconds),
                object_store_mb=int(object_store_mb),
                made_with=made_with(),
                variables=[*os.environ],
            )
            _keep(standing)
    finally:
        directory.remove_directory()


def _keep(standing: Standing) -> None:
    """Offer Ray until a signal comes, or no process has used it for that time. JobFailedError if Ray has died."""
    is_over, lender = threading.Event(), Lender(Path(standing.directory))
    for number in ENDING:
        signal.signal(number, lambda *_: is_over.set())
    with lender.lending():
        standing.offer()
        if not standing.lives:
            raise ConfigError(f"a session needs a file system with locks, unlike {standing.directory}; set TMPDIR")
        while not is_over.wait(_LOOK_SECONDS):
            require_alive()
            lender.end_unused(standing.lasts_seconds)
            if standing.unused_seconds() >= standing.lasts_seconds and standing.withdraw():
                return
    standing.withdraw(is_used_too=True)
    until = time.monotonic() + _NOTICE_SECONDS
    while standing.users() and time.monotonic() < until:
        time.sleep(_WAIT_SECONDS)
