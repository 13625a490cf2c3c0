"""States that can be merged, as runs: each time states are spilled they are written in the order of their hashes, and
are merged with those of the other runs when they are read, as in a log-structured merge-tree (O'Neil et al., 1996).

Runs that have outgrown the first one are folded into one with it, range by range: so every state is folded a
logarithmic number of times, and the disk holds a small multiple of all states.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from dpa.execution.receivers.base import Receiver
from dpa.execution.spill._packing import packed, unpacked
from dpa.execution.spill._shelf import BIN_BITS, BINS, Everything, Shelf
from dpa.execution.spill.room import Room, read_at
from dpa.execution.states import StatePart
from dpa.routing.hashing import ALL_HASHES, Hashes, Interval

_SEGMENTS = 2048
"""A segment has this part of the budget, within the bounds that follow: of tens of runs, a piece that is read together
has a small part of each."""

_SEGMENT_BYTES = (2**14, 2**20)


@dataclass(frozen=True)
class _Segment:
    """A segment of a run, or what is left of it.

    Attributes:
        file: that has it, and others; closed, and so gone, with the last of them.
        offset, size: where in the file it is, in bytes.
        keys: in the whole of it.
        live: the hashes in it that are not dropped.
    """

    file: BinaryIO
    offset: int
    size: int
    keys: int
    live: Interval

    def meets(self, interval: Interval) -> bool:
        return self.live[0] <= interval[1] and interval[0] <= self.live[1]

    def without(self, interval: Interval) -> list[_Segment]:
        if not self.meets(interval):
            return [self]
        (first, last), (begin, end) = self.live, interval
        rest = [(first, begin - 1), (end + 1, last)]
        return [replace(self, live=(low, high)) for low, high in rest if low <= high]


class Runs(Shelf):
    """The runs of one task."""

    def __init__(self, receiver: Receiver, room: Room) -> None:
        self._receiver = receiver
        self._room = room
        self._all = Everything(room.seed)
        self._segment_bytes = int(np.clip(room.memory // _SEGMENTS, *_SEGMENT_BYTES))
        self._segments: list[_Segment] = []
        self._folded = 0
        self._file: BinaryIO | None = None  # is written at its end until it is as large as the budget
        self._offset = 0

    def put(self, part: StatePart) -> None:
        self._write(iter([part]))
        if not self._receiver.has_sides and self.bytes > 2 * max(self._folded, self._room.memory):
            self._fold()

    def read(self, interval: Interval = ALL_HASHES) -> Iterator[StatePart]:
        for segment in self._segments:
            if segment.meets(interval):
                live = (max(interval[0], segment.live[0]), min(interval[1], segment.live[1]))
                part = unpacked(read_at(segment.file, segment.offset, segment.size), live)
                if part is not None:
                    yield part

    def drop(self, interval: Interval) -> None:
        self._segments = [left for segment in self._segments for left in segment.without(interval)]
        self._count()

    def recall(self, hashes: Hashes) -> None:
        return None

    def close(self) -> None:
        self.drop(ALL_HASHES)
        self._file = None

    def _write(self, parts: Iterator[StatePart]) -> None:
        with self._room.writing():
            if self._file is None or self._offset >= self._room.memory:
                self._file, self._offset = self._room.file(), 0
            file = self._file
            for part in parts:
                for interval, keys, data in packed(part, self._room, self._segment_bytes):
                    file.write(data)
                    self._segments.append(_Segment(file, self._offset, len(data), keys, interval))
                    self._offset += len(data)
                    self.written += len(data)
            file.flush()
        self._count()

    def _fold(self) -> None:
        """Make one run of all, a range at a time."""
        old = Runs(self._receiver, self._room)
        old._segments, self._segments, self._file = self._segments, [], None

        def folded() -> Iterator[StatePart]:
            for interval in old.cuts(self._room.piece):
                store = self._receiver.store()
                for part in old.read(interval):
                    store.merge(part)
                old.drop(interval)
                yield from store.pack(self._all, -1).values()

        self._write(folded())
        self._folded = self.bytes

    def _count(self) -> None:
        self.keys = sum(segment.keys for segment in self._segments)
        self.bytes = sum(segment.size for segment in self._segments)

    def _sizes(self) -> npt.NDArray[np.float64]:
        sizes = np.zeros(BINS)
        for segment in self._segments:
            first, last = (end >> BIN_BITS for end in segment.live)
            sizes[first : last + 1] += segment.size / (last + 1 - first)
        return sizes
