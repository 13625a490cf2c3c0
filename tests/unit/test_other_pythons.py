"""Which other Pythons `.ci/run` tests: the oldest and the newest supported one that the machine has."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "other_pythons.py"
OWN = "{}.{}".format(*sys.version_info)


def program(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {says}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def run(path: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": str(path)}
    return subprocess.run([sys.executable, SCRIPT], env=environment, capture_output=True, text=True, check=True)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_oldest_and_the_newest_beside_its_own_are_found_on_path_and_in_pyenv(tmp_path: Path, count: int) -> None:
    others = [version for version in ("3.10", "3.11", "3.12", "3.13") if version != OWN][:count]
    program(tmp_path / "bin" / f"python{OWN}", OWN)
    program(tmp_path / "bin" / "python3.14", "3.14")
    program(tmp_path / "bin" / "pyenv", str(tmp_path / "pyenv"))
    expected = [program(tmp_path / "bin" / f"python{version}", version) for version in others[:-1]]
    program(tmp_path / "bin" / f"python{others[-1]}", "")  # a shim that leads nowhere
    expected.append(program(tmp_path / "pyenv" / "versions" / f"{others[-1]}.1" / "bin" / "python", others[-1]))
    wanted = dict.fromkeys([str(expected[0]), str(expected[-1])])
    assert run(tmp_path / "bin").stdout.splitlines() == list(wanted)


def test_where_there_is_none_a_line_says_so(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert not done.stdout
    [line] = done.stderr.splitlines()
    assert line.startswith(f"unit tests run on Python {OWN} alone: none of 3.1")
