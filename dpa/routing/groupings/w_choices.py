"""W-Choices: a hot key may go to every reducer, another to one of two ("When Two Choices Are Not Enough", IV-B)."""

from __future__ import annotations

from dpa.routing.groupings._head_tail import HeadTailGrouping


class WChoicesGrouping(HeadTailGrouping):
    """On equal reducers the grouping to beat: the balance of shuffle grouping, and only hot keys are everywhere."""
