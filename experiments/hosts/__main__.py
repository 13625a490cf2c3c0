"""`python -m experiments.hosts -- COMMAND...`: several hosts on this machine with a Ray on them (docs/cluster.md), for
as long as a command runs, or until Ctrl-C.

Exit status: the command's; 1 if the hosts cannot be made, 130 if interrupted.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from contextlib import suppress
from typing import Annotated

import typer

from dpa._util.streams import say
from dpa.driver.interrupts import Interrupts
from experiments.hosts import HostsError, InterfaceBytes, NamespaceCluster

_GRACE_SECONDS = 10.0
"""How long a command may take to end after an interrupt, and once more after SIGTERM, before it is killed."""

app = typer.Typer(add_completion=False)


@app.command()
def main(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND...", help="Runs on the head, with RAY_ADDRESS set. None: wait for Ctrl-C."),
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, max=64, help="Hosts; the first one, host1, is the head.")] = 3,
    processors: Annotated[int, typer.Option(min=1, help="Of each host, as Ray is told.")] = 2,
    mbit: Annotated[float | None, typer.Option(min=0.1, help="Rate of each host's interface; none: no limit.")] = None,
) -> None:
    """Start hosts with a Ray on this machine, run a command on the first one, and remove them."""
    cluster = NamespaceCluster({f"host{number}": processors for number in range(1, nodes + 1)}, mbit=mbit)
    try:
        with Interrupts(), cluster:
            status = run_command(cluster, command) if command else _wait(cluster)
            _show(cluster.traffic())
    except HostsError as error:
        say(f"error: {error}")
        raise typer.Exit(error.exit_status) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    raise typer.Exit(status)


def run_command(cluster: NamespaceCluster, command: list[str]) -> int:
    """Run a command on the head; returns its exit status. After an interrupt, which a terminal sends to the command
    too, it has time to end."""
    say(f"a Ray on {cluster.address}; running {shlex.join(command)}")
    with subprocess.Popen(cluster.command(*command), env=os.environ | {"RAY_ADDRESS": cluster.address}) as process:
        try:
            status = process.wait()
        except KeyboardInterrupt:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS)
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS)
            process.kill()
            raise
    return status if status >= 0 else 128 - status


def _wait(cluster: NamespaceCluster) -> int:
    """Say how to use the cluster, and wait for an interrupt, which ends it as it should."""
    with suppress(KeyboardInterrupt):
        say(f"a Ray on {cluster.address}; run on it, as root:")
        example = ["python", "-m", "dpa.run", "JOB.yaml", "--address", cluster.address]
        say(f"  {shlex.join(cluster.command('env', *_token(cluster), *example))}")
        say("Ctrl-C ends it")
        while True:
            signal.pause()
    return 0


def _token(cluster: NamespaceCluster) -> list[str]:
    """What the environment of another shell needs besides its own, to be let in."""
    mode = f"RAY_AUTH_MODE={os.environ['RAY_AUTH_MODE']}"
    if "RAY_AUTH_TOKEN" not in os.environ:
        return [mode]
    file = cluster.directory / "token"
    file.write_text(os.environ["RAY_AUTH_TOKEN"], encoding="ascii")
    return [mode, f"RAY_AUTH_TOKEN_PATH={file}"]


def _show(traffic: dict[str, InterfaceBytes]) -> None:
    """Print what the hosts' interfaces have carried."""
    for host, carried in traffic.items():
        say(f"{host}: sent {carried.sent / 1e6:,.1f} MB, received {carried.received / 1e6:,.1f} MB")


if __name__ == "__main__":
    app()
