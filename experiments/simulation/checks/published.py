"""Results by epoch in a simulated run, held against what tasks had really processed: invariant 8 of the design
(docs/design.md).

Counts by key, and which windows are open, are kept here from the blocks that user code was given, not from the
machines' own books.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from dpa.execution.keys import key_column
from dpa.execution.snapshots import TaskSnapshot
from dpa.execution.states import Reduced, StatePart
from dpa.protocol.wire.instructions import Commit, Instruction, ProcessBlocks, Publish
from dpa.routing.keys import Key, KeyName, to_python
from experiments.simulation.checks.require import require
from experiments.simulation.checks.windows import ended, joined, records_by_key


class PublishedResults:
    """The partial results of a stage, checked when they are committed: together the shares have each record that was
    processed, once, and each key in one share.

    Attributes:
        committed: the shares of each epoch of which they were published, by task.
    """

    def __init__(self, key: KeyName) -> None:
        """`key` is the name of the key column, or of several."""
        self.committed: list[tuple[Reduced, ...]] = []
        self._key = key
        self._processed: Counter[Key] = Counter()
        self._shares: dict[tuple[int, int], Reduced] = {}
        self._at_cut: dict[int, Counter[Key]] = {}

    def begins_with(self, part: StatePart) -> None:
        """A task has these states from the start."""
        self._processed.update(dict(zip(to_python(part.keys), part.records.tolist(), strict=True)))

    def works(self, instruction: Instruction) -> None:
        """User code of a task carries out an instruction."""
        if isinstance(instruction, ProcessBlocks):
            for key, records in records_by_key(instruction):
                self._processed[key] += records

    def published(self, task: int, epoch: int, share: Reduced) -> None:
        """A task stages its share, at a cut."""
        self._at_cut.setdefault(epoch, self._processed.copy())
        self._shares[epoch, task] = share

    def commit(self, epoch: int) -> None:
        """All shares are staged, and the cut may be over."""
        at_cut = self._at_cut.pop(epoch, Counter())
        shares = tuple(self._shares.pop(staged) for staged in sorted(self._shares) if staged[0] == epoch)
        found: Counter[Key] = Counter()
        for share in shares:
            own = self._records_of(share)
            twice = sorted(repr(key) for key in own.keys() & found.keys())
            require(not twice, f"two tasks published {twice} in epoch {epoch}")
            found |= own
        for key in sorted(found.keys() | at_cut.keys(), key=repr):
            has, processed = found[key], at_cut[key]
            what = f"of key {key!r} {has} records were published in epoch {epoch}"
            require(has == processed, f"{what}, but {processed} were processed")
        self.committed.append(shares)

    def _records_of(self, share: Reduced) -> Counter[Key]:
        keys = to_python(key_column(share.table, self._key)) if share.table.num_rows else []
        return Counter(dict(zip(keys, share.records.tolist(), strict=True)))


class PublishedWindows:
    """The rows of closed windows of a stage that publishes them by epoch, as they stay as they are: each once, in the
    epoch that closes its window, or in the next one that publishes where that does not.

    Attributes:
        committed: the shares of each epoch.
    """

    def __init__(self, stage: str, key: KeyName, *, are_sessions: bool) -> None:
        """`key` is the names of the key columns, with those of the window."""
        self.committed: dict[int, tuple[pa.Table, ...]] = {}
        self._stage = stage
        self._key = key
        self._are_sessions = are_sessions
        self._open: set[Key] = set()
        self._due: set[Key] = set()
        self._closes: int | None = None
        self._staged: Counter[Key] | None = None

    def begins_with(self, snapshot: TaskSnapshot) -> None:
        """A task has this from the start: windows that are open, and rows of those that are closed."""
        self._open.update(key for part in snapshot.parts() for key in to_python(part.keys))
        self._due.update(key for rows in snapshot.rows for key in self._keys(pa.Table.from_batches([rows])))

    def works(self, instruction: Instruction) -> None:
        """User code of a task carries out an instruction."""
        if isinstance(instruction, ProcessBlocks):
            keys = [key for block in instruction.blocks for key in to_python(block.keys)]
            self._open.update(key for key in keys if not self._ended(key, instruction.closed))

    def published(self, publish: Publish, staged: Any) -> None:
        """A task has closed its windows at a cut, and staged its rows if it was to; None: it has none."""
        self._closes = publish.closes
        if publish.publishes:
            own = () if staged is None else self._keys(staged)
            self._staged = (self._staged or Counter()) + Counter(own)

    def cut_is_over(self, *, knows: bool) -> None:
        """All tasks have, at the last cut; `knows`: whether the coordinator will publish what has been closed since."""
        if self._are_sessions:
            self._open = joined(self._open)
        closed = {key for key in self._open if self._ended(key, self._closes)}
        self._open -= closed
        self._due |= closed
        if self._staged is not None:
            due = Counter(self._due)
            wrong = sorted((self._staged - due) + (due - self._staged), key=repr)
            require(not wrong, f"windows of {self._stage} were not published once when they were closed: {wrong[:3]}")
            self._staged, self._due = None, set()
        require(knows or not self._due, f"{self._stage} has closed {len(self._due)} windows, and will not publish them")

    def commit(self, commit: Commit) -> None:
        """What was staged of an epoch is committed."""
        self.committed[commit.epoch] = commit.staged

    def _ended(self, key: Key, by: int | None) -> bool:
        return ended(key, by, is_session=self._are_sessions)

    def _keys(self, rows: pa.Table) -> list[Key]:
        return to_python(key_column(rows, self._key))


Finals = Mapping[str, Mapping[int, tuple[pa.Table, ...]]]
"""By stage and epoch, what was published of closed windows."""

LEFT = 0
"""The epoch there of what was staged, and nothing has committed."""
