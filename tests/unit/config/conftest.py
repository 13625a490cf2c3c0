from collections.abc import Callable
from pathlib import Path

import pytest

from dpa.config import JobFile, load


@pytest.fixture
def job_file(tmp_path: Path) -> Callable[..., JobFile]:
    """Writes a job file and loads it with options."""

    def loaded(text: str, *overrides: str) -> JobFile:
        (tmp_path / "job.yaml").write_text(text, encoding="utf-8")
        return load(tmp_path / "job.yaml", overrides)

    return loaded
