"""`dpa up`, `dpa down` and `dpa status`: a Ray that stays between commands (docs/sessions.md)."""

import time
from typing import Annotated

import typer

from dpa._util.streams import exiting, printing
from dpa.errors import ConfigError, JobFailedError
from dpa.runtime.standing import Standing

_INTERRUPTED = "interrupted: no session was started"

_MINUTE = 60.0


def up(
    idle: Annotated[
        float, typer.Option(metavar="MINUTES", min=0.0, help="End the session after so long without a job.")
    ] = 30.0,
    object_store_mb: Annotated[
        int, typer.Option("--object-store-mb", min=80, help="The size of Ray's object store.")
    ] = 1024,
) -> None:
    """Start a session: a Ray that stays, and that your jobs on this machine use until `dpa down`."""
    with exiting(_INTERRUPTED):
        if (there := _found()) is not None:
            if (why := there.unfit(object_store_mb)) is not None:
                raise ConfigError(f"there is a session already, and a job here cannot use it: {why}")
            _say(f"there is a session already: {_described(there)}")
            return
        from dpa.runtime.keeper import start

        began = time.monotonic()
        standing = start(idle * _MINUTE, object_store_mb)
        _say(f"the session is ready after {time.monotonic() - began:.1f} s: {_described(standing)}")


def down(
    force: Annotated[bool, typer.Option("--force", help="End the session even if jobs use it; they fail.")] = False,
) -> None:
    """End the session that `dpa up` started, and all of its processes."""
    with exiting():
        if (standing := _found()) is None:
            _say("there is no session")
            return
        if (users := standing.users()) and not force:
            who = "1 process uses it" if users == 1 else f"{users} processes use it"
            raise JobFailedError(f"the session stays: {who}; to end it all the same: dpa down --force")
        from dpa.runtime.keeper import end

        end(standing)
        _say("the session has ended")


def status() -> None:
    """Show the session that `dpa up` started. The status is 1 if there is none."""
    with exiting():
        if (standing := _found()) is None:
            _say("there is no session; to start one: dpa up")
            raise typer.Exit(1)
        _say(f"a session runs: {_described(standing)}")
        if (why := standing.unfit()) is not None:
            _say(f"jobs do not use it from here: {why}")


def _found() -> Standing | None:
    try:
        return Standing.find()
    except OSError as error:
        raise ConfigError(str(error)) from None


def _described(standing: Standing) -> str:
    users = standing.users()
    left = (standing.lasts_seconds - standing.unused_seconds()) / _MINUTE
    use = (
        f"in use by {users} {'process' if users == 1 else 'processes'}"
        if users
        else f"ends in {left:.0f} min if unused"
    )
    spark = "" if standing.jvm is None else f", Spark in process {standing.jvm}"
    return f"{use}, process {standing.pid}, Ray at {standing.address}{spark}"


def _say(line: str) -> None:
    with printing("the answer"):
        print(line)
