"""Partial results in a simulated run, held against what tasks had really processed: invariant 8 of the design
(docs/design.md).

Counts by key are kept here from the blocks that user code was given, not from the machines' own books.
"""

from __future__ import annotations

from collections import Counter

from dpa.execution.keys import key_column
from dpa.execution.states import Reduced, StatePart
from dpa.protocol.wire.instructions import Instruction, ProcessBlock
from dpa.routing.keys import Key, KeyName, to_python
from dpa.simulation._require import require


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
        if isinstance(instruction, ProcessBlock):
            block = instruction.block
            for key, records in zip(to_python(block.keys), block.counts().tolist(), strict=True):
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
