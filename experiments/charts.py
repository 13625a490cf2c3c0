"""The look that the experiments' pictures share; each experiment draws its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours without black and yellow, and two of Tol's.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999933", "#aa4499")
INK, GRID = "#333333", "#cccccc"
"""Text and axes; grid and faint marks."""


def panels(columns: int = 1, size: tuple[float, float] = (9.0, 3.6), *, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with `rows` rows of `columns` panels; `size` in inches."""
    figure = Figure(figsize=size, layout="constrained")
    made = [figure.add_subplot(rows, columns, place + 1) for place in range(rows * columns)]
    for axes in made:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=GRID, linewidth=0.5)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=9, colors=INK)
    return figure, made
