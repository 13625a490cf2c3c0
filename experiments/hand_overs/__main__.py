"""`python -m experiments.hand_overs`: the pictures of docs/design.md."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from experiments.hand_overs.examples import EXAMPLES
from experiments.hand_overs.picture import draw

DOCS = Path(__file__).parents[2] / "docs"

_COLOURS = 48
"""Enough for lines and letters with soft edges; a picture is a quarter as large as with all that there are."""

if __name__ == "__main__":
    for example in EXAMPLES.values():
        whole, path = io.BytesIO(), DOCS / f"{example.name}.png"
        draw(example.story()).savefig(whole, format="png")
        Image.open(whole).convert("RGB").quantize(_COLOURS).save(path, optimize=True)
        print(f"wrote {path}")
