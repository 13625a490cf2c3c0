"""Events and instructions in words, a line each: the history of a simulated run, and that of a recorded one."""

from __future__ import annotations

import dataclasses
from typing import Any

from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import Event
from dpa.protocol.wire.instructions import Instruction, Send


def describe(at: float, receiver: Address, event: Event) -> str:
    return f"{at:10.6f}  {receiver!s:<12} {in_words(event)}"


def in_words(thing: Event | Instruction) -> str:
    """An event or an instruction: a message with its number and its sender or receiver, else its name and fields."""
    match thing:
        case Envelope():
            return f"<- {thing.sender} #{thing.seq}: {_fields(thing.message)}"
        case Send(envelope):
            return f"-> {envelope.receiver} #{envelope.seq}: {_fields(envelope.message)}"
    return _fields(thing)


def _fields(thing: Any) -> str:
    """A dataclass, as its `repr`, but what is large in it by its kind and size only."""
    shown = [field.name for field in dataclasses.fields(thing) if field.repr]
    return f"{type(thing).__name__}({', '.join(f'{name}={_short(getattr(thing, name))}' for name in shown)})"


def _short(value: Any) -> str:
    rows = getattr(value, "rows", None)
    if rows is not None:
        return f"<{rows} records>"
    if hasattr(value, "version") and hasattr(value, "positions"):
        return f"<table {value.version}>"
    text = str(value) if isinstance(value, Address) else " ".join(repr(value).split())
    return text if len(text) <= 120 else f"<{type(value).__name__}>"
