"""Arguments that several commands have, and what a shell completes for them."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def job_files(incomplete: str) -> list[str]:
    """The job files whose path begins so, and those one directory below."""
    begun = Path(f"{incomplete}*")
    found = [path for below in ("", "/*") for path in begun.parent.glob(f"{begun.name}{below}.y*ml")]
    return sorted(map(str, found))


JobFilePath = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="The job file (docs/job-files.md).", autocompletion=job_files)
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key, such as balance.strategy=none.")
]
ProgressMode = Literal["auto", "rich", "plain", "none"]
Progress = Annotated[ProgressMode, typer.Option(envvar="DPA_PROGRESS", help="How to show progress, on standard error.")]
