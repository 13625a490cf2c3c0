"""What a reference leaves out because user code has failed on it: the input rows of dead letters, where their places
are known and nothing else was made of them; else, of a reducer's, their keys; else it cannot be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pickle import loads
from typing import Any

import numpy as np
import pyarrow as pa

from dpa.driver.inputs import OpenedInput
from dpa.logical.step import Step
from dpa.protocol.plan import RunOutcome
from dpa.routing.keys import names_of
from dpa.sources.splits import placed, whole
from dpa.tolerance import READING, UNREAD, Letter
from dpa.windows.options import WINDOW

_ROWS = 65_536

_OF_A_ROW = (None, "map", "filter")
"""Operations that make one row at most of each row."""


@dataclass
class LeftOut:
    """What the reference of one step is computed and compared without.

    Attributes:
        rows: of each source, the rows of its input by the number of their split.
        keys: of the result, in parts; of some in windows those before the window, which stand for all of its windows.
        records: how many records these are.
        why_not: why there is no comparison; None: there is one.
    """

    rows: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    keys: set[tuple[Any, ...]] = field(default_factory=set)
    records: int = 0
    why_not: str | None = None

    @classmethod
    def of(cls, step: Step, steps: Sequence[Step], outcome: RunOutcome) -> LeftOut:
        """Of the reference of `step`, after a run."""
        graph = _Steps({each.name: each for each in steps})
        found = cls()
        for count in outcome.snapshot.errors:
            if not count.kept and count.error != UNREAD and graph.feeds(count.step, step.name):
                found.why_not = f"{count.records} records were skipped in {count.step}, and nobody knows which"
        for letter in outcome.letters:
            if graph.feeds(letter.step, step.name):
                found._add(letter, step, graph)
        return found

    def _add(self, letter: Letter, step: Step, graph: _Steps) -> None:
        source = letter.task.rpartition(" ")[0]
        self.records += 1
        if letter.method == READING:
            return  # whoever reads the input again cannot read it either
        if letter.rows == 1 and letter.split is not None and letter.offset is not None:
            if graph.is_all_of_a_row(source, letter.step, step.name):
                self.rows.setdefault(source, {}).setdefault(letter.split, []).append(letter.offset)
                return
        elif (
            letter.step == step.name
            and letter.key is not None
            and letter.data is not None
            and (parts := _parts(loads(letter.data)[0], step))
        ):
            self.keys.add(parts)
            return
        self.why_not = (
            f"what {letter.step} has left out cannot be traced to rows of the input, or to keys of the result"
        )

    def input_of(self, source: str, opened: OpenedInput) -> pa.Table | None:
        """The input of a source without its rows; None: it has all."""
        gone = self.rows.get(source)
        if gone is None:
            return None
        batches = []
        for number, split in enumerate(opened.splits):
            for batch, places in placed(whole(split), _ROWS):
                alive = ~np.isin(places, gone.get(number, ()))
                batches.append(batch if alive.all() else batch.filter(pa.array(alive)))
        return pa.Table.from_batches(batches)

    def without_keys(self, rows: pa.Table, step: Step) -> pa.Table:
        """Rows of the step's result, or of its reference, that have none of the keys."""
        names = names_of(step.key)
        if not self.keys or any(name not in rows.column_names for name in names):
            return rows
        keys, own = zip(*(rows[name].to_pylist() for name in names), strict=True), _before_window(step)
        return rows.filter(pa.array([self.keys.isdisjoint({key, key[:own]}) for key in keys], pa.bool_()))


NOTHING_LEFT_OUT = LeftOut()


def _parts(key: Any, step: Step) -> tuple[Any, ...]:
    """A letter's key in parts, without its window where that says nothing: stores of one window do not know it, and
    sessions are others without a record. Empty: it is no key of the result."""
    own, parts = _before_window(step), key if isinstance(key, tuple) else (key,)
    if len(parts) not in (own, len(names_of(step.key))):
        return ()
    return parts[:own] if step.receiver.has_sessions else parts


def _before_window(step: Step) -> int:
    """How many parts of the keys of a step's result are not those of a window."""
    return len(names_of(step.key)) - (len(WINDOW) if step.receiver.windowing else 0)


@dataclass(frozen=True)
class _Steps:
    by_name: Mapping[str, Step]

    def feeds(self, one: str, other: str, without: str | None = None) -> bool:
        """Whether rows of one step come to another, or it is that; by other ways than through the step `without`."""
        if without in (one, other):
            return False
        return one == other or any(self.feeds(one, feed.step, without) for feed in self.by_name[other].feeds)

    def is_all_of_a_row(self, source: str, failed: str, result: str) -> bool:
        """Whether nothing but the record on which the step `failed` was made of a row of `source` for a result."""
        if failed == source:
            return True
        name = failed
        while (feeds := self.by_name[name].feeds) and [feed.step for feed in feeds] != [source]:
            if len(feeds) != 1 or self.by_name[feeds[0].step].config.operation not in _OF_A_ROW:
                return False
            name = feeds[0].step
        return bool(feeds) and (failed == result or not self.feeds(source, result, without=failed))
