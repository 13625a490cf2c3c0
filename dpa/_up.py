"""`dpa up`, `dpa down` and `dpa status`: a Ray, or processes of a cluster, that stay between commands
(docs/sessions.md)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from dpa._util.streams import exiting, printing
from dpa.errors import ConfigError, JobFailedError
from dpa.runtime.standing import Standing

_MINUTE = 60.0

if TYPE_CHECKING:
    from dpa.runtime.pool import Pool

_Address = Annotated[str | None, typer.Option(metavar="HEAD:PORT", help="Keep processes on this cluster instead.")]


def up(
    idle: Annotated[
        float, typer.Option(metavar="MINUTES", min=0.0, help="End the session after so long without a job.")
    ] = 30.0,
    object_store_mb: Annotated[
        int, typer.Option("--object-store-mb", min=80, help="The size of Ray's object store.")
    ] = 1024,
    address: _Address = None,
    size: Annotated[int, typer.Option(min=1, help="With --address: how many processes wait for tasks.")] = 8,
) -> None:
    """Start a session: a Ray that stays, and that your jobs on this machine use until `dpa down`."""
    with exiting("interrupted: no session was started"), _found(address) as there:
        if there is not None:
            if (why := there.unfit(object_store_mb)) is not None:
                raise ConfigError(f"there is a session already, and a job here cannot use it: {why}")
            _say(f"there is a session already: {_described(there)}")
            return
        began = time.monotonic()
        if address is None:
            from dpa.runtime.keeper import start

            made: Standing | Pool = start(idle * _MINUTE, object_store_mb)
        else:
            from dpa.runtime.pool import Pool

            made = Pool.start(size, idle * _MINUTE)
        later = "; the first job that needs Spark starts it, which takes some seconds" if address is None else ""
        _say(f"the session is ready after {time.monotonic() - began:.1f} s: {_described(made)}{later}")


def down(
    force: Annotated[bool, typer.Option("--force", help="End the session even if jobs use it; they fail.")] = False,
    address: _Address = None,
) -> None:
    """End the session that `dpa up` started, and all of its processes."""
    with exiting(), _found(address) as there:
        if there is None:
            _say("there is no session")
            return
        if (users := there.users()) and not force:
            who = "1 process uses it" if users == 1 else f"{users} processes use it"
            raise JobFailedError(f"the session stays: {who}; to end it all the same: dpa down --force")
        there.end()
        _say("the session has ended")


def status(address: _Address = None) -> None:
    """Show the session that `dpa up` started. The status is 1 if there is none."""
    with exiting(), _found(address) as there:
        if there is None:
            _say("there is no session; to start one: dpa up")
            raise typer.Exit(1)
        _say(f"a session runs: {_described(there)}")
        if (why := there.unfit()) is not None:
            _say(f"jobs do not use it from here: {why}")


@contextmanager
def _found(address: str | None) -> Iterator[Standing | Pool | None]:
    """The session of this machine, or of the cluster there, to which this process is connected meanwhile."""
    if address is not None:
        from dpa.runtime.cluster import ray_session

        with ray_session(address):
            from dpa.runtime.pool import Pool

            yield Pool.find()
        return
    try:
        standing = Standing.find()
    except OSError as error:
        raise ConfigError(str(error)) from None
    yield standing


def _described(there: Standing | Pool) -> str:
    users = there.users()
    use = (
        f"in use by {users} {'process' if users == 1 else 'processes'}"
        if users
        else f"ends in {there.left_seconds() / _MINUTE:.0f} min if unused"
    )
    return f"{use}, {there}"


def _say(line: str) -> None:
    with printing("the answer"):
        print(line)
