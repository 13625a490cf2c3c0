"""Events and instructions without what machines ignore: values, states, latencies, and the content of splits.

A machine looks only at keys, hashes and counts, so a lean event has the same effect as the event. A lean block keeps no
values, and keeps no message's memory alive: its keys are a copy, and so are hashes and codes unless the task made them
itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dpa.execution.block import Block, copied
from dpa.execution.mapping import Emitted
from dpa.execution.reduce_task import Piece
from dpa.execution.states import ColumnPart, JoinPart, ObjectPart, StatePart
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import Event, ExtractDone, PollDone, ProcessDone, PublishDone, RangesExtracted, StepDone
from dpa.protocol.wire.instructions import Finish, InstallStates, OpenSplit, ProcessBlocks, Publish, Send
from dpa.protocol.wire.messages.data import Push
from dpa.protocol.wire.messages.end import Progress
from dpa.protocol.wire.messages.exchange import StateTransfer
from dpa.protocol.wire.messages.migration import RangeTransfer
from dpa.protocol.wire.messages.splits import SplitGrant
from dpa.sources.splits import Split, channel_of, is_split

T = TypeVar("T")
A = TypeVar("A", bound=np.generic)

LARGE: dict[type, str] = {
    Push: "block",
    ProcessBlocks: "blocks",
    ProcessDone: "blocks",
    PublishDone: "blocks",
    Emitted: "blocks",
    StepDone: "step",
    SplitGrant: "split",
    OpenSplit: "split",
    PollDone: "splits",
    StateTransfer: "part",
    RangeTransfer: "part",
    ExtractDone: "parts",
    RangesExtracted: "piece",
    Piece: "parts",
    InstallStates: "parts",
    Publish: "parts",
    Finish: "parts",
}
"""Types with a part that machines ignore, and the name of that field."""


@dataclass(frozen=True)
class SplitOutline:
    """A split's number of rows, and its channel."""

    rows: int
    channel: str = ""

    def after(self, rows: int) -> SplitOutline:
        return SplitOutline(self.rows - rows, self.channel)


@dataclass(frozen=True)
class StatesOutline:
    """States in flight as one position for each key."""

    keys: range


class BlockOutline(NamedTuple):
    """What distinguishes blocks: how many records and keys, and the hashes of the first and last key."""

    rows: int
    keys: int
    first: int
    last: int


def lean_event(event: Event) -> Event:
    """An event with the same effect on a machine; blocks keep their keys, hashes and codes."""
    if isinstance(event, Envelope) and isinstance(event.message, Progress) and event.message.latency is not None:
        return _with(event, "message", _with(event.message, "latency", None))
    return _opened(event, _LEAN)


def outline(thing: T) -> T:
    """An event or instruction whose blocks are outlines, so that its `repr` is complete."""
    return _opened(thing, _OUTLINE)


def has_lean_form(kind: type) -> bool:
    return kind in _LEAN or is_split(kind)


def lean_part(part: Any) -> object:
    return _LEAN.get(type(part), _lean_split)(part)


def rows_of(event: Event) -> int:
    match event:
        case Envelope(message=Push(block=block)):
            return block.rows
        case StepDone(step=Emitted(blocks=blocks)) | ProcessDone(blocks=blocks) | PublishDone(blocks=blocks):
            return sum(block.rows for _, block in blocks)
    return 0


def _lean_block(block: Block) -> Block:
    return Block(copied(block.keys), _owned(block.hashes), _owned(block.codes), row_bytes=block.row_bytes)


def _owned(array: npt.NDArray[A]) -> npt.NDArray[A]:
    """Copies an array of a message, but not one that the task made itself: the codes of a batch take a megabyte."""
    return array if array.flags.owndata else array.copy()


def _block_outline(block: Block) -> BlockOutline:
    hashes = block.hashes
    return BlockOutline(block.rows, len(hashes), int(hashes[0]), int(hashes[-1])) if len(hashes) else _NO_RECORDS


def _lean_states(part: StatePart) -> StatesOutline:
    return StatesOutline(range(len(part.keys)))


def _lean_split(split: Split | None) -> SplitOutline | None:
    return None if split is None else SplitOutline(split.rows, channel_of(split))


_NO_RECORDS = BlockOutline(0, 0, 0, 0)

_Conversions = dict[type, Callable[[Any], Any]]
_LEAN: _Conversions = {Block: _lean_block, **dict.fromkeys((StatePart, ColumnPart, JoinPart, ObjectPart), _lean_states)}
_OUTLINE: _Conversions = {**_LEAN, Block: _block_outline}


def _opened(thing: T, conversions: _Conversions) -> T:
    """With its large field converted; the same object if nothing changes."""
    kind = type(thing)
    field = "message" if kind is Envelope else "envelope" if kind is Send else LARGE.get(kind)
    if field is None:
        return thing
    value = getattr(thing, field)
    if field == "split":
        converted: object = _lean_split(value)
    elif field == "splits":
        converted = tuple(map(_lean_split, value))
    else:
        converted = _converted(value, conversions)
    return thing if converted is value else _with(thing, field, converted)


def _converted(value: Any, conversions: _Conversions) -> Any:
    convert = conversions.get(type(value))
    if convert is not None:
        return convert(value)
    if isinstance(value, tuple):
        return tuple([_converted(item, conversions) for item in value])
    if isinstance(value, dict):
        return {key: _converted(item, conversions) for key, item in value.items()}
    return _opened(value, conversions)


def _with(thing: T, field: str, value: Any) -> T:
    """`dataclasses.replace` takes a few times as long, and this runs for every message."""
    made = object.__new__(type(thing))
    made.__dict__.update(thing.__dict__)
    made.__dict__[field] = value
    return made
