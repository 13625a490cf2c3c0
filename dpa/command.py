"""`dpa`, or `python -m dpa`: one command for all that is done from a shell (docs/command.md).

A command's module is imported when the command runs, shows its help or is completed, and no other one's.
"""

import platform
from importlib import import_module, metadata
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command

from dpa._util.streams import exiting, printing
from dpa._util.version import VERSION

_LIBRARIES = ("ray", "pyspark", "polars", "pyarrow")


class Command(NamedTuple):
    """A line of the help.

    Attributes:
        home: the module and name of a typer app, or of a function with typer's annotations.
        example: its arguments.
    """

    home: str
    summary: str
    example: str


COMMANDS = {
    "init": Command("dpa._init:init", "Write a small job that runs and checks itself.", "first"),
    "check": Command("dpa.run:check", "Check a job file, its executors and columns; run nothing.", "job.yaml"),
    "plan": Command("dpa.run:plan", "Show a job's graph and what a sample forecasts; run nothing.", "job.yaml"),
    "show": Command("dpa._show:show", "Show the first rows of a data file or of a step of a job.", "job.yaml STEP"),
    "run": Command("dpa.run:app", "Run a job and show its result.", "job.yaml --report out/report"),
    "control": Command("dpa.control:app", "List running jobs, change their tasks, stop them.", "list"),
    "checkpoints": Command("dpa._checkpoints:app", "List, check and delete checkpoints.", "out/checkpoints list"),
    "dead-letters": Command("dpa.dead_letters.__main__:app", "Show and replay dead letters.", "out/letters list"),
    "runs": Command("dpa.runs:app", "List earlier runs, show and compare them.", "compare clicks"),
    "verify": Command("dpa.verify:app", "Compare published epochs with Spark.", "out/log --epochs 100:200"),
    "replay": Command("dpa.replay:app", "Repeat the last events of a failed job.", "out/report/events/*.events"),
    "up": Command("dpa._up:up", "Start a session, which jobs use until it ends.", "--idle 60"),
    "status": Command("dpa._up:status", "Show the session.", ""),
    "down": Command("dpa._up:down", "End the session.", ""),
    "schema": Command("dpa.run:schema", "Print the JSON schema of job files.", "> job-schema.json"),
    "version": Command("dpa.command:version", "Print the versions of dpa, Python and main libraries.", ""),
}


class _Commands(TyperGroup):
    """Lists the commands by the table, and imports the one that is used."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, found, rest = super().resolve_command(ctx, args)
        return name, found and imported(args[0]), rest

    def invoke(self, ctx: Any) -> Any:
        with exiting("interrupted"):
            return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """A line for each command, so that all fit on a screen of 24 lines."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        self.format_commands(ctx, formatter)
        formatter.write("\n")
        formatter.write_text(_MORE)


def imported(name: str) -> Any:
    """The command of a line of the table, as click has it."""
    module, _, attribute = COMMANDS[name].home.partition(":")
    made = getattr(import_module(module), attribute)
    if not isinstance(made, typer.Typer):
        made, function = typer.Typer(add_completion=False), made
        made.command()(function)
    return get_command(made)


_MORE = "`dpa COMMAND --help` shows options; `--install-completion` completes on Tab."

app = typer.Typer(cls=_Commands, no_args_is_help=True, rich_markup_mode=None)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"dpa {VERSION}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Map/reduce streams on Ray that stay balanced, checked against Spark."""


for _name, _command in COMMANDS.items():
    app.command(_name, help=_command.summary)(lambda: None)


def version() -> None:
    """Print the versions of dpa, of Python, and of the libraries that a job depends on most."""
    with printing("the versions"):
        print(f"dpa {VERSION}\nPython {platform.python_version()}")
        for library in _LIBRARIES:
            print(library, metadata.version(library))
