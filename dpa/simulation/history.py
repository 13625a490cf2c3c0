"""The events of a simulated run in words, a line each."""

from __future__ import annotations

import dataclasses
from typing import Any

from dpa.protocol.machine import Event
from dpa.protocol.messages import Address, Envelope


def describe(at: float, receiver: Address, event: Event) -> str:
    """One line: when, who, what."""
    if isinstance(event, Envelope):
        return f"{at:10.6f}  {receiver!s:<12} <- {event.sender} #{event.seq}: {_words(event.message)}"
    return f"{at:10.6f}  {receiver!s:<12} {_words(event)}"


def _words(thing: Any) -> str:
    fields = ", ".join(f"{field.name}={_short(getattr(thing, field.name))}" for field in dataclasses.fields(thing))
    return f"{type(thing).__name__}({fields})"


def _short(value: Any) -> str:
    rows = getattr(value, "rows", None)
    if rows is not None:
        return f"<{rows} records>"
    if hasattr(value, "epoch") and hasattr(value, "positions"):
        return f"<table {value.epoch}>"
    text = repr(value)
    return text if len(text) <= 120 else f"<{type(value).__name__}>"
