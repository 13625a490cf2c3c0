"""State machines whose transitions are data: a tuple of rules, from which events are dispatched and tables printed.
What no rule names cannot come, and no state follows that its rule does not name.

As in h11's `_state.py` there are two kinds: rules that an event triggers, and rules that a state triggers by itself."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, TypeAlias

from dpa.errors import ProtocolError
from dpa.protocol.wire.addresses import Address


class State(Enum):
    """Base of each machine's states; the value is how sentences name it."""

    __hash__ = object.__hash__  # each is there once; that of `Enum` is a call, and states are looked up for every event


Handler: TypeAlias = Callable[..., State | None]
"""Returns the next state, or None where the state stays."""


@dataclass(frozen=True)
class Rule:
    """What a machine does on one kind of event in some of its states, or in these states by itself.

    Attributes:
        kind: the type of the event or message; None: `advance` carries out the rule.
        states: the states in which it may come.
        handler: the method that takes (sender, event), or nothing where there is no event. A subclass's method of the
            same name replaces it.
        does: the outcome, in a few words.
        then: what the handler may return: states that follow, and None if the state may stay.
    """

    kind: type | None
    states: tuple[State, ...]
    handler: Handler
    does: str
    then: tuple[State | None, ...]


def on(
    kind: type | None,
    states: State | Iterable[State],
    handler: Handler,
    does: str,
    then: State | Iterable[State | None] | None = None,
) -> Rule:
    """A rule for one state or several. `then`: the next state, or all that may follow; None among them: it may stay."""
    following = (then,) if then is None or isinstance(then, State) else tuple(then)
    return Rule(kind, (states,) if isinstance(states, State) else tuple(states), handler, does, following)


def on_each(
    kinds: Iterable[type],
    states: Iterable[State],
    handler: Handler,
    does: str,
    then: State | Iterable[State | None] | None = None,
) -> tuple[Rule, ...]:
    states = tuple(states)
    return tuple(on(kind, states, handler, does, then) for kind in kinds)


def when(
    states: State | Iterable[State], handler: Handler, does: str, then: State | Iterable[State | None] | None = None
) -> Rule:
    return on(None, states, handler, does, then)


def otherwise(rules: Iterable[Rule], states: State | Iterable[State], handler: Handler, does: str) -> tuple[Rule, ...]:
    """These rules, and one for each kind of event that they name elsewhere and not in these states."""
    rules = tuple(rules)
    at = (states,) if isinstance(states, State) else tuple(states)
    named = {(rule.kind, state) for rule in rules for state in rule.states}
    kinds = dict.fromkeys(rule.kind for rule in rules if rule.kind is not None)
    missing = {kind: [state for state in at if (kind, state) not in named] for kind in kinds}
    return (*rules, *(on(kind, where, handler, does) for kind, where in missing.items() if where))


_Outcome: TypeAlias = tuple[Handler, frozenset[State | None]]


class RuledMachine:
    """Something with a state that only changes while one of its rules is carried out, and only as that names.

    Attributes:
        KINDS: the types of the events that they name.
    """

    RULES: ClassVar[tuple[Rule, ...]] = ()
    KINDS: ClassVar[frozenset[type]]
    _by_event: ClassVar[dict[tuple[type | None, State], _Outcome]]
    _by_state: ClassVar[dict[State, _Outcome]]

    def __init__(self, state: State) -> None:
        self.state = state

    def __init_subclass__(cls) -> None:
        cls.KINDS = frozenset(rule.kind for rule in cls.RULES if rule.kind is not None)
        cls._by_event = {
            (rule.kind, at): (getattr(cls, rule.handler.__name__), frozenset(rule.then))
            for rule in cls.RULES
            for at in rule.states
        }
        cls._by_state = {at: outcome for (kind, at), outcome in cls._by_event.items() if kind is None}

    def dispatch(self, name: object, sender: Address, event: Any) -> None:
        """Carry out the rule for an event; `name` is what the machine is called in an error. Raises ProtocolError if
        there is none for this state; AssertionError if its handler returned a state that the rule does not name."""
        outcome = self._by_event.get((type(event), self.state))
        if outcome is None:
            kind = type(event).__name__
            raise ProtocolError(f"{name} cannot take a {kind} from {sender} while {self.state.value}")
        handler, then = outcome
        following = handler(self, sender, event)
        if following is not None or None not in then:  # most events leave the state as it is
            self._follow(following, then)

    def advance(self) -> None:
        while (outcome := self._by_state.get(self.state)) is not None:
            handler, then = outcome
            following = handler(self)
            if following is None and None in then:
                return
            self._follow(following, then)

    def _ignore(self, sender: Address, event: object) -> None:
        """The handler of events that do not matter in a state."""

    def _follow(self, state: State | None, then: frozenset[State | None]) -> None:
        if state not in then:
            raise AssertionError(f"{type(self).__name__}: no rule lets {state} follow {self.state}")
        if state is not None:
            self.state = state
