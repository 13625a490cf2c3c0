"""What `run` shows of a job in a script on a terminal, and in a notebook: each in a process of its own."""

import fcntl
import os
import pty
import struct
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from programs_for_tests import PATIENCE

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT), "DPA_BACKEND": "auto", "DPA_PROGRESS": "auto"}
SLOW = """
import time
from dpa import Flow

Flow("warm").read([{"a": 1}]).key_by("a").reduce("count").flow.run(progress=False)  # imports take a while

def slow(row):
    time.sleep(0.004)
    return row

def flow_of(rows):
    flow = Flow("slow")
    flow.read([{"word": f"w{n % 7}"} for n in range(rows)]).map(slow).key_by("word").reduce("count")
    return flow
"""


def on_a_terminal(program: str, rows: int = 24, columns: int = 80) -> str:
    """What a program writes on a terminal."""
    child, terminal = pty.fork()
    if child == 0:
        os.execve(sys.executable, [sys.executable, "-c", program], ENVIRONMENT)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    written = b""
    while True:
        try:
            written += os.read(terminal, 65_536)
        except OSError:  # the program has ended
            break
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, written
    return written.decode()


def test_a_script_shows_a_panel_of_a_run_that_lasts() -> None:
    runs = [("600", True), ("10", False), ("600, progress=False", False), ("10, progress=True", True)]
    program = "".join(f"run({run})\nprint('<end>')\n" for run, _ in runs)
    written = on_a_terminal(f"{SLOW}\ndef run(rows, **options):\n    flow_of(rows).run(**options)\n\n{program}")
    for (run, shown), of_run in zip(runs, written.split("<end>"), strict=False):
        assert ("╭─" in of_run and "stream" in of_run) == shown, run
        assert shown or not of_run.strip(), run


class Kernel:
    """A notebook's kernel."""

    def __init__(self) -> None:
        from jupyter_client.manager import start_new_kernel

        self._manager, self._client = start_new_kernel(kernel_name="python3", env=ENVIRONMENT)

    def run(self, code: str) -> list[dict[str, Any]]:
        """What a cell displays: displays and their updates, and streams."""
        found: list[dict[str, Any]] = []
        reply = self._client.execute_interactive(code, output_hook=found.append, timeout=PATIENCE)
        assert reply["content"]["status"] == "ok", reply["content"]
        return [each for each in found if each["msg_type"] in ("display_data", "update_display_data", "stream")]

    def end(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def kernel() -> Any:
    made = Kernel()
    yield made
    made.end()


def test_a_notebook_shows_a_panel_that_lives_and_goes(kernel: Kernel) -> None:
    shown = kernel.run(SLOW + "result = flow_of(1_000).run()")
    first, *updates = [each["content"] for each in shown]
    assert shown[0]["msg_type"] == "display_data" and len(updates) >= 3
    assert {each["transient"]["display_id"] for each in (first, *updates)} == {first["transient"]["display_id"]}
    pages = [each["data"]["text/html"] for each in (first, *updates)]
    assert all("<pre" in page and "slow" in page for page in pages[:-1])
    assert "stream" in pages[-2] and pages[-1] == ""
    assert not any("widget" in kind for each in updates for kind in each["data"])


def test_a_notebook_shows_nothing_of_a_short_run_or_if_it_is_not_to(kernel: Kernel) -> None:
    assert kernel.run(SLOW + "result = flow_of(10).run()") == []
    assert kernel.run("result = flow_of(600).run(progress=False)") == []


def test_the_panel_of_a_failed_run_stays_in_the_notebook(kernel: Kernel) -> None:
    failing = SLOW.replace("return row", "return {'x': 1 // 0}")
    caught = "try:\n    flow_of(10).run(progress=True)\nexcept Exception as error:\n    print(type(error).__name__)"
    shown = kernel.run(f"{failing}\n{caught}")
    assert [each["content"]["text"] for each in shown if each["msg_type"] == "stream"] == ["JobFailedError\n"]
    *_, last = [each["content"]["data"]["text/html"] for each in shown if each["msg_type"] != "stream"]
    assert "<pre" in last


def test_a_session_of_a_notebook_keeps_ray_and_processes_for_its_next_cells(kernel: Kernel) -> None:
    kernel.run(f"{SLOW}\nimport dpa, ray\nsession = dpa.session().open()")
    job = "result = flow_of(10).run(backend='ray', progress=False)"
    said = "print(ray.get_runtime_context().get_job_id(), result.table().num_rows, result.report.seconds.first_record)"
    found = [kernel.run(f"{job}\n{said}") for _ in range(2)]
    (first, *_), (second, rows, seconds) = (shown[-1]["content"]["text"].split() for shown in found)
    assert (second, rows) == (first, "7"), "both are on one Ray"
    print(f"first record of the second job after {float(seconds):.2f} s")
    assert kernel.run("session.close()\nassert not ray.is_initialized()") == []
