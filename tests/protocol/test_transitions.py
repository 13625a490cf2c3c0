"""The page of state transitions says what the rules say."""

from pathlib import Path

import pytest

from dpa.protocol.rules import RuledMachine
from experiments.report.transitions import MACHINES, page

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"


def test_the_page_is_printed_from_the_rules() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "run: python -m experiments.report.transitions > docs/protocol.md"
    )


@pytest.mark.parametrize("machine", [machine for machines in MACHINES.values() for machine in machines])
def test_no_machine_has_two_rules_for_one_event_in_one_state(machine: type[RuledMachine]) -> None:
    named = [(rule.kind, state) for rule in machine.RULES for state in rule.states]
    assert len(named) == len(set(named))
