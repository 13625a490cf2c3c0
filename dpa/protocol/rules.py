"""State machines whose transitions are data: a tuple of rules, from which events are dispatched and docs/protocol.md is
printed. What no rule names cannot come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from dpa.errors import ProtocolError
from dpa.protocol.wire.addresses import Address


class State(Enum):
    """Base of each machine's states; the value is how sentences name it."""

    __hash__ = object.__hash__  # each is there once; that of `Enum` is a call, and states are looked up for every event


@dataclass(frozen=True)
class Rule:
    """What a machine does on one kind of event in some of its states.

    Attributes:
        kind: the type of the event or message.
        states: the states in which it may come.
        handler: the method that takes (sender, event). A subclass's method of the same name replaces it.
        does: the outcome, in a few words.
    """

    kind: type
    states: tuple[State, ...]
    handler: Callable[[Any, Address, Any], None]
    does: str


def on(kind: type, states: State | Iterable[State], handler: Callable[[Any, Address, Any], None], does: str) -> Rule:
    """A rule for one state or several."""
    return Rule(kind, (states,) if isinstance(states, State) else tuple(states), handler, does)


def on_each(
    kinds: Iterable[type], states: Iterable[State], handler: Callable[[Any, Address, Any], None], does: str
) -> tuple[Rule, ...]:
    """The same rule for several kinds of events."""
    states = tuple(states)
    return tuple(on(kind, states, handler, does) for kind in kinds)


class RuledMachine:
    """Something with a state that only changes while one of its rules is carried out.

    Attributes:
        RULES: all transitions.
        state: the present state.
    """

    RULES: ClassVar[tuple[Rule, ...]]
    _handlers: ClassVar[dict[tuple[type, State], str]]

    def __init__(self, state: State) -> None:
        self.state = state

    def __init_subclass__(cls) -> None:
        cls._handlers = {
            (rule.kind, at): rule.handler.__name__ for rule in getattr(cls, "RULES", ()) for at in rule.states
        }

    def dispatch(self, name: object, sender: Address, event: Any) -> None:
        """Carry out the rule for an event; `name` is what the machine is called in an error.

        Raises:
            ProtocolError: there is none for this state.
        """
        handler = self._handlers.get((type(event), self.state))
        if handler is None:
            kind = type(event).__name__
            raise ProtocolError(f"{name} cannot take a {kind} from {sender} while {self.state.value}")
        getattr(self, handler)(sender, event)


def transition_table(machine: type[RuledMachine]) -> str:
    """The rules of a machine as a Markdown table: a row a kind of event, a column a state, `-` where it cannot come."""
    states = list(dict.fromkeys(state for rule in machine.RULES for state in type(rule.states[0])))
    kinds = dict.fromkeys(rule.kind for rule in machine.RULES)
    rows = [["event", *(str(state.value) for state in states)], ["---"] * (len(states) + 1)]
    for kind in kinds:
        outcome = {state: rule.does for rule in machine.RULES if rule.kind is kind for state in rule.states}
        rows.append([f"`{kind.__name__}`", *(outcome.get(state, "-") for state in states)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
