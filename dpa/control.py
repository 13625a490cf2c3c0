"""`python -m dpa.control`: look at running jobs, change their tasks while records flow, and end them
(docs/changing-tasks.md)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from dpa._util.arguments import Progress
from dpa._util.streams import exiting, printing, say
from dpa.routing import MOST_TASKS

if TYPE_CHECKING:
    from dpa.driver.control import RunningJob
    from dpa.telemetry.tracker import StageStatus

_INTERRUPTED = "not waited for any longer; the job does what it was asked for all the same"
_PAGE = "page-"

app = typer.Typer(add_completion=False, no_args_is_help=False)


def _running(incomplete: str) -> list[str]:
    """The jobs of this machine that a shell completes; those of a cluster would take a connection to it."""
    from dpa.door.client import offers

    return [offer.name for offer in offers() if offer.name.startswith(incomplete)]


Nodes = Annotated[
    list[str] | None,
    typer.Option("--node", metavar="NAME", help="Start new tasks there; given several times: in turn."),
]
Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="The running job, by the name of its job or as `list` names it.", autocompletion=_running
    ),
]
Stage = Annotated[str, typer.Argument(metavar="STAGE", help="The stage, such as `reducer`.")]


@app.callback()
def main(
    context: typer.Context,
    address: Annotated[
        str | None,
        typer.Option(help="A running Ray cluster; without it, jobs on this machine that started their own Ray."),
    ] = None,
) -> None:
    """Look at running jobs, change their tasks while records flow, and end them."""
    context.obj = address


@app.command("list")
def show(context: typer.Context) -> None:
    """Show the running jobs, with the nodes and processes of their tasks."""
    from dpa.driver.control import RunningJob, connected
    from dpa.report import show_table
    from dpa.result.text import Table

    address: str | None = context.obj
    with exiting(_INTERRUPTED), connected(address):
        jobs = [(job.name, job.status()) for job in RunningJob.all(address)]
    if not jobs:
        print("no job runs here" if address is None else f"no job runs on {address}")
        return
    shown = []
    for name, status in jobs:
        rows = [("",) * 6] if status is None else [row for stage in status.stages for row in _rows(stage)]
        phase = "no answer yet" if status is None else f"{status.phase}, {status.at:.0f} s"
        if status is not None and status.generation:
            phase += f", generation {status.generation}"
        for number, row in enumerate(rows):
            shown.append((*((name, phase) if not number else ("", "")), *row))
    show_table(Table("", ("run", "phase", "stage", "tasks", "#queued", "task", "node", "pid"), shown, is_copied=True))


def _rows(stage: StageStatus) -> Iterator[tuple[str, ...]]:
    """A row for each task; only the first names the stage."""
    about: tuple[str, ...] = (stage.name, str(len(stage.tasks)), f"{stage.queued:,}")
    for task, process in zip(stage.tasks, stage.processes, strict=True):
        yield *about, str(task), process.node, "" if process.pid is None else str(process.pid)
        about = ("", "", "")


@app.command()
def scale(
    context: typer.Context,
    run: Run,
    stage: Stage,
    tasks: Annotated[int, typer.Argument(min=1, max=MOST_TASKS)],
    nodes: Nodes = None,
) -> None:
    """Have a stage have TASKS tasks: new ones are started, or the newest end when others have what they had."""
    _through(context, run, lambda job: job.scale(stage, tasks, nodes or (), warn=lambda text: say(f"warning: {text}")))


@app.command()
def move(
    context: typer.Context,
    run: Run,
    stage: Stage,
    tasks: Annotated[list[int], typer.Argument(metavar="TASK...", help="Their numbers.")],
    nodes: Nodes = None,
) -> None:
    """Have new tasks take the places of some tasks of a stage, perhaps on other nodes."""
    _through(context, run, lambda job: job.move(stage, tasks, nodes or ()))


@app.command()
def cancel(
    context: typer.Context,
    run: Run,
    stage: Annotated[str | None, typer.Argument(metavar="[STAGE]", help="The stage; without it, the job.")] = None,
) -> None:
    """Cancel the changes of a stage that wait, or whose new tasks are not up yet; without STAGE, the whole job: it ends
    with status 130, and publishes nothing more."""
    _through(context, run, lambda job: job.cancel(stage))


@app.command()
def stop(context: typer.Context, run: Run) -> None:
    """End the whole job after a last checkpoint, with which `dpa run --resume` continues; at once if it makes none. It
    ends with status 130, and publishes nothing more."""
    _through(context, run, lambda job: job.stop())


@app.command()
def finish(context: typer.Context, run: Run) -> None:
    """Close the open inputs of a job: it processes what has come, publishes its results, and ends."""
    _through(context, run, lambda job: job.finish())


@app.command()
def attach(context: typer.Context, run: Run, progress: Progress = "auto") -> None:
    """Show the screen of a job until it ends, and then what a detached one has printed. Ctrl-C leaves it running."""
    from dpa.driver.control import RunningJob, connected
    from dpa.report import make_progress

    with exiting(_INTERRUPTED), connected(context.obj):
        job = RunningJob.find(run, context.obj)
        with exiting(f"{job.name} keeps running"), make_progress(progress, sys.stderr, job.name) as display:
            end = job.follow(display)
            display.ended("failed" if end is not None and end[0] == 1 else "ok")
        if end is None:
            say(f"{job.name} has ended; its result is shown where it was started")
            return
        with printing("the report"):
            print(end[1], end="")
        raise typer.Exit(end[0])


@app.command()
def ui(context: typer.Context, run: Run) -> None:
    """Print the address of a job's page, and open it in a browser if there is one. It has a token: whoever has the
    address can change the job."""
    import os

    from dpa.driver.control import RunningJob, connected

    with exiting(_INTERRUPTED), connected(context.obj):
        page, tunnel = RunningJob.find(run, context.obj).page()
    with printing("the address"):
        print(page)
    if tunnel is not None:
        say(tunnel)
    elif os.environ.keys() & {"DISPLAY", "WAYLAND_DISPLAY"}:
        _browse(page)


def _browse(page: str) -> None:
    """Open a page in a browser, by a file that only this user can read: every user can see command lines."""
    import webbrowser
    from html import escape

    from dpa._util.owned import OwnedDirectory, sweep
    from dpa.door.client import runs_directory

    with suppress(OSError):
        sweep(runs_directory(), _PAGE)  # what earlier commands left for their browsers
        file = OwnedDirectory.make(runs_directory(), _PAGE, mode=0o700).path / "page.html"
        file.touch(0o600)
        file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(page)}">')
        webbrowser.open(file.as_uri())


def _through(context: typer.Context, run: str, ask: Callable[[RunningJob], str]) -> None:
    from rich.console import Console

    from dpa.driver.control import RunningJob, connected

    with exiting(_INTERRUPTED), connected(context.obj):
        job = RunningJob.find(run, context.obj)
        with Console(stderr=True).status(f"waiting for {job.name}"):
            done = ask(job)
        print(done)


if __name__ == "__main__":
    app()
