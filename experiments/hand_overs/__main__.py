"""`python -m experiments.hand_overs`: the pictures of docs/design.md."""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from experiments.hand_overs.examples import EXAMPLES
from experiments.hand_overs.picture import draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOCS = Path(__file__).parents[2] / "docs"


_COLOURS = 48
"""Enough for lines and letters with soft edges; a picture is a quarter as large as with all that there are."""


def save(figure: Figure, path: Path) -> None:
    """Write a picture of few colours."""
    whole = io.BytesIO()
    figure.savefig(whole, format="png")
    Image.open(whole).convert("RGB").quantize(_COLOURS).save(path, optimize=True)


def main() -> None:
    """Draw both."""
    parser = argparse.ArgumentParser(prog="python -m experiments.hand_overs", description=__doc__)
    parser.add_argument("--to", type=Path, default=DOCS, help="the directory for the pictures; docs by default")
    directory = parser.parse_args().to
    for example in EXAMPLES.values():
        path = directory / f"{example.name}.png"
        save(draw(example.story()), path)
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
