"""Invariant 4, of one stage whose states migrate: where the state of each key is, and the order of its records.

Counted in the blocks and states that user code really received and gave, and in what senders really pushed.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from dpa.execution.block import Block
from dpa.execution.states import StatePart
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import Event, RangesExtracted
from dpa.protocol.wire.instructions import InstallStates, Instruction, ProcessBlocks, Publish
from dpa.protocol.wire.messages.data import Push
from dpa.routing.keys import Key, to_python
from experiments.simulation.checks.require import broken
from experiments.simulation.checks.windows import ended

_Place: TypeAlias = "tuple[str, int]"
"""At a task or on the way to it, with its number."""


class StatesAndOrder:
    """The keys of one stage."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._places: dict[Key, _Place] = {}
        self._emitted: dict[tuple[Address, int, Key], deque[str]] = defaultdict(deque)

    def begins_with(self, index: int, parts: Sequence[StatePart]) -> None:
        """Task `index` has these states and no others: from the start, or as its timers have left them."""
        self._places = {key: place for key, place in self._places.items() if place != ("at", index)}
        self._places |= {key: ("at", index) for part in parts for key in to_python(part.keys)}

    def emitted(self, push: Push) -> None:
        """A sender pushes records."""
        for key, value in _records(push.block):
            self._emitted[push.origin, push.edge, key].append(value)

    def works(self, index: int, instruction: Instruction, pushes: Sequence[Push]) -> None:
        """User code of task `index` carries out an instruction, on these records if it processes any.

        Raises:
            ProtocolError: the state of a key is elsewhere, or its records come in another order.
        """
        if isinstance(instruction, InstallStates):
            for key in _keys(instruction.parts):
                self._move(key, ("on its way to", index), ("at", index))
        elif isinstance(instruction, Publish):
            for key in [key for key in self._places if ended(key, instruction.closes)]:
                del self._places[key]
        closed = instruction.closed if isinstance(instruction, ProcessBlocks) else None
        for push in pushes:
            for key, value in _records(push.block):
                place = ("at", index) if ended(key, closed) else self._places.setdefault(key, ("at", index))
                if place != ("at", index):
                    self._broken(f"task {index} processed key {key!r}, whose state is {' task '.join(map(str, place))}")
                due = self._emitted[push.origin, push.edge, key]
                if not due or due.popleft() != value:
                    self._broken(f"records of key {key!r} from {push.origin} are out of order at task {index}")

    def worked(self, index: int, event: Event) -> None:
        """User code of task `index` has returned with an event.

        Raises:
            ProtocolError: it gave away the state of a key that was elsewhere.
        """
        if isinstance(event, RangesExtracted):
            for owner, part in event.piece.parts.items():
                for key in _keys((part,)):
                    self._move(key, ("at", index), ("on its way to", owner))

    def check_end(self) -> None:
        """What must hold when the job says that it is done.

        Raises:
            ProtocolError: a state is still on its way.
        """
        for key, (where, index) in self._places.items():
            if where != "at":
                self._broken(f"the job ended while the state of key {key!r} was {where} task {index}")

    def _move(self, key: Key, before: _Place, after: _Place) -> None:
        found = self._places.get(key)
        if found != before:
            where = "nowhere" if found is None else " task ".join(map(str, found))
            self._broken(f"the state of key {key!r} is {where}, not {' task '.join(map(str, before))}")
        self._places[key] = after

    def _broken(self, what: str) -> None:
        broken(f"{self._stage}: {what}")


def _records(block: Block) -> Iterator[tuple[Key, str]]:
    """The key and the value of each record; values in words, as user code may change them."""
    names = to_python(block.keys)
    for code, value in zip(block.codes.tolist(), block.objects(), strict=True):
        yield names[code], repr(value)


def _keys(parts: tuple[StatePart, ...]) -> list[Key]:
    return [key for part in parts for key in to_python(part.keys)]
