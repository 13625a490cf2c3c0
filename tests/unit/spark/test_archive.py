import subprocess
from pathlib import Path

import pytest

from dpa.spark import archive


def _java_without_archives(command: list[str], **options: object) -> "subprocess.CompletedProcess[str]":
    if command[1] == "-version":
        return subprocess.CompletedProcess(command, 0, "", 'openjdk version "21"\n')
    return subprocess.CompletedProcess(command, 1, "", "this VM has no class data sharing\n")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("a file", "File exists"),
        ("a Java", "Java cannot archive its own classes: this VM has no class data sharing"),
    ],
)
def test_where_there_can_be_no_archive_one_plain_line_says_that_spark_works_without(
    given: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", _java_without_archives)
    (tmp_path / "a file").touch()
    monkeypatch.setattr(archive, "archive_file", lambda: tmp_path / given / "spark.jsa")
    assert archive.main() == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith("no archive of Spark's classes; Spark works without one")
    assert reason in err and "error" not in err.lower()
    assert not list(tmp_path.rglob("*.jsa"))
