"""What a driver has changed since Ray started, in a process that has what Ray was started with."""

import os
import sys
from pathlib import Path

import pytest

from dpa.runtime._surroundings import Surroundings


def test_only_what_has_changed_is_sent_and_a_process_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"KEPT": "1", "GONE": "2", "OTHER": "3"})
    before = Surroundings.here()
    assert Surroundings.here().since(before) is None
    os.environ.update(OTHER="4", NEW="five")
    del os.environ["GONE"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["new", *sys.path])
    changes = Surroundings.here().since(before)
    assert changes is not None and "five" not in repr(changes), "it may be a secret"
    assert changes == Surroundings({"GONE": None, "OTHER": "4", "NEW": "five"}, str(tmp_path), tuple(sys.path))

    os.environ.clear()
    os.environ.update(before.variables)
    monkeypatch.chdir(before.directory)
    sys.path[:] = ["of Ray", *before.path]
    changes.take()
    assert os.environ == {"KEPT": "1", "OTHER": "4", "NEW": "five"}
    assert Path.cwd() == tmp_path and sys.path == [*changes.path, "of Ray"]
