"""`python -m dpa.control`: look at running jobs, and change their tasks while records flow (docs/changing-tasks.md).

Exit status: 0 done, 1 the job refused or has ended, 2 a wrong argument, 130 interrupted: the job goes on, and does what
it was asked for all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from dpa._util.streams import say
from dpa.driver.control import RunningJob
from dpa.errors import ControlError

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
    """Look at running jobs, and change their tasks while records flow."""


@app.command("list")
def show() -> None:
    """Show the running jobs of this user on this machine, with the tasks of their stages."""
    jobs = RunningJob.all()
    if not jobs:
        print("no job runs here")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("run", "phase", "stage", "tasks", "numbers"):
        table.add_column(column, overflow="fold")
    table.add_column("queued", justify="right")
    for job in jobs:
        status = job.status()
        if status is None:
            table.add_row(job.name, "startup", "", "", "", "")
            continue
        for row, stage in enumerate(status.stages):
            first = (job.name, f"{status.phase}, {status.at:.0f} s") if not row else ("", "")
            table.add_row(*first, stage.name, str(len(stage.tasks)), _numbers(stage.tasks), f"{stage.queued:,}")
    Console().print(table)


@app.command()
def scale(run: Run, stage: Stage, tasks: Annotated[int, typer.Argument(min=1)], nodes: Nodes = None) -> None:
    """Have a stage have TASKS tasks: new ones are started, or the newest end when others have what they had."""
    _through(run, lambda job: job.scale(stage, tasks, nodes or ()))


@app.command()
def move(
    run: Run,
    stage: Stage,
    tasks: Annotated[list[int], typer.Argument(metavar="TASK...", help="Their numbers.")],
    nodes: Nodes = None,
) -> None:
    """Have new tasks take the places of some tasks of a stage, perhaps on other nodes."""
    _through(run, lambda job: job.move(stage, tasks, nodes or ()))


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


def _numbers(tasks: tuple[int, ...]) -> str:
    """Task numbers, those in a row as a range."""
    ranges: list[list[int]] = []
    for task in tasks:
        if ranges and task == ranges[-1][1] + 1:
            ranges[-1][1] = task
        else:
            ranges.append([task, task])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


if __name__ == "__main__":
    app()
