"""`python -m dpa.control`: look at running jobs, change their tasks while records flow, and cancel them
(docs/changing-tasks.md).

Exit status: 0 done, 1 the job refused or has ended, 2 a wrong argument, 130 interrupted: the job goes on, and does what
it was asked for all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from dpa._util.streams import say
from dpa.driver.control import RunningJob
from dpa.driver.control import Stage as StageStatus
from dpa.errors import ControlError
from dpa.routing.members import MOST_TASKS

_INTERRUPTED = 130

app = typer.Typer(add_completion=False, no_args_is_help=False)

Nodes = Annotated[
    list[str] | None,
    typer.Option("--node", metavar="NAME", help="Start new tasks there; given several times: in turn."),
]
Run = Annotated[
    str, typer.Argument(metavar="RUN", help="The running job, by the name of its job or as `list` names it.")
]
Stage = Annotated[str, typer.Argument(metavar="STAGE", help="The stage, such as `reducer`.")]


@app.callback()
def main() -> None:
    """Look at running jobs, change their tasks while records flow, and cancel them."""


@app.command("list")
def show() -> None:
    """Show the running jobs of this user on this machine, with the nodes and processes of their tasks."""
    jobs = RunningJob.all()
    if not jobs:
        print("no job runs here")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("run", "phase", "stage", "tasks"):
        table.add_column(column, overflow="fold")
    table.add_column("queued", justify="right")
    for column in ("task", "node", "pid"):
        table.add_column(column, overflow="fold")
    for job in jobs:
        status = job.status()
        rows = [("",) * 6] if status is None else [row for stage in status.stages for row in _rows(stage)]
        phase = "startup" if status is None else f"{status.phase}, {status.at:.0f} s"
        for number, row in enumerate(rows):
            table.add_row(*((job.name, phase) if not number else ("", "")), *row)
    Console().print(table)


def _rows(stage: StageStatus) -> Iterator[tuple[str, ...]]:
    """A row for each task; the first one says what all of them are."""
    about: tuple[str, ...] = (stage.name, str(len(stage.tasks)), f"{stage.queued:,}")
    for task, process in zip(stage.tasks, stage.processes, strict=True):
        yield *about, str(task), process.node, "" if process.pid is None else str(process.pid)
        about = ("", "", "")


@app.command()
def scale(
    run: Run, stage: Stage, tasks: Annotated[int, typer.Argument(min=1, max=MOST_TASKS)], nodes: Nodes = None
) -> None:
    """Have a stage have TASKS tasks: new ones are started, or the newest end when others have what they had."""
    _through(run, lambda job: job.scale(stage, tasks, nodes or (), warn=lambda text: say(f"warning: {text}")))


@app.command()
def move(
    run: Run,
    stage: Stage,
    tasks: Annotated[list[int], typer.Argument(metavar="TASK...", help="Their numbers.")],
    nodes: Nodes = None,
) -> None:
    """Have new tasks take the places of some tasks of a stage, perhaps on other nodes."""
    _through(run, lambda job: job.move(stage, tasks, nodes or ()))


@app.command()
def cancel(
    run: Run,
    stage: Annotated[str | None, typer.Argument(metavar="[STAGE]", help="The stage; without it, the job.")] = None,
) -> None:
    """Cancel the changes of a stage that wait, or whose new tasks are not up yet; without STAGE, the whole job: it ends
    with status 130, and publishes nothing."""
    _through(run, lambda job: job.cancel(stage))


def _through(run: str, ask: Callable[[RunningJob], str]) -> None:
    """Ask a job, and say what has been done."""
    try:
        job = RunningJob.find(run)
        with Console(stderr=True).status(f"waiting for {job.name}"):
            done = ask(job)
        print(done)
    except ControlError as error:
        say(f"error: {error}")
        raise typer.Exit(error.exit_status) from None
    except KeyboardInterrupt:
        say("not waited for any longer; the job does what it was asked for all the same")
        raise typer.Exit(_INTERRUPTED) from None


if __name__ == "__main__":
    app()
