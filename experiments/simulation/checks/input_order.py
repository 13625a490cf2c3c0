"""Invariant 10, of one stage whose states migrate: it takes the records of a key in the order of the input, as far as
docs/changing-tasks.md promises that, whichever tasks of a source have read them.

Read from the records themselves: the value of each is the number of its row.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TypeAlias

from dpa.protocol.graph import Graph, Stage
from dpa.protocol.wire.messages.data import Push
from dpa.routing.keys import Key, to_python
from dpa.routing.members import MemberChange
from experiments.simulation.checks.require import broken

_Part: TypeAlias = "tuple[int, Key, int | None]"
"""An edge, a key, and the split, or None for the whole input."""


class InputOrder:
    """Rows of a split are in order; so are all rows of a source as long as one task reads at a time."""

    def __init__(self, graph: Graph, whole: Graph, stage: str) -> None:
        """Of the records that come from sources; `whole` is the graph with all splits."""
        self._stage = stage
        sources = [feeder for feeder in graph.upstream(stage) if graph.is_source(feeder.name)]
        self._firsts = {source.name: _first_rows(whole[source.name]) for source in sources}
        self._one_reader = {source.name for source in sources if source.tasks == 1}
        self._last: dict[_Part, int] = {}

    def changes(self, source: str, change: MemberChange) -> None:
        """Tasks of a source come and go: a task that takes another's place reads after it."""
        if change.joins:
            self._one_reader.discard(source)

    def works(self, index: int, push: Push) -> None:
        """User code of task `index` processes records.

        Raises:
            ProtocolError: rows that it should have had later have come before.
        """
        source, names = push.origin.stage, to_python(push.block.keys)
        if source not in self._firsts or push.block.combined:
            return
        for code, number in zip(push.block.codes.tolist(), push.block.objects(), strict=True):
            self._take((push.edge, names[code], bisect_right(self._firsts[source], number)), number, index)
            if source in self._one_reader:
                self._take((push.edge, names[code], None), number, index)

    def _take(self, part: _Part, number: int, index: int) -> None:
        last = self._last.get(part, -1)
        if number <= last:
            key, of = part[1], "the input" if part[2] is None else "their split"
            what = f"task {index} processed row {number} of key {key!r} after row {last}, against the order of {of}"
            broken(f"{self._stage}: {what}")
        self._last[part] = number


def _first_rows(source: Stage) -> list[int]:
    """The number of the first row of each split."""
    return list(accumulate((split.rows for split in source.input.splits[:-1]), initial=0))
