"""Lines of text in a picture whose coordinates are pixels, so that boxes can be made as large as the words in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DPI = 100
LEADING = 1.3
"""Height of a line by that of its font."""


@dataclass(frozen=True)
class Words:
    """Lines of text in a font.

    Attributes:
        lines: from top to bottom.
        size: of the font, in points.
        is_headed: whether the first line is bold.
    """

    lines: tuple[str, ...]
    size: float
    is_headed: bool = False

    @property
    def width(self) -> float:
        """Of the longest line."""
        from matplotlib.font_manager import FontProperties
        from matplotlib.textpath import text_to_path

        font = FontProperties(size=self.size, weight="bold" if self.is_headed else "normal")
        points = (text_to_path.get_text_width_height_descent(line, font, ismath=False)[0] for line in self.lines)
        return max(points, default=0.0) * DPI / 72

    @property
    def line_height(self) -> float:
        """Of one line."""
        return self.size * LEADING * DPI / 72

    @property
    def height(self) -> float:
        """Of all lines."""
        return len(self.lines) * self.line_height

    def draw(self, axes: Axes, x: float, y: float, **style: Any) -> None:
        """Write the lines around the height `y`; `x` is where they begin, or their middle with `ha="center"`."""
        for place, line in enumerate(self.lines):
            middle = y + (place + 0.5) * self.line_height - self.height / 2
            weight = "bold" if self.is_headed and place == 0 else "normal"
            axes.text(x, middle, line, size=self.size, weight=weight, va="center_baseline", **style)
