"""Sessions: states that are merged when records between them come.

Each record alone is a session, so senders' blocks already have sessions, each with a state once reduced. The key alone
decides the task, so a key's sessions move together."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.execution._parts import FoldedStates, combined, ends_of, without_window
from dpa.execution._tolerant_calls import copies
from dpa.execution.block import Block, object_array
from dpa.execution.keys import encode
from dpa.execution.receivers.base import Receiver
from dpa.execution.receivers.windows import ClosableStates
from dpa.execution.states import KeyedPart, Reduced
from dpa.execution.windowing import joined_block, joined_sessions, note_late
from dpa.routing.hashing import Hashes, hash_column
from dpa.routing.keys import KeyName


class SessionStates(FoldedStates[KeyedPart], ClosableStates[KeyedPart]):
    """For receivers whose states can be merged. A part has sessions, and the hashes of their keys."""

    def __init__(self, receiver: Receiver) -> None:
        FoldedStates.__init__(self)
        ClosableStates.__init__(self, receiver)

    @property
    def size(self) -> int:
        """In sessions; sessions not joined yet count one by one."""
        return sum(len(part.keys) for part in self._parts)

    @property
    def first_open(self) -> int | None:
        """When the first session closes, unless it grows."""
        first = min((int(ends_of(part.keys).min()) for part in self._parts), default=None)
        return None if first is None else first + self._windowing.windows.past_end_us

    def reduce(self, block: Block) -> None:
        """If errors are tolerated, records are not joined before: a bad record must join no session, so the others of
        its block are reduced again without it."""
        apart = self._receiver.takes_apart and not block.combined
        whole = joined_block(block) if apart else block
        if self._closed is not None and (late := ends_of(whole.keys) < self._closed).any():
            is_late = late[whole.codes]
            own, rest = whole.take(np.flatnonzero(is_late)), np.flatnonzero(~is_late)
            note_late(self._windowing, self._receiver.executor, own, int(ends_of(own.keys).max()))
            block, whole = block.take(rest), whole.take(rest)
        if not whole.rows:
            return
        values = None  # as they are now: user code may change objects
        if apart and isinstance(block.values, np.ndarray):
            values = copies(self._receiver.executor, [*block.values], "values")
        store = self._receiver.own_store()
        store.reduce(whole)
        if apart and len(store.dead):
            fresh = block if values is None else replace(block, values=object_array(values()))
            self.reduce(fresh.take(np.setdiff1d(np.arange(block.rows), [*store.dead])))
        elif (part := store.snapshot()) is not None:
            self.merge(part)

    def merge(self, part: KeyedPart) -> None:
        super().merge(self._with_hashes(part))

    def close(self, until: int, key: KeyName) -> Reduced | None:
        """Joins sessions only of keys that may have ended ones. A session that ends at `until` stays open: rows of that
        time may still join it."""
        self.note_closed(until)
        ended = [_hashes(part)[ends_of(part.keys) < until] for part in self._parts]
        hashes = np.unique(np.concatenate([*ended, np.zeros(0, np.uint32)]))
        if not len(hashes):
            return None
        found, rest = _divided(self._parts, [np.isin(_hashes(part), hashes) for part in self._parts])
        whole = self._folded(found)
        [ended_parts, open_parts] = _divided([whole], [ends_of(whole.keys) < until])
        self._parts = [*rest, *open_parts]
        self._known = min(self._known, self.size)
        return self._finished(ended_parts[0], key) if ended_parts else None

    def preview(self, key: KeyName) -> Reduced:
        return self._finished(self.snapshot(), key, preview=True)

    def finish(self, key: KeyName) -> Reduced:
        return self._finished(self.snapshot(), key)

    def _finished(self, part: KeyedPart | None, key: KeyName, *, preview: bool = False) -> Reduced:
        store = self._receiver.own_store()
        if part is not None:
            store.install(part)
        share = store.preview(key) if preview else store.finish(key)
        if part is None:
            return share
        keys, codes = encode(without_window(share.keys))
        records, mapped = (
            np.bincount(codes, counts, len(keys)).astype(np.int64) for counts in (share.records, share.mapped)
        )
        return Reduced(share.table, keys, records, mapped)

    def _folded(self, parts: Sequence[KeyedPart]) -> KeyedPart:
        whole = combined(parts)
        sessions, found = joined_sessions(whole.keys)
        several = np.bincount(found.of)[found.of] > 1
        if not several.any():
            return whole
        rows = np.flatnonzero(several)
        store = self._receiver.own_store()
        store.merge(replace(whole.take(rows), keys=sessions.take(pa.array(found.of[rows]))))
        merged = store.snapshot()
        assert merged is not None
        return combined([whole.take(np.flatnonzero(~several)), self._with_hashes(merged)])

    def _with_hashes(self, part: KeyedPart) -> KeyedPart:
        if part.hashes is not None:
            return part
        return replace(part, hashes=hash_column(without_window(part.keys), self._windowing.seed))


def _hashes(part: KeyedPart) -> Hashes:
    assert part.hashes is not None
    return part.hashes


def _divided(
    parts: Sequence[KeyedPart], chosen: Sequence[npt.NDArray[np.bool_]]
) -> tuple[list[KeyedPart], list[KeyedPart]]:
    found, others = [], []
    for part, which in zip(parts, chosen, strict=True):
        found += [part.take(np.flatnonzero(which))] if which.any() else []
        others += [part.take(np.flatnonzero(~which))] if not which.all() else []
    return found, others
