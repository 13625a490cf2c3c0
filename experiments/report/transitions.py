"""Tables of all state machines, printed from their rules: `python -m experiments.report.transitions`."""

import inspect

from dpa.protocol.balancer.machine import LoadBalancerMachine, StageBalance
from dpa.protocol.coordinator.cuts import Cuts
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.coordinator.membership import Membership
from dpa.protocol.coordinator.stage_progress import StageProgress
from dpa.protocol.rules import Rule, RuledMachine
from dpa.protocol.task.hand_over import Giving, Taking
from dpa.protocol.task.machine import Production
from dpa.protocol.task.operator import OperatorMachine
from dpa.protocol.task.source import SourceMachine
from dpa.protocol.task.state_exchange import StateExchange

MACHINES: dict[str, tuple[type[RuledMachine], ...]] = {
    "Coordinator": (CoordinatorMachine, StageProgress, Membership, Cuts),
    "Load balancer": (LoadBalancerMachine, StageBalance),
    "Source task": (SourceMachine,),
    "Operator task": (OperatorMachine, StateExchange, Giving, Taking),
    "Every task of a stage": (Production,),
}
"""Who runs which machines."""

_HEAD = """# State transitions

Every machine of `dpa/protocol` dispatches its events from a tuple of rules, `RULES`. These tables are printed from
them by `python -m experiments.report.transitions`.

- A row is a kind of event or message, or several alike, a column a state, and a cell what the machine then does.
- `-> ` is the state that follows. In brackets is a state that may follow; otherwise the state stays. No other follows:
  only `dpa/protocol/rules.py` assigns states, and refuses any that no rule names.
- `-` means that the event cannot come in that state: it raises `ProtocolError`, which ends the job.
- The row *then* is what a state triggers by itself, after events.
"""


def transition_table(machine: type[RuledMachine]) -> str:
    """The rules of a machine as a Markdown table: a row for each kind of event, or for several alike, a column for
    each state, `-` where it cannot come. The last row is what states trigger."""
    states = list(dict.fromkeys(state for rule in machine.RULES for state in type(rule.states[0])))
    kinds = sorted(dict.fromkeys(rule.kind for rule in machine.RULES), key=lambda kind: kind is None)
    alike: dict[tuple[str, ...], list[str]] = {}
    for kind in kinds:
        outcome = {state: in_words(rule) for rule in machine.RULES if rule.kind is kind for state in rule.states}
        named = "*then*" if kind is None else f"`{kind.__name__}`"
        alike.setdefault(tuple(outcome.get(state, "-") for state in states), []).append(named)
    rows = [("event", *(str(state.value) for state in states)), ("---",) * (len(states) + 1)]
    rows += [(", ".join(named), *cells) for cells, named in alike.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def in_words(rule: Rule) -> str:
    """The outcome and the next state, in brackets where the state may stay."""
    following = " or ".join(str(state.value) for state in rule.then if state is not None)
    if not following:
        return rule.does
    return f"{rule.does} (-> {following})" if None in rule.then else f"{rule.does} -> {following}"


def page() -> str:
    """All tables, with what they mean."""
    parts = [_HEAD]
    for owner, machines in MACHINES.items():
        parts.append(f"## {owner}\n")
        for machine in machines:
            about = inspect.cleandoc(machine.__doc__ or "").partition("\n\nAttributes:")[0]
            parts.append(f"### `{machine.__name__}`\n\n{about}\n\n{transition_table(machine)}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
