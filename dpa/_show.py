"""`dpa show`: the first rows of a data file, or of a step of a job file, in this process."""

from pathlib import Path
from typing import Annotated

import typer

from dpa._util.arguments import Overrides, job_files
from dpa._util.streams import printing
from dpa.errors import ConfigError


def show(
    target: Annotated[str, typer.Argument(metavar="JOB|FILE", help="A job file or data.", autocompletion=job_files)],
    step: Annotated[str | None, typer.Argument(metavar="[STEP]", help="Of the job; by default its last one.")] = None,
    rows: Annotated[int, typer.Option(min=0, help="Most rows to show.")] = 10,
    schema: Annotated[bool, typer.Option("--schema", help="Show the columns and their types; read no rows.")] = False,
    describe: Annotated[bool, typer.Option("--describe", help="Show count, mean, quartiles of each column.")] = False,
    overrides: Overrides = None,
) -> None:
    """Show the first rows of a data file, or what a step of a job makes of the first rows of its inputs.

    Neither Ray nor Spark starts, and nothing is written. Your functions are called on these rows."""
    from dpa._looks import StepOfFile
    from dpa.config import load
    from dpa.flow import Flow

    is_job = Path(target).suffix in (".yaml", ".yml")
    if not is_job and (step or overrides):
        raise ConfigError(f"{target}: STEP and --set belong to a job file, which ends in .yaml or .yml")
    found = StepOfFile(load(target, overrides or []), step) if is_job else Flow(Path(target).stem).read(target)
    with printing("the rows"):
        if schema:
            print(found.schema.to_string())
        elif describe:
            print(found.describe())
        else:
            found.show(rows)
