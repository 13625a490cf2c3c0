"""`python -m dpa.checkpoints PATH`: look at the checkpoints of jobs, check them, and delete old ones
(docs/checkpoints.md)."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from dpa._util.streams import exiting, printing
from dpa._util.words import plural
from dpa.checkpoints import Chain, CheckpointStore, FileRef, Manifest
from dpa.errors import CheckpointError, ConfigError
from dpa.report import show_table
from dpa.result.text import Table

app = typer.Typer(add_completion=False, no_args_is_help=False)

Job = Annotated[
    str | None, typer.Argument(metavar="[JOB]", help="A job's directory, or how it begins; without it, every job.")
]


@app.callback()
def main(
    context: typer.Context,
    path: Annotated[str, typer.Argument(metavar="PATH", help="A directory, or a URI such as s3://bucket/prefix.")],
) -> None:
    """Look at the checkpoints below PATH, check them, and delete old ones."""
    context.obj = path


@app.command("list")
def list_all(context: typer.Context, job: Job = None) -> None:
    """Show the jobs and their checkpoints."""
    with exiting(), printing("the list"):
        for chain in _chains(context.obj, job):
            print(chain.job)
            made = [*reversed(chain.checkpoints().values())]
            _show(made)
            if not made:
                print("no checkpoint yet")


@app.command()
def show(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Its directory, or how that begins.")],
    number: Annotated[int | None, typer.Argument(min=0, help="Of the checkpoint; without it, the newest.")] = None,
) -> None:
    """Show a checkpoint: what each task has in it."""
    with exiting(), printing("the checkpoint"):
        chain = _one(context.obj, job)
        slot = chain.newest_slot()
        manifest = slot.checkpoint if number is None else chain.manifest(number)
        if manifest is None:
            raise CheckpointError(f"{chain.job} has no checkpoint yet")
        print(f"checkpoint {manifest.number} of {slot.name}")
        _show([manifest])
        rows = []
        for task in manifest.tasks:
            files = {part.file.path: part.file for part in task.parts}
            keys = sum(part.keys for part in task.parts if not part.is_increment)
            changed = sum(part.keys for part in task.parts if part.is_increment)
            since = f"{min(file.number for file in files.values())}" if files else ""
            rows.append((task.stage, f"{task.task}", *_sums(files.values()), f"{keys:,}", f"{changed:,}", since))
        head = "stage", "#task", "#files", "#size", "#keys", "#increments", "#oldest file"
        show_table(Table("", head, rows, is_copied=True))


@app.command()
def verify(context: typer.Context, job: Job = None) -> None:
    """Read every file that a checkpoint needs, and compare sizes and checksums."""
    damages = 0
    with exiting(), printing("what was found"):
        for chain in _chains(context.obj, job):
            found, files = _damages(chain)
            for damage in found:
                print(damage)
            damages += len(found)
            print(f"{chain.job}: {plural(files, 'file')}, {len(found) or 'none'} damaged")
    if damages:
        raise typer.Exit(1)


@app.command("back-to")
def go_back(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Its directory, or how that begins.")],
    number: Annotated[int, typer.Argument(min=0, help="Of the checkpoint.")],
    config: Annotated[Path | None, typer.Option(metavar="CONFIG", help="The job file, where it has passwords.")] = None,
) -> None:
    """Have a job go on with an older checkpoint, and take back what it has published since."""
    from dpa.config import load  # half a second, for this command alone
    from dpa.driver.going_back import back_to

    with exiting(), printing("what was done"):
        chain = _one(context.obj, job)
        for line in back_to(chain, number, None if config is None else load(config)):
            print(line)
        print(f"{chain.job}: the next --resume continues after checkpoint {number}")


@app.command()
def prune(
    context: typer.Context,
    job: Job = None,
    keep: Annotated[int, typer.Option(min=1, help="Checkpoints to keep of each job.")] = 1,
) -> None:
    """Delete old checkpoints, and what checkpoints that were given up have left. The jobs may be running."""
    with exiting(), printing("what was done"):
        for chain in _chains(context.obj, job):
            done = chain.collect(keep)
            print(f"{chain.job}: {plural(done.slots, 'manifest')} and {plural(done.files, 'file')} deleted")


@app.command()
def remove(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Its directory, or how that begins.")],
) -> None:
    """Delete all checkpoints of a job that has ended."""
    with exiting(), printing("what was done"):
        chain = _one(context.obj, job)
        chain.remove()
        print(f"{chain.job}: removed")


def _damages(chain: Chain) -> tuple[list[str], int]:
    """What is wrong with the files of a job, and how many files it needs."""
    damages: list[str] = []
    needed: dict[str, FileRef] = {}
    for number in chain.numbers():
        try:
            slot = chain.slot(number)
        except CheckpointError as error:
            damages.append(str(error))
        else:
            needed.update({} if slot is None else slot.files())
    for file in needed.values():
        try:
            chain.data.read(file)
        except CheckpointError as error:
            damages.append(str(error))
    return damages, len(needed)


def _chains(uri: str, job: str | None) -> list[Chain]:
    """The chains of the jobs whose directory begins with `job`, at least one."""
    store = CheckpointStore.open(uri)
    jobs = store.jobs()
    if not jobs:
        raise CheckpointError(f"no job has checkpoints at {store.place}")
    found = [name for name in jobs if name.startswith(job or "")]
    if job is not None and not found:
        raise CheckpointError(f"{store.place} has no checkpoints of {job}; jobs there: {', '.join(jobs)}")
    return [store.chain(name) for name in found]


def _one(uri: str, job: str) -> Chain:
    found = _chains(uri, job)
    if len(found) > 1:
        raise ConfigError(f"{job} may be {' or '.join(chain.job for chain in found)}: name one")
    return found[0]


def _show(manifests: Sequence[Manifest]) -> None:
    rows = []
    for manifest in manifests:
        made = datetime.fromtimestamp(manifest.created_at).strftime("%Y-%m-%d %H:%M:%S")
        of = f"{manifest.number}", f"{manifest.epoch}", made, f"{manifest.records:,}"
        rows.append((*of, *_sums(manifest.files().values()), decimal(manifest.written), f"{manifest.seconds:.1f}"))
    show_table(Table("", ("#number", "#epoch", "made at", "#records", "#files", "#size", "#new", "#seconds"), rows))


def _sums(files: Iterable[FileRef]) -> tuple[str, str]:
    sizes = [file.size for file in files]
    return f"{len(sizes):,}", decimal(sum(sizes))


if __name__ == "__main__":
    app()
