"""What an experiment writes down."""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments.harness import Findings, Target, interval, main, published


def test_numbers_of_numpy_are_written_as_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["experiment", "--results", str(tmp_path)])
    met = np.float64(1.0) <= 2.0
    target = Target("seconds", "<= 2", np.float64(1.0), met)
    main("made_up", argparse.ArgumentParser(), lambda options: Findings({"rows": np.int64(3)}, [target]))
    written = json.loads((tmp_path / "made_up.json").read_text())
    assert written["data"] == {"rows": 3}
    assert [(found["reached"], found["met"]) for found in written["targets"]] == [(1.0, True)]


def test_a_published_value_is_met_within_the_measured_interval_and_not_beyond_it() -> None:
    assert interval(np.arange(1001.0)) == (25.0, 975.0), "without a twentieth of the values"
    for value, met in ((91.9, False), (92.0, True), (93.1, True), (94.1, False)):
        expected = Target("kept", f"{value:.1f} (published) within", "92.0 to 94.0", met)
        assert published("kept", value, (92.0, 94.0), ".1f") == expected
