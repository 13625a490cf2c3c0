"""A local store of checkpoints under random faults: it survives them, and one that is broken on purpose does not."""

from __future__ import annotations

import inspect
import sys
import textwrap
from typing import Any

import pytest
from checkpoint_machine import CheckpointWalk
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from dpa.checkpoints._chain import Chain
from dpa.errors import CheckpointError
from dpa.storage import DirectoryFiles


def test_a_walk_over_faults() -> None:
    run_state_machine_as_test(CheckpointWalk, settings=settings(max_examples=20, stateful_step_count=30))


BROKEN: dict[str, tuple[type, str, str, str]] = {
    "data is not synced": (DirectoryFiles, "writing", "os.fsync(file)", "pass"),
    "a manifest is put before the names of its files are durable": (
        DirectoryFiles,
        "put",
        "sync(self.at(os.path.dirname(draft)))",
        "pass",
    ),
    "the name of a manifest is not synced": (DirectoryFiles, "put", "sync(self.at(os.path.dirname(path)))", "pass"),
    "a slot that is taken is replaced": (
        DirectoryFiles,
        "put",
        "os.link(self.at(draft), self.at(path))",
        "if os.link(self.at(draft), f'{self.at(draft)}-') is None: os.replace(f'{self.at(draft)}-', self.at(path))",
    ),
    "a slot that was deleted is won again": (Chain, "_put", "last is not None and", "False and"),
    "files that are being written are collected": (Chain, "collect", "int(name[:10]) <= newest and", ""),
    "files of older checkpoints are collected": (Chain, "collect", "for slot in kept for", "for slot in kept[:1] for"),
    "lists are believed to have all": (Chain, "newest_slot", "while self._files", "while False and self._files"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_store_is_caught(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    of, method, right, wrong = BROKEN[fault]
    source = textwrap.dedent(inspect.getsource(getattr(of, method)))
    assert right in source
    broken: dict[str, Any] = {}
    exec(
        f"from __future__ import annotations\n{source.replace(right, wrong)}", vars(sys.modules[of.__module__]), broken
    )
    monkeypatch.setattr(of, method, broken[method])
    with pytest.raises((AssertionError, CheckpointError)):
        run_state_machine_as_test(
            CheckpointWalk, settings=settings(max_examples=300, stateful_step_count=30, phases=[Phase.generate])
        )
