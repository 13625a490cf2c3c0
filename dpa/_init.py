"""`dpa init`: a small job to start from, which runs and checks itself; or the files for Prometheus and Grafana."""

import shlex
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from dpa._util.streams import printing
from dpa.errors import ConfigError, TableError

_ORDERS = 2_000


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new directory, or one that exists.")],
    monitoring: Annotated[
        bool, typer.Option("--monitoring", help="Write files for Prometheus and Grafana instead.")
    ] = False,
) -> None:
    """Write a job file, its Python functions and a small CSV file, in which one shop has half of the orders."""
    templates = sorted(files("dpa").joinpath("door/ops" if monitoring else "example").iterdir(), key=str)
    made = {file.name.removesuffix(".txt"): file.read_text() for file in templates}
    made |= {} if monitoring else {"orders.csv": _orders()}
    if taken := [name for name in made if (directory / name).exists()]:
        raise ConfigError(f"{directory} has {' and '.join(taken)} already: name another directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in made.items():
            (directory / name).write_text(text)
    except OSError as error:
        raise TableError(f"{directory}: cannot write the job: {error.strerror}") from None
    with printing("what was written"):
        there = "" if directory == Path() else f"cd {shlex.quote(str(directory))} && "
        then = "" if monitoring else f"; to run the job: {there}dpa run job.yaml"
        print(f"wrote {', '.join(made)}{then}")


def _orders() -> str:
    shops = ("busy" if number % 2 else f"shop-{number // 2 % 20}" for number in range(_ORDERS))
    rows = (f"{number},{shop},{number * 37 % 900}\n" for number, shop in enumerate(shops))
    return "number,shop,cents\n" + "".join(rows)
