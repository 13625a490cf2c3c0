"""`python -m dpa.verify RUN --epochs FIRST:LAST`: whether Spark computes what epochs of a stream have published, of the
same rows, while it runs or afterwards (docs/streams.md#the-reference)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpa._secrets import HIDDEN
from dpa._util.arguments import Overrides
from dpa._util.streams import exiting, printing
from dpa._util.words import plural
from dpa.errors import ConfigError

if TYPE_CHECKING:
    from dpa.config import JobFile
    from dpa.driver.verification import Verified

app = typer.Typer(add_completion=False)


@app.command()
def main(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The `epoch_log` of the job, or a run's directory in it.")],
    epochs: Annotated[
        str, typer.Option(metavar="FIRST:LAST", help="The epochs; either may be left out, as in `100:`.")
    ] = ":",
    job: Annotated[
        Path | None, typer.Option(metavar="CONFIG", help="The job file, if it is not what the log has of it.")
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Have Spark compute what the epochs have published, and compare."""
    from dpa.config import load
    from dpa.driver.spec import JobSpec
    from dpa.driver.verification import verified
    from dpa.sinks.epoch_log import log_at

    first, last = _range(epochs)
    log = log_at(run if "://" in run else Path(run).absolute())
    spec = JobSpec(_of_log(log) if job is None else load(job, overrides or []))
    found = []
    for result in verified(spec, log, first, last):
        found.append(result)
        _show(result)
    if any(result.compared.matches is False for result in found):
        raise typer.Exit(3)
    raise typer.Exit(0 if any(result.compared.matches for result in found) else 2)


def _range(text: str) -> tuple[int | None, int | None]:
    first, mark, last = text.partition(":")
    if any(part and not (part.isascii() and part.isdigit()) for part in (first, last)):
        raise ConfigError(f"--epochs: {text!r} is no FIRST:LAST, such as 100:200, 100: or :200")
    begins = int(first) if first else None
    return begins, (int(last) if last else None) if mark else begins


def _of_log(log: str) -> JobFile:
    from dpa.config import parse_written
    from dpa.sinks.epoch_log import config_of

    text = config_of(log)
    if HIDDEN in text:
        raise ConfigError(f"{log} has the job without its passwords: name the job file by --job")
    return parse_written(text)


def _show(result: Verified) -> None:
    compared = result.compared
    verdict = "match" if compared.matches else "not verified" if compared.matches is None else "MISMATCH"
    with printing("the comparison"):
        print(f"{result.step}: epochs {result.first} to {result.last}: {verdict}")
        if compared.why_not is not None:
            print(f"  {compared.why_not}")
        else:
            print(f"  {plural(result.rows, 'row')} of the result, of {plural(result.read, 'row')} of the input")
        for difference in compared.differences:
            print(f"  {difference}")


if __name__ == "__main__":
    with exiting():
        app()
