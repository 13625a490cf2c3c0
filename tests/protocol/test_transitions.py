"""The tables of state transitions have every machine."""

import re
from pathlib import Path

from experiments.report.transitions import page

PROTOCOL = Path(__file__).parents[2] / "dpa" / "protocol"


def test_the_tables_have_every_machine_of_the_protocol() -> None:
    written = [path.read_text(encoding="utf-8").count("    RULES: ") for path in PROTOCOL.rglob("*.py")]
    assert sum(written) == len(re.findall(r"^### `\w+`$", page(), re.MULTILINE)) + 1  # `RuledMachine` has none
