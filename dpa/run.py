"""`python -m dpa.run CONFIG`: parse, run, show. Everything it does is a call into `dpa.job` or `dpa.report`."""

from __future__ import annotations

import json
import logging
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dpa._util.arguments import JobFilePath, Overrides, Progress, ProgressMode, job_files
from dpa._util.streams import OutputError, chosen_level, exiting, log_to_stderr, open_closed, printing, say
from dpa.driver.interrupts import Interrupts
from dpa.errors import ConfigError

if TYPE_CHECKING:
    from dpa.job import Job
    from dpa.result import Report, Result

_INTERRUPTED = "interrupted: no actor, process or staged file is left, and no half-written output"
_EXIT = {"ok": 0, "failed": 1, "mismatch": 3}

_STATUSES = """\b
Exit status:
0    the job ended well
1    the job failed
2    the job file, an option or the input is wrong; nothing was run
3    the result differs from the reference
130  interrupted, or cancelled by `dpa control cancel`"""
"""Below the options in `--help`; the first character keeps the lines apart."""

app = typer.Typer(add_completion=False)

_Address = Annotated[str | None, typer.Option(help="A running Ray cluster; without it Ray is started for this job.")]
_Json = Annotated[
    bool, typer.Option("--json", help="Print the report or plan as JSON, and nothing else, on standard output.")
]
_Log = Annotated[
    Literal["debug", "info", "warning", "error"] | None,
    typer.Option(envvar="DPA_LOG", help="Log phases and decisions, on standard error.", show_default=False),
]
_Picture = Annotated[
    Path | None, typer.Option("--svg", metavar="FILE", help="Draw the graph of --plan there, as an SVG picture.")
]


@app.command(epilog=_STATUSES)
def main(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Argument(help="The job file (docs/job-files.md).", show_default=False, autocompletion=job_files),
    ] = None,
    overrides: Overrides = None,
    address: _Address = None,
    report: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the report there, and a failed job's events.")
    ] = None,
    as_json: _Json = False,
    progress: Progress = "auto",
    resume: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Go on with the checkpoints there of a run whose driver has ended."),
    ] = None,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach", help="On a cluster: let the job outlive this command (`dpa control attach` shows it)."
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show all stages, tasks, decisions and hot keys at the end.")
    ] = False,
    ui: Annotated[bool, typer.Option("--ui", help="Print the address of the job's page before it begins.")] = False,
    log: _Log = None,
    validate: Annotated[
        bool, typer.Option("--validate", help="Check the job file, executors and columns; run nothing.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Show the job's graph, and what a sample forecasts.")] = False,
    svg: _Picture = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of job files.")] = False,
) -> None:
    """Run a job and show how its reducers were kept even."""
    with exiting(_INTERRUPTED):
        if as_json and sys.stdout is None:
            raise ConfigError("--json: standard output is closed, so there is nowhere to print the report")
        open_closed()
        from dpa._util.lazy_pandas import import_pandas_late

        import_pandas_late()
        if log is not None:
            log_to_stderr(log, "driver")
        if schema:
            from dpa.config import json_schema

            with printing("the schema"):
                print(json.dumps(json_schema(), indent=2))
            return
        if svg is not None and not plan:
            raise ConfigError("--svg draws the graph that --plan shows: give --plan with it")
        if config is None:
            raise typer.BadParameter("name a job file, such as configs/wordcount.yaml", param_hint="CONFIG")
        with Interrupts() as interrupts:
            job = _job(config, overrides or [])
            if validate:
                job.validate()
                with printing("the answer"):
                    print(f"{config}: valid")
                return
            if plan:
                _plan(job, as_json, svg, address, verbose)
                return
            if report is not None:
                from dpa.report import check_directory

                report = report.absolute()  # whatever user code makes the working directory
                check_directory(report, job.directories)
            again = [str(config), *(word for given in overrides or [] for word in ("--set", given))]
            if detach:
                shown = ["--json"] * as_json + ["--verbose"] * verbose
                _detach(job, address, resume, [*again, *_more_words(report, resume), *shown])
                return
            with _naming_checkpoints(job, address, again, context.command_path):
                summary = _Summary(verbose)
                run = partial(job.run, address=address, check=False, resume=resume, page=_print_page if ui else None)
                result = _run(run, interrupts, progress, job.config.name, None if as_json else summary)
                status = _show(result, report, as_json, summary)
    raise typer.Exit(status)


def check(context: typer.Context, config: JobFilePath, overrides: Overrides = None, log: _Log = None) -> None:
    """Check a job file, its executors and the columns of its inputs; run nothing.

    Spark starts only if an input or the reference query needs it."""
    main(context, config, overrides, log=log, validate=True)


def plan(
    context: typer.Context,
    config: JobFilePath,
    overrides: Overrides = None,
    address: _Address = None,
    as_json: _Json = False,
    log: _Log = None,
    svg: _Picture = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the whole job too, with all defaults.")] = False,
) -> None:
    """Show a job's graph, and what a sample of its inputs forecasts; run nothing.

    Your functions are called on the sample, in this process."""
    main(context, config, overrides, address, as_json=as_json, verbose=verbose, log=log, plan=True, svg=svg)


def schema(context: typer.Context) -> None:
    """Print the JSON schema of job files, for editors and other tools."""
    main(context, schema=True)


def _job(config: Path, overrides: list[str]) -> Job:
    from dpa.job import Job

    job = Job.from_file(config, overrides)
    for note in job.spec.file.set_aside:
        say(f"note: {note}")
    return job


def _more_words(report: Path | None, resume: str | None) -> list[str]:
    more = [] if report is None else ["--report", str(report)]
    more += [] if resume is None else ["--resume", resume]
    return more + ([] if (level := chosen_level()) is None else ["--log", logging.getLevelName(level).lower()])


@contextmanager
def _naming_checkpoints(job: Job, address: str | None, again: list[str], command: str) -> Iterator[None]:
    """A block after which the user reads how to resume the job by `command`, if that is possible."""
    try:
        yield
    finally:
        if job.resumable is not None:
            again += [] if address is None else ["--address", address]
            say(f"its checkpoints stay; to go on: {command} {shlex.join([*again, '--resume', job.resumable])}")


class _Summary:
    """The end of a job on standard output, of which a part is there while Spark still computes the reference."""

    def __init__(self, verbose: bool = False) -> None:
        self._verbose, self._stdout = verbose, sys.stdout
        self._begun: Report | None = None

    def print(self, result: Result, files: Sequence[Path] = ()) -> None:
        from dpa.report import show

        try:
            with redirect_stdout(self._stdout), printing("the table"):
                show(result.report, files=files, result=result.unsaved, verbose=self._verbose, before=self._begun)
        except OutputError as error:
            say(f"warning: {error}")

    @contextmanager
    def begin(self, ended: Callable[[str], None], result: Result) -> Iterator[None]:
        ended(result.report.status)
        self.print(result)
        self._begun = result.report
        say("Spark still computes the reference, with which the result is compared before it is published")
        try:
            yield
        except KeyboardInterrupt:
            say("the result above was not published: Spark had not yet computed its reference")
            raise


def _run(
    run: Callable[..., Result], interrupts: Interrupts, progress: ProgressMode, name: str, summary: _Summary | None
) -> Result:
    from dpa.report import make_progress
    from dpa.telemetry.observers import Observers

    with (
        make_progress(progress, sys.stderr, name) as display,
        redirect_stdout(sys.stderr),  # what user code prints, and Ray; standard output belongs to the result
    ):
        shown = None if summary is None else partial(summary.begin, display.ended)
        result = run(Observers(interrupts, display), closes=lambda: interrupts.closes, unverified=shown)
        display.ended(result.report.status)
    return result


def _print_page(address: str) -> None:
    # `say` would hide its token.
    with suppress(OSError, ValueError):
        print(f"the job's page: {address}", file=sys.stderr, flush=True)


def _detach(job: Job, address: str | None, resume: str | None, arguments: list[str]) -> None:
    """Have a process that the cluster keeps run the same job. ConfigError if no cluster could, or a result would be
    lost."""
    from dpa.runtime.cluster import ray_session

    address = address or job.config.ray.address
    if address is None or address.startswith("ray://"):
        why = "--detach needs a cluster, which the job runs on when this command has ended"
        raise ConfigError(f"{why}: give --address HOST:PORT, or `ray.address`, on a machine of it")
    for step in job.spec.results:
        if step.outputs[step.main].is_memory:
            raise job.spec.file.error(step.at("write"), "the result of a detached job would be lost: name a `path`")
    job.check(resume=resume)
    with ray_session(address):
        from dpa.door.notes import free_name
        from dpa.runtime.detached import start_driver

        command = [sys.executable, "-m", "dpa.run", *arguments, "--address", address, "--progress", "none"]
        start_driver(command, name := free_name(job.config.name))
    with printing("the name of the job"):
        print(f"{name} runs on {address}; to see it: dpa control --address {address} attach {name}")


def _plan(job: Job, as_json: bool, svg: Path | None, address: str | None, verbose: bool) -> None:
    from dpa.report import draw_plan, plan_json, show_plan

    picture = None if svg is None else svg.absolute()  # whatever user code makes the working directory
    foreseen = job.forecast(address=address)
    with printing("the plan"):
        if as_json:
            print(plan_json(foreseen))
        else:
            show_plan(foreseen, sys.stdout, verbose=verbose)
            if not verbose:
                print("\nthe whole job, with all defaults: --verbose")
    if picture is not None:
        draw_plan(foreseen, picture)


def _show(result: Result, directory: Path | None, as_json: bool, summary: _Summary | None = None) -> int:
    """Write and print the report. What cannot be written is raised last, so that the rest is shown."""
    from dpa.report import ReportError, keep, to_json, write

    report = result.report
    keep(report)
    files, lost = [], None
    try:
        files = write(report, directory, result.events) if directory is not None else []
    except ReportError as error:
        lost = error
    if as_json:
        with printing("the report"):
            print(to_json(report))
    else:
        (summary or _Summary()).print(result, files)
    if lost is not None:
        raise lost
    return _EXIT[report.status]


if __name__ == "__main__":
    app()
