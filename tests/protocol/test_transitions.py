"""The tables of state transitions have every machine."""

import re
from pathlib import Path

import pytest

from dpa.protocol.rules import RuledMachine
from experiments.report.transitions import MACHINES, page

PROTOCOL = Path(__file__).parents[2] / "dpa" / "protocol"


def test_the_tables_have_every_machine_of_the_protocol() -> None:
    written = [path.read_text(encoding="utf-8").count("    RULES: ") for path in PROTOCOL.rglob("*.py")]
    assert sum(written) == len(re.findall(r"^### `\w+`$", page(), re.MULTILINE)) + 1  # `RuledMachine` has none


@pytest.mark.parametrize("machine", [machine for machines in MACHINES.values() for machine in machines])
def test_no_machine_has_two_rules_for_one_event_in_one_state(machine: type[RuledMachine]) -> None:
    named = [(rule.kind, state) for rule in machine.RULES for state in rule.states]
    assert len(named) == len(set(named))
