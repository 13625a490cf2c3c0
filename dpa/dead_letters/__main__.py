"""`python -m dpa.dead_letters PATH`: look at dead letters, and replay them (docs/dead-letters.md)."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from dpa._util.arguments import Overrides
from dpa._util.streams import exiting, printing
from dpa._util.words import plural
from dpa.dead_letters._letters import FoundLetters
from dpa.report import show_table
from dpa.result.text import Table, one_line

app = typer.Typer(add_completion=False, no_args_is_help=False)

_SHOWN = ("step", "executor", "method", "error", "message", "key", "record")
_PLACES = ("file", "split", "offset", "rows", "task", "sender", "edge", "block", "epoch", "generation")


@app.callback()
def main(
    context: typer.Context,
    path: Annotated[str, typer.Argument(metavar="PATH", help="The directory, or s3:// URI, of `dead_letters`.")],
) -> None:
    """Look at the dead letters in PATH, or replay them."""
    context.obj = path


@app.command("list")
def list_all(context: typer.Context) -> None:
    """Show how many there are, by step and error, with an example."""
    letters = FoundLetters.read(context.obj).letters
    counts = Counter((letter.step, letter.error) for letter in letters)
    rows = []
    for (step, error), number in counts.most_common():
        example = next(letter for letter in letters if (letter.step, letter.error) == (step, error))
        rows.append((step, error, f"{number:,}", one_line(f"{example.message} ({example.record[:80]})")))
    with printing("the list"):
        show_table(Table("", ("step", "error", "#records", "example"), rows, is_copied=True))
        if not letters:
            print("no dead letter")


@app.command()
def show(
    context: typer.Context,
    step: Annotated[str | None, typer.Option(help="Only those of this step.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most letters to show.")] = 10,
) -> None:
    """Show letters with all that is known of them."""
    letters = [letter for letter in FoundLetters.read(context.obj).letters if step in (None, letter.step)]
    with printing("the letters"):
        for number, letter in enumerate(letters[:limit]):
            print(f"{'' if number == 0 else chr(10)}letter {number + 1} of {len(letters)}")
            for name in _SHOWN:
                if getattr(letter, name) not in (None, ""):
                    print(f"  {name:<10} {getattr(letter, name)}")
            places = ((name, getattr(letter, name)) for name in _PLACES)
            print(
                f"  {'where':<10} {', '.join(f'{name} {value}' for name, value in places if value not in (None, ''))}"
            )
            for line in letter.traceback.splitlines():
                print(f"    {line}")


@app.command()
def replay(
    context: typer.Context,
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The job file, whose executors are mended.")],
    overrides: Overrides = None,
) -> None:
    """Send the records through the mended executors of CONFIG, into its results."""
    from dpa.dead_letters._replay import replay as replayed
    from dpa.job import Job

    place = context.obj if "://" in context.obj else str(Path(context.obj).absolute())  # executors may go elsewhere
    letters = FoundLetters.read(place, trusted=True)
    done = replayed(Job.from_file(config, overrides or []).spec, letters)
    with printing("what was done"):
        print(f"{plural(done.sent, 'record')} replayed")
        for name, rows in done.rows.items():
            print(f"{name}: {plural(rows, 'row')} merged with the result")
        for (step, error), number in done.again.items():
            print(f"{step}: {plural(number, 'record')} failed again ({error})")
        print(f"{plural(done.left, 'dead letter')} left")


if __name__ == "__main__":
    with exiting():
        app()
