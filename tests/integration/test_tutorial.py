"""The tutorial is true: its files are written, its commands are run in their order, and print what the page shows. They
share a session of `dpa up`, which the page does without: each would start a Ray and a Spark."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from programs_for_tests import PATIENCE

from dpa.runtime.standing import SWITCH

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Terminals:
    """Two terminals: the first one runs what does not end by itself."""

    def __init__(self, directory: Path) -> None:
        programs = directory / "bin"
        programs.mkdir()
        for name, arguments in (("dpa", "-m dpa"), ("python", "")):
            (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n', encoding="utf-8")
            (programs / name).chmod(0o755)
        self.directory = directory
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{programs}:{os.environ['PATH']}"}
        self.environment |= {"TMPDIR": str(directory), SWITCH: ""}  # a session of its own
        self.stream: subprocess.Popen[str] | None = None

    def write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text, encoding="utf-8")

    def run(self, command: str, shown: str | None) -> str:
        """What a command prints; of one whose output is shown, once that is what it prints."""
        if command.startswith("cd "):
            self.directory /= command.removeprefix("cd ")
            return ""
        if command == "dpa run live.yaml":
            self.stream = self._begin(command)
            return ""
        give_up = time.monotonic() + PATIENCE
        while True:
            started = self._begin(command)
            said, _ = started.communicate(timeout=PATIENCE)
            if started.returncode == 0 and (shown is None or said == shown):
                return said
            waits = self.stream is not None and self.stream.poll() is None and time.monotonic() < give_up
            assert waits, f"{command} has status {started.returncode} and printed\n{said}"
            time.sleep(2)  # each look is a new process

    def _begin(self, command: str) -> subprocess.Popen[str]:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
        return subprocess.Popen(command, shell=True, cwd=self.directory, env=self.environment, **streams)  # type: ignore[call-overload, no-any-return]


@contextmanager
def terminals(directory: Path) -> Iterator[Terminals]:
    opened = Terminals(directory)
    opened.run("dpa up", None)
    try:
        yield opened
    finally:
        if opened.stream is not None:
            with suppress(ProcessLookupError):
                os.killpg(opened.stream.pid, signal.SIGTERM)
        opened.run("dpa down --force", None)


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    found = list(BLOCK.finditer(PAGE))
    assert {block[1] for block in found} == {"bash", "python", "yaml", "text"}
    printed = {}
    with terminals(tmp_path) as opened:
        for place, block in enumerate(found):
            language, text = block.groups()
            if language in ("python", "yaml"):
                opened.write(re.findall(r"as `([\w.]+)`", PAGE[: block.start()])[-1], text)
            elif language == "bash":
                following = found[place + 1 : place + 2]
                shown = next((after[2] for after in following if after[1] == "text"), None)
                commands = [command for command in text.splitlines() if not command.startswith("pip install")]
                for command in commands:
                    printed[command] = opened.run(command, shown if command == commands[-1] else None)
        assert opened.stream is not None
        said, _ = opened.stream.communicate(timeout=PATIENCE)
        assert opened.stream.returncode == 0, said
    assert "reference: match" in said.splitlines()
    [ran] = [said for command, said in printed.items() if command.startswith("dpa run job.yaml")]
    assert "reference: match" in ran.splitlines()
    assert re.search(
        r"^skew +[0-9.]+  \(0 is even\); [0-9.]+ without balancing, [0-9.]+ with Spark's hash$", ran, re.MULTILINE
    )
    assert "hot key busy" in printed["dpa plan job.yaml"]
    assert (opened.directory / "report" / "report.html").exists()
