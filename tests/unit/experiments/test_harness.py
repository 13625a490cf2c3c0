"""What an experiment writes down."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments.harness import Findings, Target, main


def test_numbers_of_numpy_are_written_as_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["experiment", "--results", str(tmp_path)])
    met = np.float64(1.0) <= 2.0
    target = Target("seconds", "<= 2", np.float64(1.0), met)
    main("made_up", argparse.ArgumentParser(), lambda options: Findings({"rows": np.int64(3)}, [target]))
    written = json.loads((tmp_path / "made_up.json").read_text())
    assert written["data"] == {"rows": 3}
    assert [(found["reached"], found["met"]) for found in written["targets"]] == [(1.0, True)]
