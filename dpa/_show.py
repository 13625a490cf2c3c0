"""`dpa show`: the first rows of a data file, or of a step of a job file, in this process."""

from __future__ import annotations

import difflib
from functools import cached_property
from pathlib import Path
from typing import Annotated

import typer

from dpa._looks import Looks
from dpa._util.arguments import Overrides, job_files
from dpa._util.streams import printing
from dpa.config import JobFile, load
from dpa.driver.looking import Looking
from dpa.driver.spec import JobSpec
from dpa.errors import ConfigError
from dpa.flow import Flow
from dpa.protocol.graph import REDUCER


def show(
    target: Annotated[
        str,
        typer.Argument(metavar="JOB|FILE", help="A job file or data.", autocompletion=job_files),
    ],
    step: Annotated[str | None, typer.Argument(metavar="[STEP]", help="Of the job; by default its last one.")] = None,
    rows: Annotated[int, typer.Option(min=0, help="Most rows to show.")] = 10,
    schema: Annotated[bool, typer.Option("--schema", help="Show the columns and their types; read no rows.")] = False,
    describe: Annotated[bool, typer.Option("--describe", help="Show count, mean, quartiles of each column.")] = False,
    overrides: Overrides = None,
) -> None:
    """Show the first rows of a data file, or what a step of a job makes of the first rows of its inputs.

    Neither Ray nor Spark starts, and nothing is written. Your functions are called on these rows."""
    is_job = Path(target).suffix in (".yaml", ".yml")
    if not is_job and (step or overrides):
        raise ConfigError(f"{target}: STEP and --set belong to a job file, which ends in .yaml or .yml")
    found = _Step(load(target, overrides or []), step) if is_job else Flow(Path(target).stem).read(target)
    with printing("the rows"):
        if schema:
            print(found.schema.to_string())
        elif describe:
            print(found.describe())
        else:
            found.show(rows)


class _Step(Looks):
    """A step of a job file."""

    def __init__(self, file: JobFile, step: str | None) -> None:
        self._file = file
        self._sections = file.config.model_copy(update={"stages": file.config.stages or file.stages}).resolved()
        self._steps = self._sections.pop("stages")
        self.step = step or [*self._steps][-1]
        if self.step not in self._steps:
            close = difflib.get_close_matches(self.step, self._steps, n=1) or self._steps
            raise ConfigError(f"{file.origin} has no step {self.step!r}; did you mean {' or '.join(close)}?")

    def _looking(self) -> Looking:
        made = Looking if self._file.config.stages or self.step != REDUCER else _OfMapReduce
        return made(self._sections, self._steps, {}, self.step, self._file)


class _OfMapReduce(Looking):
    """The reducer of a job of one mapper and one reducer: a step of a graph has no such mapper."""

    @cached_property
    def _written(self) -> JobSpec:
        assert self._file is not None
        spec, reducer = super()._written, JobSpec(self._file).steps[-1]
        spec.steps = tuple(reducer if step.name == REDUCER else step for step in spec.steps)
        return spec
