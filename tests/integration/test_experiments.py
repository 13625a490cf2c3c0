"""Every experiment runs to its end in its quick form, and writes what it should."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

EXPERIMENTS = sorted(
    file.stem for file in (ROOT / "experiments").glob("*.py") if "__main__" in file.read_text(encoding="utf-8")
)

TIMEOUT_SECONDS = 300
"""For one experiment; on two idle cores each needs less than a minute."""


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_runs_in_its_quick_form_and_writes_its_result(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", f"experiments.{name}", "--quick", "--results", str(tmp_path)]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
    assert set(document) == {"stamp", "data", "targets"}
    assert document["stamp"]["commit"]
    assert document["stamp"]["configuration"]["quick"] is True
    assert document["data"]
    assert all(set(target) == {"name", "wanted", "reached", "met"} for target in document["targets"])
    text = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}\n")
    pictured = f"![{name}]({name}.png)" in text
    assert pictured == (tmp_path / f"{name}.png").exists()
    assert {file.stem for file in tmp_path.iterdir()} == {name}
